#include "worker/grpc_attachment.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/net/grpc_channel.h"
#include "base/random.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {
namespace {

constexpr int64_t kPauseMs = 100;       // The maximum pause between two tries to connect; shortened at random.
constexpr int64_t kMinConnectMs = 200;   // The time limit of the first try. It doubles with each further try.
constexpr int64_t kMaxConnectMs = 1000;  // The maximum time limit of a try.
constexpr int64_t kSliceMs = 50;         // How often a try checks whether the attachment ends.
// The number of clock probes after the registration. Each is sent when the previous one has been answered.
constexpr int kProbesAtOnce = 8;
constexpr int64_t kProbePeriodMs = 2000;
constexpr std::chrono::milliseconds kFlushFor{500};
// The time limit for the stream's status after the last message.
constexpr std::chrono::milliseconds kStatusWithin{300};

// Whether the same call would fail again.
bool IsFinal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
         status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
}

// One stream. A thread writes the queued messages; the owner reads.
class AttachStream {
 public:
  AttachStream(Coordinator::Stub* stub, const std::string& token, const Clock* clock) : clock_(*clock) {
    PrepareCall(&context_, token, /*timeout_ms=*/0);
    stream_ = stub->Attach(&context_);
    writer_ = std::thread([this] { WriteLoop(); });
  }

  // Reads until the stream ends.
  grpc::Status Read(const std::function<void(Event)>& emit) {
    CoordinatorMessage message;
    while (stream_->Read(&message)) {
      if (message.has_clock()) {
        emit(ClockSampled{SampleOf(message.clock())});
      } else {
        if (message.has_registered() && message.registered().answers_clock()) Probe(kProbesAtOnce);
        emit(std::exchange(message, {}));
      }
    }
    SetState(State::kEnding);
    const grpc::Status status = stream_->Finish();
    SetState(State::kEnded);
    writer_.join();
    return status;
  }

  void Send(const WorkerMessage& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(message);
    changed_.notify_all();
  }

  void ProbeIfDue() {
    const int64_t probed_ns = probed_ns_;
    if (probed_ns != 0 && clock_.NowNs() - probed_ns >= kProbePeriodMs * kNsPerMs) Probe(1);
  }

  void Flush() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kFlushFor, [this] { return state_ != State::kOpen || (queue_.empty() && !writing_); });
  }

  void Cancel() { context_.TryCancel(); }

 private:
  enum class State { kOpen, kEnding, kEnded };

  // Starts `probes` clock exchanges, one after the other.
  void Probe(int probes) {
    probed_ns_ = clock_.NowNs();
    probes_left_ = probes;
    WorkerMessage message;
    message.mutable_clock_probe();
    Send(message);
  }

  // The clock offset from the four times of an exchange, as in NTP (RFC 5905, section 8).
  ClockSample SampleOf(const ClockAnswer& answer) {
    const int64_t received_ns = clock_.NowNs();
    ClockSample sample;
    sample.set_local_ns(received_ns);
    sample.set_offset_ns((answer.received_unix_ns() - answer.sent_ns()) / 2 +
                         (answer.answered_unix_ns() - received_ns) / 2);
    sample.set_round_trip_ns((received_ns - answer.sent_ns()) -
                             (answer.answered_unix_ns() - answer.received_unix_ns()));
    const int left = probes_left_ - 1;
    if (left > 0) Probe(left);
    return sample;
  }

  void SetState(State state) {
    std::lock_guard<std::mutex> lock(mutex_);
    state_ = state;
    changed_.notify_all();
  }

  void WriteLoop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (state_ == State::kOpen) {
      changed_.wait(lock, [this] { return state_ != State::kOpen || !queue_.empty(); });
      if (state_ != State::kOpen) break;
      WorkerMessage message = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      lock.unlock();
      if (message.has_clock_probe()) message.mutable_clock_probe()->set_sent_ns(clock_.NowNs());
      const bool written = stream_->Write(message);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
      if (!written) break;  // The reader is notified of the end as well.
    }
    changed_.wait(lock, [this] { return state_ != State::kOpen; });
    // gRPC never returns the status of a stream if its last message could not be read.
    if (!changed_.wait_for(lock, kStatusWithin, [this] { return state_ == State::kEnded; })) context_.TryCancel();
  }

  const Clock& clock_;
  std::atomic<int64_t> probed_ns_ = 0;  // The time at which the last probe was queued; 0 before the first one.
  std::atomic<int> probes_left_ = 0;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<WorkerMessage, CoordinatorMessage>> stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WorkerMessage> queue_;
  bool writing_ = false;
  State state_ = State::kOpen;
  std::thread writer_;
};

class GrpcAttachment final : public Attachment {
 public:
  GrpcAttachment(Endpoint coordinator, std::shared_ptr<TokenFile> token, const Clock* clock,
                 std::function<void(Event)> emit, std::function<void(const absl::Status&)> refused)
      : coordinator_(std::move(coordinator)),
        token_(std::move(token)),
        clock_(clock),
        emit_(std::move(emit)),
        refused_(std::move(refused)),
        random_(SystemRandom()) {
    thread_ = std::thread([this] { Run(); });
  }

  ~GrpcAttachment() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      if (current_ != nullptr) current_->Cancel();
      changed_.notify_all();
    }
    thread_.join();
  }

  void Send(const WorkerMessage& message) override {
    if (const std::shared_ptr<AttachStream> stream = Current()) stream->Send(message);
  }

  void ProbeClock() override {
    if (const std::shared_ptr<AttachStream> stream = Current()) stream->ProbeIfDue();
  }

  void Flush() override {
    if (const std::shared_ptr<AttachStream> stream = Current()) stream->Flush();
  }

 private:
  std::shared_ptr<AttachStream> Current() {
    std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }

  bool ending() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ending_;
  }

  // Returns a connected channel, or null if the connection was refused or was not established in time.
  std::shared_ptr<grpc::Channel> Connect(int64_t timeout_ms) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = MakeChannel(coordinator_);
    if (!channel.ok()) return nullptr;  // The authority's file may be in the middle of a replacement.
    for (int64_t waited_ms = 0; waited_ms < timeout_ms && !ending(); waited_ms += kSliceMs) {
      const auto deadline = std::chrono::system_clock::now() + std::chrono::milliseconds(kSliceMs);
      if ((*channel)->WaitForConnected(deadline)) return *channel;
      if ((*channel)->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE) return nullptr;
    }
    return nullptr;
  }

  // Returns false if the attachment ends.
  bool Pause() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t pause_ms = kPauseMs / 2 + random_->Below(kPauseMs / 2);
    return !changed_.wait_for(lock, std::chrono::milliseconds(pause_ms), [this] { return ending_; });
  }

  // One stream, from its start to its end.
  grpc::Status Attach(const std::shared_ptr<grpc::Channel>& channel, const std::string& token, bool* has_received) {
    const std::unique_ptr<Coordinator::Stub> stub = Coordinator::NewStub(channel);
    auto stream = std::make_shared<AttachStream>(stub.get(), token, clock_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (ending_) stream->Cancel();
      current_ = stream;
    }
    emit_(Connected{});
    const grpc::Status status = stream->Read([&](Event event) {
      *has_received = true;
      emit_(std::move(event));
    });
    emit_(Disconnected{});
    std::lock_guard<std::mutex> lock(mutex_);
    current_ = nullptr;
    return status;
  }

  void Run() {
    int64_t connect_ms = kMinConnectMs;
    bool logged = false;  // Whether the loss of the connection has been logged.
    do {
      const std::shared_ptr<grpc::Channel> channel = Connect(connect_ms);
      grpc::Status status(grpc::StatusCode::UNAVAILABLE, absl::StrCat("cannot connect to ", coordinator_.address));
      bool has_received = false;
      const std::string token = token_->Token();
      if (channel != nullptr) status = Attach(channel, token, &has_received);
      if (ending()) return;
      const bool is_replaced =
          status.error_code() == grpc::StatusCode::UNAUTHENTICATED && token_->HasOther(token);
      if (IsFinal(status) && !is_replaced) {
        refused_(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                              absl::StrCat("the coordinator rejected this worker: ", status.error_message())));
        return;
      }
      if (has_received || !logged) {
        const std::string advice = channel == nullptr ? AdviceToJoin(coordinator_) : "";
        LogWarn("no connection to the coordinator", {{"error", absl::StrCat(status.error_message(), advice)}});
      }
      logged = true;
      connect_ms = has_received ? kMinConnectMs : std::min(connect_ms * 2, kMaxConnectMs);
    } while (Pause());
  }

  const Endpoint coordinator_;
  const std::shared_ptr<TokenFile> token_;
  const Clock* const clock_;
  const std::function<void(Event)> emit_;
  const std::function<void(const absl::Status&)> refused_;
  const std::unique_ptr<Random> random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::shared_ptr<AttachStream> current_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Attachment>> Attachment::Start(const Endpoint& coordinator, const Clock* clock,
                                                              std::function<void(Event)> emit,
                                                              std::function<void(const absl::Status&)> refused) {
  XLAD_RETURN_IF_ERROR(MakeChannel(coordinator).status());
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<TokenFile> token, TokenFile::Open(coordinator.token_file));
  return std::make_unique<GrpcAttachment>(coordinator, std::move(token), clock, std::move(emit),
                                          std::move(refused));
}

}  // namespace xlad::worker
