#include "tests/nccl_double/nccl_double.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "tests/nccl_double/hub.h"
#include "tests/nccl_double/reduce.h"

namespace xlad::nccl_double {
namespace {

using namespace collectives::nccl;
using runtime::cuda::DevicePointer;
using runtime::cuda::HostFunction;
using CudaStream = runtime::cuda::StreamHandle;

// The functions of the driver that this process uses.
struct DriverFunctions {
  int (*to_host)(void*, DevicePointer, size_t, CudaStream) = nullptr;
  int (*to_device)(DevicePointer, const void*, size_t, CudaStream) = nullptr;
  int (*call_host)(CudaStream, HostFunction, void*) = nullptr;
};

const DriverFunctions& Driver() {
  static const DriverFunctions functions = [] {
    const char* const name = std::getenv("XLAD_CUDA_DRIVER");
    void* const library = dlopen(name != nullptr && *name != '\0' ? name : "libcuda.so.1", RTLD_NOW);
    DriverFunctions found;
    if (library == nullptr) std::abort();
    found.to_host = reinterpret_cast<decltype(found.to_host)>(dlsym(library, "cuMemcpyDtoHAsync_v2"));
    found.to_device = reinterpret_cast<decltype(found.to_device)>(dlsym(library, "cuMemcpyHtoDAsync_v2"));
    found.call_host = reinterpret_cast<decltype(found.call_host)>(dlsym(library, "cuLaunchHostFunc"));
    return found;
  }();
  return functions;
}

Settings ReadNcclSettings(const std::string& text) {
  Settings settings;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) continue;
    std::istringstream value(item.substr(equals + 1));
    std::vector<std::string> parts;
    for (std::string part; std::getline(value, part, ':');) parts.push_back(part);
    const std::string key = item.substr(0, equals);
    if (key == "version") settings.version = std::stoi(parts[0]);
    if (key == "silent") settings.silent = parts[0] == "1";
    if (key == "stop") {
      settings.stop_code = std::stoi(parts[0]);
      settings.stop_after = std::stoi(parts[1]);
    }
    if (key == "fail") {
      settings.failures[parts[0]] = {std::stoi(parts[1]), parts.size() > 2 ? std::stoi(parts[2]) : 0};
    }
  }
  return settings;
}

// The properties of a message on which both of its ends must agree.
struct Tag {
  int kind = 0, type = 0, op = 0, root = 0;
  uint64_t count = 0;
};

Tag TagOf(const Call& call) {
  const bool is_message = call.kind == Kind::kSend || call.kind == Kind::kReceive;
  return {is_message ? -1 : static_cast<int>(call.kind), call.type, call.op, is_message ? 0 : call.root, call.count};
}

bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a), begin_b = reinterpret_cast<uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && begin_a < begin_b + b_bytes && begin_b < begin_a + a_bytes;
}

// The bytes that a rank sends and receives in a call.
struct Sizes {
  size_t in = 0, out = 0;
  ptrdiff_t in_place = 0;  // The offset of the input in the output if the call is in place, in bytes.
};

Sizes SizesOf(const Call& call, int rank, int ranks) {
  const size_t bytes = call.count * BytesOf(call.type), n = static_cast<size_t>(ranks);
  const auto own = static_cast<ptrdiff_t>(static_cast<size_t>(rank) * bytes);
  switch (call.kind) {
    case Kind::kAllReduce:
      return {bytes, bytes, 0};
    case Kind::kReduceScatter:
      return {bytes * n, bytes, -own};
    case Kind::kAllGather:
      return {bytes, bytes * n, own};
    case Kind::kBroadcast:
      return {rank == call.root ? bytes : 0, bytes, 0};
    case Kind::kReduce:
      return {bytes, rank == call.root ? bytes : 0, 0};
    case Kind::kSend:
      return {bytes, 0, 0};
    case Kind::kReceive:
      return {0, bytes, 0};
  }
  return {};
}

}  // namespace

NcclDouble& NcclDouble::Get() {
  static auto* const instance = new NcclDouble;
  return *instance;
}

NcclDouble::NcclDouble() {
  const char* const text = std::getenv("XLAD_NCCL_DOUBLE");
  Configure(text != nullptr ? text : "");
}

void NcclDouble::Configure(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  settings_ = ReadNcclSettings(text);
}

Settings NcclDouble::settings() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return settings_;
}

Result NcclDouble::Enter(const std::string& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto failure = settings_.failures.find(function);
  return failure != settings_.failures.end() && failure->second.calls-- <= 0 ? failure->second.code : kSuccess;
}

// The buffers of one group in host memory. The last function that the group enqueues on its stream deletes them.
struct Communicator::Work {
  std::shared_ptr<Communicator> communicator;
  std::vector<Call> calls;
  std::vector<Bytes> in, out;
};

Communicator::~Communicator() { close(file_); }

Result Communicator::Poll() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != kSuccess) return error_;
  if (!connected_) {
    pollfd file{file_, POLLIN, 0};
    if (poll(&file, 1, 0) == 0) return kInProgress;
    char answer = 0;
    if (!ReadAll(file_, &answer, 1)) return NcclDouble::Get().settings().silent ? kInProgress : error_ = kRemoteError;
    if (answer != kReady) return error_ = kInvalidUsage;
    connected_ = true;
  }
  return polls_-- > 0 ? kInProgress : kSuccess;
}

std::string Communicator::last_error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

Result Communicator::Refuse(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = text;
  return kInvalidArgument;
}

Result Communicator::CheckArguments(const std::vector<Call>& calls) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (error_ != kSuccess) return error_;
    if (!connected_ || polls_ > 0) {
      last_error_ = "the communicator was not polled until it was ready";
      return kInvalidArgument;
    }
  }
  for (const Call& call : calls) {
    if (BytesOf(call.type) == 0) return Refuse("no such type");
    if (call.op < kSum || call.op > kAverage) return Refuse("no such reduction");
    if (call.root < 0 || call.root >= ranks_) return Refuse("no such rank");
    const Sizes sizes = SizesOf(call, rank_, ranks_);
    const bool in_place = call.send == static_cast<const std::byte*>(call.receive) + sizes.in_place;
    if (!in_place && Overlap(call.send, sizes.in, call.receive, sizes.out)) return Refuse("buffers overlap");
    for (const Call& other : calls) {
      const bool checked = call.kind == Kind::kSend && other.kind == Kind::kReceive;
      if (checked && Overlap(call.send, sizes.in, other.receive, SizesOf(other, rank_, ranks_).out)) {
        return Refuse("a message is received in memory that is sent");
      }
    }
  }
  return kSuccess;
}

Result Communicator::Enqueue(const std::vector<Call>& calls, StreamHandle stream) {
  if (const Result wrong = CheckArguments(calls); wrong != kSuccess) return wrong;
  auto* const work = new Work{shared_from_this(), calls, {}, {}};
  auto* const queue = static_cast<CudaStream>(stream);
  const auto check = [this](int result) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (result != 0 && error_ == kSuccess) error_ = kUnhandledCudaError;
  };
  for (const Call& call : calls) {
    const Sizes sizes = SizesOf(call, rank_, ranks_);
    work->in.emplace_back(sizes.in);
    work->out.emplace_back(sizes.out);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    if (work->in[i].empty()) continue;
    const auto from = reinterpret_cast<DevicePointer>(calls[i].send);
    check(Driver().to_host(work->in[i].data(), from, work->in[i].size(), queue));
  }
  check(Driver().call_host(
      queue,
      [](void* argument) {
        auto* const running = static_cast<Work*>(argument);
        running->communicator->Run(running);
      },
      work));
  for (size_t i = 0; i < calls.size(); ++i) {
    if (work->out[i].empty()) continue;
    const auto to = reinterpret_cast<DevicePointer>(calls[i].receive);
    check(Driver().to_device(to, work->out[i].data(), work->out[i].size(), queue));
  }
  check(Driver().call_host(queue, [](void* argument) { delete static_cast<Work*>(argument); }, work));
  const std::lock_guard<std::mutex> lock(mutex_);
  polls_ = 1;
  return error_ == kSuccess ? kInProgress : error_;
}

void Communicator::Run(Work* work) {
  const Settings settings = NcclDouble::Get().settings();
  if (settings.stop_after >= 0 && groups_ >= settings.stop_after) {
    Stop(settings.stop_code, "stopped by a setting");
    return;
  }
  ++groups_;
  for (size_t i = 0; i < work->calls.size(); ++i) {
    if (!SendAll(work->calls[i], work->in[i])) return;
  }
  for (size_t i = 0; i < work->calls.size(); ++i) {
    Bytes result;
    if (!ReceiveAll(work->calls[i], &result)) return;
    // The stream copies from this memory, so it must not be replaced.
    if (!result.empty()) std::memcpy(work->out[i].data(), result.data(), std::min(result.size(), work->out[i].size()));
  }
}

bool Communicator::Stop(Result code, const std::string& text) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (code != kSuccess && error_ == kSuccess && !aborted_) {
    error_ = code;
    last_error_ = text;
  }
  changed_.wait(lock, [this] { return aborted_; });
  return false;
}

bool Communicator::SendTo(int peer, const Call& call, const std::byte* data, size_t bytes) {
  const Tag tag = TagOf(call);
  Bytes message(sizeof tag + bytes);
  std::memcpy(message.data(), &tag, sizeof tag);
  if (bytes > 0) std::memcpy(message.data() + sizeof tag, data, bytes);
  if (peer == rank_) {
    arrived_[peer].push_back(std::move(message));
    return true;
  }
  const FrameHeader header{static_cast<uint32_t>(peer), 0, message.size()};
  if (WriteAll(file_, &header, sizeof header) && WriteAll(file_, message.data(), message.size())) return true;
  return Stop(NcclDouble::Get().settings().silent ? kSuccess : kRemoteError, "a peer has ended its connection");
}

bool Communicator::ReceiveFrom(int peer, const Call& call, Bytes* out) {
  std::deque<Bytes>& arrived = arrived_[peer];
  while (arrived.empty()) {
    FrameHeader header;
    bool has_arrived = ReadAll(file_, &header, sizeof header);
    Bytes message(has_arrived ? header.bytes : 0);
    has_arrived = has_arrived && ReadAll(file_, message.data(), message.size());
    if (!has_arrived) {
      return Stop(NcclDouble::Get().settings().silent ? kSuccess : kRemoteError, "a peer has ended its connection");
    }
    arrived_[static_cast<int>(header.peer)].push_back(std::move(message));
  }
  const Bytes message = std::move(arrived.front());
  arrived.pop_front();
  const Tag expected = TagOf(call);
  if (std::memcmp(message.data(), &expected, sizeof expected) != 0) {
    return Stop(kInvalidUsage, "two ranks run different operations");
  }
  out->assign(message.begin() + sizeof expected, message.end());
  return true;
}

bool Communicator::SendAll(const Call& call, const Bytes& in) {
  const size_t part = call.count * BytesOf(call.type);
  if (call.kind == Kind::kSend) return SendTo(call.root, call, in.data(), in.size());
  if (call.kind == Kind::kReceive) return true;
  if (call.kind == Kind::kBroadcast && rank_ != call.root) return true;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (call.kind == Kind::kReduce && peer != call.root) continue;
    const bool in_parts = call.kind == Kind::kReduceScatter;
    const std::byte* const data = in.data() + (in_parts ? static_cast<size_t>(peer) * part : 0);
    if (!SendTo(peer, call, data, in_parts ? part : in.size())) return false;
  }
  return true;
}

bool Communicator::ReceiveAll(const Call& call, Bytes* out) {
  if (call.kind == Kind::kSend || (call.kind == Kind::kReduce && rank_ != call.root)) return true;
  if (call.kind == Kind::kReceive || call.kind == Kind::kBroadcast) return ReceiveFrom(call.root, call, out);
  std::vector<Bytes> contributions(static_cast<size_t>(ranks_));
  for (int peer = 0; peer < ranks_; ++peer) {
    if (!ReceiveFrom(peer, call, &contributions[static_cast<size_t>(peer)])) return false;
  }
  if (call.kind != Kind::kAllGather) {
    *out = Reduced(contributions, call.type, call.op);
    return true;
  }
  for (const Bytes& part : contributions) out->insert(out->end(), part.begin(), part.end());
  return true;
}

Result Communicator::Finalize() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != kSuccess) return error_;
  finalized_ = true;
  polls_ = 1;
  return kInProgress;
}

void Communicator::Destroy() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const FrameHeader farewell{kFarewell, 0, 0};
    if (finalized_ && error_ == kSuccess) WriteAll(file_, &farewell, sizeof farewell);
  }
  Abort();
}

void Communicator::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  shutdown(file_, SHUT_RDWR);
  changed_.notify_all();
}

}  // namespace xlad::nccl_double
