#include "collectives/exec/nccl/nccl_group.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/nccl/nccl_rules.h"

namespace xlad::collectives::nccl {
namespace {

// How long the destructor of a group waits for peers that have not destroyed their groups.
constexpr int64_t kFinalizeMs = 10'000;

// One operand of a collective, and the calls that send and receive its parts.
struct Operand {
  const Library& nccl;
  const CollectiveSpec& spec;
  int rank;
  CommHandle handle;
  StreamHandle stream;
  const std::byte* in;
  std::byte* out;
  int64_t in_count;
  int64_t out_count;
  Elements elements = ElementsOf(spec);
  int64_t width = tensor::ByteWidth(spec.type);

  size_t Count(int64_t count) const { return count * elements.per_element; }
  Op op() const { return OpOf(spec.reduction); }
  Result Send(int64_t begin, int64_t count, int peer) const {
    return count == 0 ? kSuccess : nccl.ncclSend(in + begin * width, Count(count), elements.type, peer, handle, stream);
  }
  Result Receive(int64_t begin, int64_t count, int peer) const {
    return count == 0 ? kSuccess
                      : nccl.ncclRecv(out + begin * width, Count(count), elements.type, peer, handle, stream);
  }
};

Result FirstError(Result a, Result b) { return a != kSuccess && a != kInProgress ? a : b; }

// The size in elements of the part that rank `from` sends to rank `to` (AllToAll), or of part `to` (other kinds).
int64_t PartOf(const Operand& x, int from, int to) {
  const int64_t n = x.spec.ranks;
  if (x.spec.kind == CollectiveKind::kAllToAll) {
    return x.spec.sizes.empty() ? x.in_count / n : x.spec.sizes[from * n + to];
  }
  if (!x.spec.sizes.empty()) return x.spec.sizes[to];
  return x.spec.kind == CollectiveKind::kGather ? x.in_count : x.out_count;
}

Result AllReduce(const Operand& x) {
  if (x.in_count == 0) return kSuccess;
  return x.nccl.ncclAllReduce(x.in, x.out, x.Count(x.in_count), x.elements.type, x.op(), x.handle, x.stream);
}

Result AllGather(const Operand& x) {
  if (x.spec.sizes.empty()) {
    if (x.in_count == 0) return kSuccess;
    return x.nccl.ncclAllGather(x.in, x.out, x.Count(x.in_count), x.elements.type, x.handle, x.stream);
  }
  Result result = kSuccess;
  int64_t begin = 0;
  for (int root = 0; root < x.spec.ranks; begin += x.spec.sizes[root++]) {
    if (x.spec.sizes[root] == 0) continue;
    std::byte* const out = x.out + begin * x.width;
    result = FirstError(result, x.nccl.ncclBroadcast(root == x.rank ? x.in : out, out, x.Count(x.spec.sizes[root]),
                                                     x.elements.type, root, x.handle, x.stream));
  }
  return result;
}

Result ReduceScatter(const Operand& x) {
  if (x.spec.sizes.empty()) {
    if (x.in_count == 0) return kSuccess;
    return x.nccl.ncclReduceScatter(x.in, x.out, x.Count(x.out_count), x.elements.type, x.op(), x.handle, x.stream);
  }
  Result result = kSuccess;
  int64_t begin = 0;
  for (int root = 0; root < x.spec.ranks; begin += x.spec.sizes[root++]) {
    if (x.spec.sizes[root] == 0) continue;
    result = FirstError(result, x.nccl.ncclReduce(x.in + begin * x.width, x.out, x.Count(x.spec.sizes[root]),
                                                  x.elements.type, x.op(), root, x.handle, x.stream));
  }
  return result;
}

Result AllToAll(const Operand& x) {
  Result result = kSuccess;
  int64_t sent = 0, received = 0;
  for (int peer = 0; peer < x.spec.ranks; ++peer) {
    const int64_t to = PartOf(x, x.rank, peer), from = PartOf(x, peer, x.rank);
    result = FirstError(result, x.Send(sent, to, peer));
    result = FirstError(result, x.Receive(received, from, peer));
    sent += to;
    received += from;
  }
  return result;
}

Result Permute(const Operand& x) {
  Result result = kSuccess;
  for (const RankPair& pair : x.spec.pairs) {
    if (pair.source == x.rank) result = FirstError(result, x.Send(0, x.in_count, pair.target));
    if (pair.target == x.rank) result = FirstError(result, x.Receive(0, x.out_count, pair.source));
  }
  return result;
}

Result Broadcast(const Operand& x) {
  if (x.out_count == 0) return kSuccess;
  return x.nccl.ncclBroadcast(x.in, x.out, x.Count(x.out_count), x.elements.type, x.spec.root, x.handle, x.stream);
}

Result ReduceToRoot(const Operand& x) {
  if (x.in_count == 0) return kSuccess;
  return x.nccl.ncclReduce(x.in, x.out, x.Count(x.in_count), x.elements.type, x.op(), x.spec.root, x.handle, x.stream);
}

// The input of a rank is its part.
Result Gather(const Operand& x) {
  Result result = x.Send(0, x.in_count, x.spec.root);
  int64_t begin = 0;
  for (int peer = 0; x.rank == x.spec.root && peer < x.spec.ranks; ++peer) {
    const int64_t count = PartOf(x, peer, peer);
    result = FirstError(result, x.Receive(begin, count, peer));
    begin += count;
  }
  return result;
}

Result Scatter(const Operand& x) {
  Result result = x.Receive(0, x.out_count, x.spec.root);
  int64_t begin = 0;
  for (int peer = 0; x.rank == x.spec.root && peer < x.spec.ranks; ++peer) {
    const int64_t count = PartOf(x, x.rank, peer);
    result = FirstError(result, x.Send(begin, count, peer));
    begin += count;
  }
  return result;
}

struct KindRow {
  CollectiveKind kind;
  Result (*run)(const Operand&);
};
constexpr KindRow kKinds[] = {
    {CollectiveKind::kAllReduce, AllReduce},
    {CollectiveKind::kAllGather, AllGather},
    {CollectiveKind::kReduceScatter, ReduceScatter},
    {CollectiveKind::kAllToAll, AllToAll},
    {CollectiveKind::kCollectivePermute, Permute},
    {CollectiveKind::kSendRecv, Permute},
    {CollectiveKind::kBroadcast, Broadcast},
    {CollectiveKind::kReduce, ReduceToRoot},
    {CollectiveKind::kGather, Gather},
    {CollectiveKind::kScatter, Scatter},
};

absl::Status Ended() { return absl::FailedPreconditionError("NCCL: the group has ended after an error"); }

bool Receives(const CollectiveSpec& spec, int rank) {
  return std::any_of(spec.pairs.begin(), spec.pairs.end(), [&](const RankPair& pair) { return pair.target == rank; });
}

}  // namespace

Group::Group(const Options& options) : options_(options), library_(*options.library), waiter_(1) {
  const auto pump = [this] {
    if (forming_over_ != nullptr) forming_over_->Poll();
  };
  waiter_.SetPump(pump, /*polls=*/true);
}

absl::StatusOr<std::unique_ptr<Group>> Group::Form(const Options& options, const UniqueId& id) {
  std::unique_ptr<Group> group(new Group(options));
  group->forming_over_ = options.transport;
  XLAD_RETURN_IF_ERROR(options.stream->Activate());
  Config config;
  config.blocking = 0;
  const Result result =
      group->library_.ncclCommInitRankConfig(&group->handle_, options.ranks, id, options.rank, &config);
  const std::string what = absl::StrCat("ncclCommInitRankConfig for rank ", options.rank, " of ", options.ranks);
  absl::Status status = group->library_.Check(result, what, nullptr);
  if (status.ok()) status = group->WaitUntil([&] { return group->IsReady(what); });
  group->forming_over_ = nullptr;
  if (status.ok()) return group;
  group->failed_ = true;
  return group->WithReason(status);
}

Group::~Group() {
  if (handle_ == nullptr) return;
  absl::Status status = failed_ ? absl::AbortedError("failed before") : options_.abort->status();
  if (status.ok()) status = options_.stream->Activate();
  if (status.ok()) status = library_.Check(library_.ncclCommFinalize(handle_), "ncclCommFinalize", handle_);
  const int64_t end_ns = RealClock().NowNs() + kFinalizeMs * kNsPerMs;
  if (status.ok()) {
    status = WaitUntil([&]() -> absl::StatusOr<bool> {
      if (RealClock().NowNs() > end_ns) return absl::DeadlineExceededError("ncclCommFinalize");
      return IsReady("ncclCommFinalize");
    });
  }
  if (!status.ok()) {
    Abort();
  } else {
    library_.ncclCommDestroy(std::exchange(handle_, nullptr));
  }
}

void Group::Abort() {
  failed_ = true;
  if (handle_ == nullptr) return;
  options_.stream->Activate().IgnoreError();  // The communicator is released even after a failure of the GPU.
  library_.ncclCommAbort(std::exchange(handle_, nullptr));
}

absl::Status Group::WaitUntil(const std::function<absl::StatusOr<bool>()>& done) {
  absl::StatusOr<bool> reached = false;
  const auto test = [&] {
    reached = done();
    return !reached.ok() || *reached;
  };
  if (!waiter_.Wait(*options_.abort, test)) return options_.abort->status();
  return reached.status();
}

absl::StatusOr<bool> Group::IsReady(const std::string& what) const {
  Result state = kSuccess;
  XLAD_RETURN_IF_ERROR(library_.Check(library_.ncclCommGetAsyncError(handle_, &state), what, handle_));
  XLAD_RETURN_IF_ERROR(library_.Check(state, what, handle_));
  return state == kSuccess;
}

// NCCL reports that a peer is gone, but not which. The connections between the processes also end, and the abort signal
// names the peer.
absl::Status Group::WithReason(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable || options_.abort->raised()) return status;
  const int64_t end_ns = RealClock().NowNs() + options_.reason_ms * kNsPerMs;
  if (waiter_.Wait(*options_.abort, [&] { return RealClock().NowNs() >= end_ns; })) return status;
  const absl::Status reason = options_.abort->status();
  return absl::Status(reason.code(), absl::StrCat(reason.message(), " (", status.message(), ")"));
}

absl::Status Group::Together(const std::string& what, const std::function<Result()>& calls) {
  XLAD_RETURN_IF_ERROR(library_.Check(library_.ncclGroupStart(), what, handle_));
  const Result called = calls();
  const Result ended = library_.ncclGroupEnd();
  XLAD_RETURN_IF_ERROR(library_.Check(called, what, handle_));
  XLAD_RETURN_IF_ERROR(library_.Check(ended, what, handle_));
  return WaitUntil([&] { return IsReady(what); });
}

absl::Status Group::Enqueue(const CollectiveSpec& spec, absl::Span<const std::byte* const> inputs,
                            absl::Span<std::byte* const> outputs) {
  if (failed_) return Ended();
  const auto* const row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                       [&](const KindRow& candidate) { return candidate.kind == spec.kind; });
  XLAD_CHECK(row != std::end(kKinds)) << "NCCL cannot run " << spec.ToString();
  const int rank = options_.rank;
  const std::vector<int64_t> input_counts = InputCounts(spec, rank), output_counts = OutputCounts(spec, rank);
  for (size_t i = 0; spec.kind == CollectiveKind::kCollectivePermute && i < outputs.size(); ++i) {
    if (Receives(spec, rank)) break;
    XLAD_RETURN_IF_ERROR(options_.stream->FillZero(outputs[i], output_counts[i] * tensor::ByteWidth(spec.type)));
  }
  const absl::Status status = Together(std::string(ToString(spec.kind)), [&] {
    Result result = kSuccess;
    for (size_t i = 0; i < inputs.size(); ++i) {
      result = FirstError(result, row->run({library_, spec, rank, handle_, options_.stream->handle(), inputs[i],
                                            outputs[i], input_counts[i], output_counts[i]}));
    }
    return result;
  });
  if (!status.ok()) failed_ = true;
  return WithReason(status);
}

absl::Status Group::Wait(const SideStream::Mark& mark) {
  if (failed_) return options_.abort->raised() ? options_.abort->status() : Ended();
  const absl::Status status = WaitUntil([&]() -> absl::StatusOr<bool> {
    XLAD_ASSIGN_OR_RETURN(const bool reached, mark.IsReached());
    if (!reached) XLAD_RETURN_IF_ERROR(IsReady("an operation").status());
    return reached;
  });
  if (!status.ok()) failed_ = true;
  return WithReason(status);
}

}  // namespace xlad::collectives::nccl
