#include "service/rpc/grpc_streams.h"

#include <chrono>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "service/rpc/grpc_calls.h"
#include "service/rpc/validate.h"

namespace xlad::service {
namespace {

constexpr int64_t kMaxWorkerMessageBytes = 16 << 20;
// A parsed piece of a shard takes up to 20 times its serialized bytes. One message is parsed at a time.
constexpr int64_t kMaxParsedWorkerBytes = 20 * kMaxWorkerMessageBytes;
constexpr int64_t kMaxHeartbeatBytes = 4096;  // A larger message is parsed on the queue's thread.
// The limit per worker. A worker that does not read its messages is disconnected.
constexpr int64_t kMaxQueuedBytes = 64 << 20;
constexpr std::chrono::milliseconds kMinPassInterval{5};
// A pass is made at least this often, because the reason why a job waits can change without an event of the job.
constexpr std::chrono::milliseconds kMaxPassInterval{1000};

// Returns the bytes of `common`, without copying them, followed by those of `own`.
grpc::ByteBuffer Joined(std::shared_ptr<const std::string> common, const grpc::ByteBuffer& own) {
  auto* const hold = new std::shared_ptr<const std::string>(std::move(common));
  const auto release = [](void* held) { delete static_cast<std::shared_ptr<const std::string>*>(held); };
  std::vector<grpc::Slice> slices = {grpc::Slice(const_cast<char*>((*hold)->data()), (*hold)->size(), release, hold)};
  std::vector<grpc::Slice> rest;
  XLAD_CHECK(own.Dump(&rest).ok());
  slices.insert(slices.end(), rest.begin(), rest.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

class WorkerStream final : public grpc::ServerGenericBidiReactor, public Outbox {
 public:
  WorkerStream(Engine* engine, SerialQueue* queue, MessageLimits* message_limits, grpc::CallbackServerContext* context,
               const CallerAccess& access)
      : engine_(engine), queue_(queue), context_(context), user_(access.caller.user), message_limits_(message_limits) {
    queue_->Push([this] {
      connection_ = engine_->Attach(this);
      Read();
    });
    if (access.control == nullptr) return;
    watched_ = access.control->Watch(access.caller, [this](const absl::Status& why) { Refuse(why); });
  }

  // --- Outbox, called with the engine's lock held.
  void Send(const CoordinatorMessage& message, std::shared_ptr<const std::string> common) override {
    const std::lock_guard lock(mutex_);
    if (closing_ || ending_) return;
    grpc::ByteBuffer bytes = ToByteBuffer(message);
    if (common != nullptr) bytes = Joined(std::move(common), bytes);
    waiting_bytes_ += bytes.Length();
    waiting_.push_back(std::move(bytes));
    if (waiting_bytes_ > kMaxQueuedBytes) context_->TryCancel();
    WriteNext();
  }
  // A worker that does not read its messages keeps the stream until the time limit of the message that is being sent.
  void Close() override {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    WriteNext();
  }

  // --- Callbacks of gRPC.
  void OnReadDone(bool ok) override {
    message_limits_->End(reading_);
    if (ok && TakeQuickly()) return;
    const std::lock_guard lock(mutex_);
    if (ok && !ending_) queue_->Push([this] { Handle(); });
    if (!ok) End(grpc::Status::OK);
  }
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    message_limits_->End(*std::exchange(writing_, std::nullopt));
    if (!ok) waiting_.clear();
    WriteNext();
  }
  void OnDone() override { delete this; }

 private:
  // Handles the message on gRPC's thread if it is a heartbeat or a clock probe, and returns whether it did. A switch to
  // another thread would cost more than a heartbeat, and a delay would make the answer to a clock probe less exact.
  bool TakeQuickly() {
    const int64_t received_unix_ns = RealClock().WallNs();
    WorkerMessage message;
    const bool is_read = incoming_.Length() <= kMaxHeartbeatBytes &&
                         FromByteBuffer(incoming_, kMaxHeartbeatBytes, &message).ok() && Validate(message).ok();
    if (!is_read) return false;
    if (message.has_clock_probe()) {
      CoordinatorMessage answer;
      answer.mutable_clock()->set_sent_ns(message.clock_probe().sent_ns());
      answer.mutable_clock()->set_received_unix_ns(received_unix_ns);
      answer.mutable_clock()->set_answered_unix_ns(RealClock().WallNs());
      Send(answer, nullptr);
    } else if (!message.has_heartbeat() || !engine_->OnHeartbeat(connection_, message)) {
      return false;
    }
    incoming_.Clear();
    const std::lock_guard lock(mutex_);
    if (!ending_) Read();
    return true;
  }

  // Ends the stream because the worker's token has become invalid. Messages that have been read are still handled.
  void Refuse(const absl::Status& why) {
    LogWarn("the connection of a worker is ended", {{"peer", context_->peer()}, {"why", std::string(why.message())}});
    const std::lock_guard lock(mutex_);
    End(ToGrpcStatus(why));
  }

  void Handle() {
    WorkerMessage message;
    absl::Status status = FromByteBuffer(std::exchange(incoming_, {}), kMaxWorkerMessageBytes, &message,
                                         {.max_parsed_bytes = kMaxParsedWorkerBytes});
    if (status.ok()) status = Validate(message);
    if (!status.ok()) {
      LogWarn("a worker's message was refused", {{"peer", context_->peer()}, {"error", std::string(status.message())}});
      const std::lock_guard lock(mutex_);
      End(ToGrpcStatus(status));
      return;
    }
    if (message.has_register_()) message.mutable_register_()->set_user(user_);
    engine_->OnMessage(connection_, message);
    Read();
  }

  // A worker sends a heartbeat more often than the limit permits.
  void Read() {
    reading_ = message_limits_->Begin(context_);
    StartRead(&incoming_);
  }

  // The first call ends the stream, after all work that this stream has in the queue. No work is queued afterwards,
  // because gRPC may delete this object as soon as it has finished. mutex_ must be held.
  void End(const grpc::Status& status) {
    if (std::exchange(ending_, true)) return;
    waiting_.clear();
    queue_->Push([this, status] {
      const bool has_reason = !status.ok() && status.error_code() != grpc::StatusCode::CANCELLED;
      // Afterwards the engine does not send to this stream.
      engine_->Detach(connection_, has_reason ? status.error_message() : "");
      Finish(status);  // The call may delete this object.
    });
  }

  // Writes the next message, or ends the stream if it is closing and all messages are written. mutex_ must be held.
  void WriteNext() {
    if (writing_.has_value() || ending_) return;
    if (waiting_.empty()) {
      if (closing_) End(grpc::Status(grpc::StatusCode::CANCELLED, "the coordinator has closed the connection"));
      return;
    }
    outgoing_ = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= outgoing_.Length();
    writing_ = message_limits_->Begin(context_);
    StartWrite(&outgoing_);
  }

  Engine* const engine_;
  SerialQueue* const queue_;
  grpc::CallbackServerContext* const context_;
  const std::string user_;  // The user of the worker's token.
  MessageLimits* const message_limits_;
  int64_t reading_ = 0;  // The number of the message that is being read. At most one read is in progress.
  ConnectionId connection_;
  grpc::ByteBuffer incoming_;
  std::mutex mutex_;  // Guards the following members except the last.
  std::deque<grpc::ByteBuffer> waiting_;
  int64_t waiting_bytes_ = 0;
  grpc::ByteBuffer outgoing_;
  std::optional<int64_t> writing_;                   // The number of the message that is being written.
  bool closing_ = false;                             // Whether the engine has closed the stream.
  bool ending_ = false;                              // Whether the end of the stream is queued.
  std::unique_ptr<AccessControl::Watched> watched_;  // Must be destroyed first, because it calls Refuse.
};

}  // namespace

grpc::ServerGenericBidiReactor* MakeWorkerStream(Engine* engine, SerialQueue* queue, MessageLimits* message_limits,
                                                 grpc::CallbackServerContext* context, const CallerAccess& access) {
  return new WorkerStream(engine, queue, message_limits, context, access);
}

// Only the followers' thread makes updates and ends streams; gRPC's threads only wake it.
class Followers::Stream final : public grpc::ServerGenericBidiReactor {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<Follower>>(const grpc::ByteBuffer& request)>;
  Stream(Followers* owner, grpc::CallbackServerContext* context, std::string user, Open open)
      : owner_(owner),
        context_(context),
        user_(std::move(user)),
        message_(owner->message_limits_->Begin(context)),
        open_(std::move(open)) {
    StartRead(&request_);
  }
  void Watch(const CallerAccess& access) {
    if (access.control == nullptr) return;
    watched_ = access.control->Watch(access.caller, [this](const absl::Status& why) { Refuse(why); });
  }

  void OnReadDone(bool ok) override {
    owner_->message_limits_->End(message_);
    // If the stream was canceled while the request was read, the state is kGone and stays unchanged.
    State reading = State::kReading;
    state_.compare_exchange_strong(reading, ok ? State::kOpening : State::kGone);
    owner_->Wake(this);
  }
  void OnWriteDone(bool ok) override {
    owner_->message_limits_->End(message_);
    State writing = State::kWriting;
    state_.compare_exchange_strong(writing, ok ? State::kIdle : State::kGone);
    owner_->Wake(this);
  }
  void OnCancel() override {
    state_ = State::kGone;
    owner_->Wake(this);
  }
  void OnDone() override {
    owner_->message_limits_->End(message_);
    watched_.reset();  // Before the lock is taken, because Refuse takes it, too.
    // The followers' thread may be using this object, so that thread deletes it.
    const std::lock_guard lock(owner_->mutex_);
    owner_->streams_.erase(this);
    const auto count = owner_->of_user_.find(user_);
    if (--count->second == 0) owner_->of_user_.erase(count);
    owner_->due_.erase(this);
    owner_->done_.push_back(this);
    owner_->woken_.notify_one();
  }

  // Sends the next update if there is one and the previous one has been sent.
  void Advance() {
    if (finished_) return;
    if (state_ == State::kWriting) {
      if (is_refused_) context_->TryCancel();  // The client may never read the message.
      return;
    }
    if (is_refused_) return End(ToGrpcStatus(refused_));
    if (state_ == State::kReading) return;
    if (state_ == State::kGone) return End(grpc::Status::CANCELLED);
    if (follower_ == nullptr) {
      auto follower = open_(request_);
      if (!follower.ok()) return End(ToGrpcStatus(follower.status()));
      follower_ = *std::move(follower);
      State opening = State::kOpening;
      state_.compare_exchange_strong(opening, State::kIdle);
    }
    absl::StatusOr<Update> update = follower_->Next();
    if (!update.ok()) return End(ToGrpcStatus(update.status()));
    if (update->message.has_value() && !update->last) {
      outgoing_ = *std::move(update->message);
      State idle = State::kIdle;
      if (!state_.compare_exchange_strong(idle, State::kWriting)) return;
      message_ = owner_->message_limits_->Begin(context_);
      StartWrite(&outgoing_);
    } else if (update->message.has_value()) {
      outgoing_ = *std::move(update->message);
      finished_ = true;
      follower_.reset();
      message_ = owner_->message_limits_->Begin(context_);
      StartWriteAndFinish(&outgoing_, grpc::WriteOptions(), grpc::Status::OK);
    } else if (update->last) {
      End(grpc::Status::OK);
    }
  }

 private:
  enum class State { kReading, kOpening, kIdle, kWriting, kGone };

  void Refuse(const absl::Status& why) {
    LogWarn("the stream of a client is ended", {{"peer", context_->peer()}, {"why", std::string(why.message())}});
    refused_ = why;
    is_refused_ = true;
    owner_->Wake(this);
  }

  void End(const grpc::Status& status) {
    finished_ = true;
    follower_.reset();
    Finish(status);
  }

  Followers* const owner_;
  grpc::CallbackServerContext* const context_;
  const std::string user_;
  int64_t message_;  // The number of the message that is being read or written.
  const Open open_;
  std::atomic<State> state_ = State::kReading;
  grpc::ByteBuffer request_, outgoing_;
  std::unique_ptr<Follower> follower_;  // This and `finished_` are used only by the followers' thread.
  bool finished_ = false;
  absl::Status refused_;  // Valid if is_refused_ is set.
  std::atomic<bool> is_refused_ = false;
  std::unique_ptr<AccessControl::Watched> watched_;
};

Followers::Followers(MessageLimits* message_limits) : message_limits_(message_limits), thread_([this] { Run(); }) {}

Followers::~Followers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    woken_.notify_all();
  }
  thread_.join();
  for (Stream* stream : done_) delete stream;
}

void Followers::OnChange() {
  const std::lock_guard lock(mutex_);
  changed_ = true;
  woken_.notify_one();
}

void Followers::Wake(Stream* stream) {
  const std::lock_guard lock(mutex_);
  if (!streams_.contains(stream)) return;
  due_.insert(stream);
  woken_.notify_one();
}

grpc::ServerGenericBidiReactor* Followers::MakeStream(
    grpc::CallbackServerContext* context, const CallerAccess& access,
    std::function<absl::StatusOr<std::unique_ptr<Follower>>(const grpc::ByteBuffer& request)> open) {
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const std::string& user = UserOf(access.caller);
    int& count = of_user_[user];
    if (count >= kMaxOfUser) {
      return NewRefusedCall(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                         absl::StrCat("found ", count, " open calls of ", user,
                                                      " that follow a job or the coordinator's health, or hold ",
                                                      "or await a session, expected fewer: end some of them")));
    }
    ++count;
    stream = new Stream(this, context, user, std::move(open));
    streams_.insert(stream);
  }
  stream->Watch(access);
  return stream;
}

void Followers::Run() {
  std::unique_lock lock(mutex_);
  auto last_pass = std::chrono::steady_clock::now();
  while (true) {
    const bool woken = woken_.wait_for(lock, kMaxPassInterval,
                                       [this] { return stopping_ || changed_ || !due_.empty() || !done_.empty(); });
    if (stopping_) return;
    changed_ = changed_ || !woken;
    for (Stream* stream : std::exchange(done_, {})) delete stream;
    if (std::exchange(changed_, false)) {  // Changes in quick succession are handled in one pass.
      woken_.wait_until(lock, last_pass + kMinPassInterval, [this] { return stopping_; });
      last_pass = std::chrono::steady_clock::now();
      due_ = streams_;
      changed_ = false;
    }
    while (!due_.empty() && !stopping_) {
      Stream* stream = *due_.begin();
      due_.erase(due_.begin());
      lock.unlock();
      stream->Advance();
      lock.lock();
    }
  }
}

}  // namespace xlad::service
