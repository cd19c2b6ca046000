// The functions of NCCL that xlad calls.
#include <cstring>
#include <map>
#include <utility>

#include "tests/nccl_double/hub.h"
#include "tests/nccl_double/nccl_double.h"

namespace xlad::collectives::nccl {

struct CommObject {
  std::shared_ptr<nccl_double::Communicator> communicator;
};

// A function whose parameters differ from nccl_api.h does not compile.
#define XLAD_DECLARE_NCCL(result, name, parameters) \
  extern "C" __attribute__((visibility("default"))) result name parameters;
XLAD_NCCL_FUNCTIONS(XLAD_DECLARE_NCCL)
#undef XLAD_DECLARE_NCCL
extern "C" __attribute__((visibility("default"))) void xladNcclDoubleConfigure(const char* text);

namespace {

using nccl_double::Call;
using nccl_double::Kind;
using nccl_double::NcclDouble;

// The calls of a thread on one communicator between ncclGroupStart and ncclGroupEnd.
struct GroupOfCalls {
  CommHandle communicator = nullptr;
  StreamHandle stream = nullptr;
  std::vector<Call> calls;
};
thread_local int group_depth = 0;
thread_local std::vector<GroupOfCalls> groups;  // In the order of their first calls.

Result RunGroups() {
  Result result = kSuccess;
  for (const GroupOfCalls& group : std::exchange(groups, {})) {
    const Result enqueued = group.communicator->communicator->Enqueue(group.calls, group.stream);
    if (result == kSuccess || result == kInProgress) result = enqueued;
  }
  return result;
}

Result Add(CommHandle communicator, StreamHandle stream, const Call& call) {
  if (communicator == nullptr || stream == nullptr) return kInvalidArgument;
  for (GroupOfCalls& group : groups) {
    if (group.communicator != communicator) continue;
    if (group.stream != stream) return kInvalidUsage;
    group.calls.push_back(call);
    return kSuccess;
  }
  groups.push_back({communicator, stream, {call}});
  return group_depth > 0 ? kSuccess : RunGroups();
}

}  // namespace

#define XLAD_ENTER_NCCL(name) \
  if (const Result entered = NcclDouble::Get().Enter(#name); entered != kSuccess) return entered;

void xladNcclDoubleConfigure(const char* text) { NcclDouble::Get().Configure(text); }

Result ncclGetVersion(int* version) {
  XLAD_ENTER_NCCL(ncclGetVersion);
  *version = NcclDouble::Get().settings().version;
  return kSuccess;
}
const char* ncclGetErrorString(Result error) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "in progress"};
  return error >= 0 && error < 8 ? kTexts[error] : "unknown result code";
}
const char* ncclGetLastError(CommHandle communicator) {
  thread_local std::string text;
  text = communicator == nullptr ? "" : communicator->communicator->last_error();
  return text.c_str();
}

Result ncclGetUniqueId(UniqueId* id) {
  XLAD_ENTER_NCCL(ncclGetUniqueId);
  const std::string name = nccl_double::StartHub();
  if (name.empty() || name.size() >= sizeof id->bytes) return kSystemError;
  *id = {};
  std::memcpy(id->bytes, name.data(), name.size());
  return kSuccess;
}
Result ncclCommInitRankConfig(CommHandle* communicator, int ranks, UniqueId id, int rank, Config* config) {
  XLAD_ENTER_NCCL(ncclCommInitRankConfig);
  const bool is_config = config != nullptr && config->size == sizeof(Config) && config->magic == Config().magic &&
                         config->version >= 21800 && config->blocking == 0;
  if (!is_config || rank < 0 || rank >= ranks) return kInvalidArgument;
  const nccl_double::Hello hello{static_cast<uint32_t>(rank), static_cast<uint32_t>(ranks)};
  const int file = nccl_double::ConnectToHub(id.bytes, hello);
  if (file < 0) return kSystemError;
  *communicator = new CommObject{std::make_shared<nccl_double::Communicator>(file, rank, ranks)};
  return kInProgress;
}
Result ncclCommFinalize(CommHandle communicator) {
  XLAD_ENTER_NCCL(ncclCommFinalize);
  return communicator->communicator->Finalize();
}
Result ncclCommDestroy(CommHandle communicator) {
  XLAD_ENTER_NCCL(ncclCommDestroy);
  communicator->communicator->Destroy();
  delete communicator;
  return kSuccess;
}
Result ncclCommAbort(CommHandle communicator) {
  XLAD_ENTER_NCCL(ncclCommAbort);
  communicator->communicator->Abort();
  delete communicator;
  return kSuccess;
}
Result ncclCommGetAsyncError(CommHandle communicator, Result* error) {
  XLAD_ENTER_NCCL(ncclCommGetAsyncError);
  *error = communicator->communicator->Poll();
  return kSuccess;
}

Result ncclGroupStart() {
  XLAD_ENTER_NCCL(ncclGroupStart);
  ++group_depth;
  return kSuccess;
}
Result ncclGroupEnd() {
  const Result entered = NcclDouble::Get().Enter("ncclGroupEnd");
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return kSuccess;
  if (entered != kSuccess) groups.clear();
  return entered != kSuccess ? entered : RunGroups();
}

Result ncclAllReduce(XLAD_NCCL_REDUCE_ALL_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclAllReduce);
  return Add(communicator, stream, {Kind::kAllReduce, send, receive, count, type, op});
}
Result ncclReduceScatter(XLAD_NCCL_REDUCE_ALL_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclReduceScatter);
  return Add(communicator, stream, {Kind::kReduceScatter, send, receive, count, type, op});
}
Result ncclAllGather(XLAD_NCCL_GATHER_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclAllGather);
  return Add(communicator, stream, {Kind::kAllGather, send, receive, count, type});
}
Result ncclBroadcast(XLAD_NCCL_BROADCAST_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclBroadcast);
  return Add(communicator, stream, {Kind::kBroadcast, send, receive, count, type, 0, root});
}
Result ncclReduce(XLAD_NCCL_REDUCE_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclReduce);
  return Add(communicator, stream, {Kind::kReduce, send, receive, count, type, op, root});
}
Result ncclSend(XLAD_NCCL_SEND_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclSend);
  return Add(communicator, stream, {Kind::kSend, send, nullptr, count, type, 0, peer});
}
Result ncclRecv(XLAD_NCCL_RECEIVE_PARAMETERS) {
  XLAD_ENTER_NCCL(ncclRecv);
  return Add(communicator, stream, {Kind::kReceive, nullptr, receive, count, type, 0, peer});
}

}  // namespace xlad::collectives::nccl
