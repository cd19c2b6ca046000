#include "service/rpc/grpc_calls.h"

#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/net/grpc_peer.h"
#include "proto/health.pb.h"

namespace xlad::service {
namespace {

// The coordinator's service in the current package, and in the package that older workers and clients use.
constexpr absl::string_view kServices[] = {"/xlad.v1.Coordinator/", "/xlad.Coordinator/"};
constexpr absl::string_view kHealthCheck = "grpc.health.v1.Health/Check";

// Ends a call without reading its messages.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// Answers grpc.health.v1.Health/Check for the server. The request, which names a service, is not read.
class HealthCall final : public grpc::ServerGenericBidiReactor {
 public:
  explicit HealthCall(bool serving) {
    grpc::health::v1::HealthCheckResponse health;
    health.set_status(serving ? health.SERVING : health.NOT_SERVING);
    response_ = ToByteBuffer(health);
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer response_;
};

// Whether the calls of this role may occupy all threads, even while clients are slow to take the responses. The workers
// of a cluster may all have the same user, and load a model at the same time.
bool MayOccupyAll(security::Role role) { return role == security::Role::kWorker || role == security::Role::kOwner; }

// Clients repeat a call that ends with Unavailable.
absl::Status TooManyUnread(const security::Caller& caller) {
  return absl::UnavailableError(
      absl::StrCat("found too many responses that user ", UserOf(caller), " has not read; try again in a moment"));
}

absl::Status TooMuchParsed(const security::Caller& caller, int64_t bytes) {
  return absl::UnavailableError(absl::StrCat("found a message that takes ", bytes,
                                             " bytes of memory while other large messages, of user ", UserOf(caller),
                                             " or of all users, are being handled; try again in a moment"));
}

// A call whose handler runs on a pool. It has two owners: gRPC until OnDone, and the handler until it has returned.
class HandlerCall final : public grpc::ServerGenericBidiReactor, public CallStream {
 public:
  HandlerCall(const Method* method, const CallTable* table, CallerAccess access, grpc::CallbackServerContext* context)
      : method_(method),
        key_of_job_(&table->key_of_job),
        access_(std::move(access)),
        context_(context),
        message_limits_(table->message_limits),
        first_(message_limits_->Begin(context)) {
    StartRead(&incoming_);
  }

  // --- Callbacks of gRPC, which must not block.
  void OnReadDone(bool ok) override {
    if (!std::exchange(has_first_, true)) message_limits_->End(first_);
    const std::lock_guard lock(mutex_);
    read_ = ok ? ReadState::kArrived : ReadState::kEnded;
    changed_.notify_all();
    if (!std::exchange(handed_over_, true)) HandOver();
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    gone_ = gone_ || !ok;
    changed_.notify_all();
  }
  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    changed_.notify_all();
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }
  void OnDone() override {
    message_limits_->End(last_);
    message_limits_->Release(UserOf(access_.caller), room_, last_bytes_);
    Release();
  }

  // --- CallStream.
  absl::StatusOr<bool> Read(google::protobuf::Message* message) override {
    std::unique_lock lock(mutex_);
    BeginRead();
    if (read_ == ReadState::kPending) {
      lock.unlock();
      Free(message);
      lock.lock();
    }
    XLAD_RETURN_IF_ERROR(WaitFor(&lock, [this] { return read_ != ReadState::kPending; }));
    if (read_ == ReadState::kEnded) {
      if (gone_ || context_->IsCancelled()) return absl::CancelledError("the client has disconnected");
      return false;
    }
    const grpc::ByteBuffer buffer = std::exchange(incoming_, {});
    read_ = ReadState::kNone;
    if (reads_ahead_) BeginRead();
    lock.unlock();
    XLAD_RETURN_IF_ERROR(access_.CheckToken());
    if (parsed_bytes_ > 0) Free(message);
    const ParseLimits limits{.reserve = [this](int64_t bytes) { return ReserveParsed(bytes); }};
    XLAD_RETURN_IF_ERROR(FromByteBuffer(buffer, method_->max_message_bytes, message, limits));
    return true;
  }

  void ReadAhead() override {
    const std::lock_guard lock(mutex_);
    reads_ahead_ = true;
    BeginRead();
  }

  absl::Status Write(const google::protobuf::MessageLite& message) override {
    XLAD_RETURN_IF_ERROR(access_.CheckToken());
    std::unique_lock lock(mutex_);
    XLAD_RETURN_IF_ERROR(WaitFor(&lock, [this] { return !writing_; }));
    if (held_.has_value()) {
      outgoing_ = *std::move(held_);
      writing_ = true;
      StartWrite(&outgoing_);
    }
    held_ = ToByteBuffer(message);  // The message is sent at the next Write, or together with the status.
    return absl::OkStatus();
  }
  absl::Status CheckClient() override {
    XLAD_RETURN_IF_ERROR(access_.CheckToken());
    const std::lock_guard lock(mutex_);
    return gone_ ? absl::CancelledError("the client has disconnected") : absl::OkStatus();
  }
  void SetOnGone(std::function<void()> on_gone) override {
    const std::lock_guard lock(mutex_);
    on_gone_ = std::move(on_gone);
    if (gone_ && on_gone_) std::exchange(on_gone_, nullptr)();
  }
  const CallerAccess& access() const override { return access_; }
  absl::Status CheckJob(const std::string& job_id) override { return CheckJobOf(access_, *key_of_job_, job_id); }

 private:
  enum class ReadState { kNone, kPending, kArrived, kEnded };

  // Begins to read the next message, unless a read has begun or no message will follow. mutex_ must be held.
  void BeginRead() {
    if (read_ != ReadState::kNone) return;
    read_ = ReadState::kPending;
    StartRead(&incoming_);
  }

  // Frees the memory of the handler's last message, and ends its reservation. Message::Clear would keep the memory, and
  // the next message might fill other fields in addition.
  void Free(google::protobuf::Message* message) {
    std::unique_ptr<google::protobuf::Message> old(message->New());
    message->GetReflection()->Swap(message, old.get());
    old.reset();
    message_limits_->ReleaseParsed(UserOf(access_.caller), std::exchange(parsed_bytes_, 0));
  }
  absl::Status ReserveParsed(int64_t bytes) {
    if (!message_limits_->ReserveParsed(UserOf(access_.caller), bytes)) {
      return TooMuchParsed(access_.caller, bytes);
    }
    parsed_bytes_ = bytes;
    return absl::OkStatus();
  }

  // Called when the first message has arrived, or when the client has ended its messages without sending one.
  void HandOver() {
    const auto run = [this] {
      Run();
      Release();
    };
    if (method_->pool->Run(run, MayOccupyAll(access_.caller.role) ? "" : UserOf(access_.caller))) return;
    Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                        "found too many waiting requests of this kind; try again in a moment"));
    --owners_;  // The handler will not run. OnDone has not been called yet, so the other owner remains.
  }

  void Run() {
    const absl::Status status = method_->handler(this);
    message_limits_->ReleaseParsed(UserOf(access_.caller), parsed_bytes_);
    std::unique_lock lock(mutex_);
    const absl::Status idle = WaitFor(&lock, [this] { return !writing_; });
    if (!status.ok() || !idle.ok() || !held_.has_value()) return Finish(ToGrpcStatus(status.ok() ? idle : status));
    outgoing_ = *std::move(held_);
    last_bytes_ = outgoing_.Length();
    room_ = message_limits_->Reserve(UserOf(access_.caller), MayOccupyAll(access_.caller.role), last_bytes_);
    if (room_ == MessageLimits::Room::kRefused) return Finish(ToGrpcStatus(TooManyUnread(access_.caller)));
    if (room_ == MessageLimits::Room::kReserved) {
      last_ = message_limits_->Begin(context_);
      return StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
    }
    writing_ = true;
    StartWrite(&outgoing_);
    Finish(ToGrpcStatus(WaitFor(&lock, [this] { return !writing_; })));
  }

  template <typename Condition>
  absl::Status WaitFor(std::unique_lock<std::mutex>* lock, const Condition& condition) {
    const bool in_time = changed_.wait_for(*lock, kStallLimit, [&] { return gone_ || condition(); });
    if (condition()) return absl::OkStatus();
    if (in_time) return absl::CancelledError("the client has disconnected");
    gone_ = true;
    context_->TryCancel();
    return absl::DeadlineExceededError(absl::StrCat("the client has stalled for ", kStallLimit.count(), " s"));
  }

  void Release() {
    if (--owners_ == 0) delete this;
  }

  const Method* const method_;
  const KeyOfJob* const key_of_job_;
  const CallerAccess access_;
  grpc::CallbackServerContext* const context_;
  MessageLimits* const message_limits_;
  const int64_t first_;
  bool has_first_ = false;    // Used by OnReadDone only.
  int64_t parsed_bytes_ = 0;  // The reserved memory. Used by the handler's thread only.
  // The last message, if it is sent after the handler has returned. OnDone is called after all three have been set.
  int64_t last_ = MessageLimits::kNone, last_bytes_ = 0;
  MessageLimits::Room room_ = MessageLimits::Room::kRefused;
  std::atomic<int> owners_ = 2;
  std::mutex mutex_;  // Guards all following members.
  std::condition_variable changed_;
  ReadState read_ = ReadState::kPending;
  bool handed_over_ = false;
  bool reads_ahead_ = false;
  bool writing_ = false;
  bool gone_ = false;
  std::function<void()> on_gone_;
  grpc::ByteBuffer incoming_, outgoing_;
  std::optional<grpc::ByteBuffer> held_;
};

// Returns the name of a call in the tables: "SubmitJob" for "/xlad.v1.Coordinator/SubmitJob". A call of another service
// keeps the name of the service: "grpc.health.v1.Health/Check".
std::string NameOf(absl::string_view path) {
  for (const absl::string_view service : kServices) {
    if (absl::ConsumePrefix(&path, service)) return absl::StrContains(path, '/') ? "" : std::string(path);
  }
  return absl::StartsWith(path, "/grpc.") ? std::string(path.substr(1)) : "";
}

}  // namespace

struct HandlerPool::State {
  State(int max_threads, int max_waiting) : max_threads(max_threads), max_waiting(max_waiting) {}

  struct Item {
    std::string user;
    std::function<void()> work;
  };
  struct Share {
    int running = 0, waiting = 0;
  };
  using Queue = std::deque<Item>;

  // The first handler that may run now, or the end of the queue.
  Queue::iterator Next() {
    return std::find_if(queue.begin(), queue.end(), [this](const Item& item) {
      const int own = shares.at(item.user).running;
      return item.user.empty() || own < HalfOf(max_threads - (running - own));
    });
  }

  void Work() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      auto next = queue.end();
      available.wait(lock, [&] { return stopping || (next = Next()) != queue.end(); });
      --idle;
      if (stopping) return;
      const Item item = std::move(*next);
      queue.erase(next);
      Share& share = shares[item.user];
      --share.waiting;
      ++share.running;
      ++running;
      lock.unlock();
      item.work();
      lock.lock();
      --running;
      if (--share.running == 0 && share.waiting == 0) shares.erase(item.user);
    }
  }

  static int HalfOf(int limit) { return std::max(limit / 2, 1); }

  const int max_threads, max_waiting;
  std::mutex mutex;  // Guards all following members.
  std::condition_variable available;
  Queue queue;
  std::map<std::string, Share> shares;  // By user; only users who have handlers.
  std::vector<std::thread> threads;
  int running = 0;  // The number of handlers of all users that run.
  int idle = 0;
  bool stopping = false;
};

HandlerPool::HandlerPool(int max_threads, int max_waiting)
    : state_(std::make_unique<State>(max_threads, max_waiting)) {}

HandlerPool::~HandlerPool() { Stop(); }

bool HandlerPool::Run(std::function<void()> work, const std::string& user) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping || std::ssize(state_->queue) >= state_->max_waiting) return false;
  State::Share& share = state_->shares[user];
  const int others = static_cast<int>(std::ssize(state_->queue)) - share.waiting;
  if (!user.empty() && share.waiting >= State::HalfOf(state_->max_waiting - others)) return false;
  ++share.waiting;
  state_->queue.push_back({user, std::move(work)});
  const bool needs_thread = std::ssize(state_->queue) > state_->idle;
  if (needs_thread && std::ssize(state_->threads) < state_->max_threads) {
    state_->threads.emplace_back([state = state_.get()] { state->Work(); });
  }
  state_->available.notify_one();
  return true;
}

void HandlerPool::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    threads = std::exchange(state_->threads, {});
    state_->available.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  if (!absl::IsUnavailable(status)) return grpc::Status(code, message);
  google::protobuf::UnknownFieldSet details;  // The fields of a google.rpc.Status message.
  details.AddVarint(1, code);
  details.AddLengthDelimited(2, message);
  std::string serialized;
  details.SerializeToString(&serialized);
  return grpc::Status(code, message, serialized);
}

grpc::ServerGenericBidiReactor* NewRefusedCall(const grpc::Status& status) { return new RefusedCall(status); }

const std::string& UserOf(const security::Caller& caller) { return caller.user.empty() ? caller.actor : caller.user; }

grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  grpc_slice raw = grpc_slice_malloc(size);
  message.SerializeWithCachedSizesToArray(GRPC_SLICE_START_PTR(raw));
  const grpc::Slice slice(raw, grpc::Slice::STEAL_REF);
  return grpc::ByteBuffer(&slice, 1);
}

absl::Status FromByteBuffer(const grpc::ByteBuffer& buffer, int64_t max_bytes, google::protobuf::MessageLite* message,
                            const ParseLimits& limits) {
  const int64_t size = buffer.Length();
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a ", message->GetTypeName(), " of ", size, " bytes, expected at most ", max_bytes));
  }
  grpc::Slice slice;
  if (size > 0 && !buffer.DumpToSingleSlice(&slice).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", size, " bytes that cannot be read as a ", message->GetTypeName()));
  }
  return ParseBounded({reinterpret_cast<const char*>(slice.begin()), slice.size()}, limits, message);
}

absl::Status CheckJobOf(const CallerAccess& access, const KeyOfJob& key_of_job, const std::string& job_id) {
  if (!access.own_only) return absl::OkStatus();
  const absl::StatusOr<std::string> key = key_of_job(job_id);
  if (!key.ok() && !absl::IsNotFound(key.status())) return key.status();
  return CheckOwner(access, job_id, key.value_or(""));
}

absl::StatusOr<CallerAccess> CallRouter::Admit(const grpc::GenericCallbackServerContext& context,
                                               const std::string& name) const {
  AccessControl* const control = control_;
  if (control == nullptr) return absl::UnavailableError("the coordinator is starting");
  std::vector<std::string> bearers;
  const auto range = context.client_metadata().equal_range("authorization");
  for (auto it = range.first; it != range.second; ++it) {
    absl::string_view value(it->second.data(), it->second.size());
    if (absl::ConsumePrefix(&value, "Bearer ")) bearers.emplace_back(value);
  }
  XLAD_ASSIGN_OR_RETURN(const security::Caller caller, control->Identify(PeerAddress(context.peer()), bearers));
  if (name == kHealthCheck || name.empty()) return CallerAccess{caller};
  XLAD_ASSIGN_OR_RETURN(CallerAccess access, Authorize(caller, name));
  access.control = control;
  return access;
}

grpc::ServerGenericBidiReactor* CallRouter::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const std::string& path = context->method();  // "/xlad.v1.Coordinator/SubmitJob"
  const std::string name = NameOf(path);
  const auto method = table_.methods.find(name);
  const auto reactor = table_.reactors.find(name);
  const bool exists = method != table_.methods.end() || reactor != table_.reactors.end();
  // An unauthenticated client gets the same error for calls that exist and calls that do not.
  absl::StatusOr<CallerAccess> access = Admit(*context, exists ? name : "");
  if (!access.ok() && name == kHealthCheck) return new HealthCall(table_.is_serving());
  if (!access.ok()) return new RefusedCall(ToGrpcStatus(access.status()));
  if (!exists) {
    return new RefusedCall(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                                        absl::StrCat("found call ", path, ", which this coordinator does not have")));
  }
  on_authenticated_(PeerAddress(context->peer()), UserOf(access->caller));
  if (reactor != table_.reactors.end()) return reactor->second(context, *access);
  return new HandlerCall(&method->second, &table_, *std::move(access), context);
}

}  // namespace xlad::service
