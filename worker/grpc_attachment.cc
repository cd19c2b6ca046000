#include "worker/grpc_attachment.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/grpc_channel.h"
#include "base/log.h"
#include "base/random.h"
#include "proto/worker.grpc.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::worker {
namespace {

constexpr int64_t kMinPauseMs = 50;
constexpr int64_t kMaxPauseMs = 1000;
constexpr std::chrono::milliseconds kFlushFor{500};

// Whether the same call would fail again.
bool IsFinal(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAUTHENTICATED ||
         status.error_code() == grpc::StatusCode::PERMISSION_DENIED ||
         status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
}

// One stream. A thread writes the queued messages; the owner reads.
class AttachStream {
 public:
  AttachStream(Coordinator::Stub* stub, const std::string& token) {
    PrepareCall(&context_, token, /*timeout_ms=*/0);
    stream_ = stub->Attach(&context_);
    writer_ = std::thread([this] { WriteLoop(); });
  }

  // Reads until the stream ends.
  grpc::Status Read(const std::function<void(Event)>& emit) {
    CoordinatorMessage message;
    while (stream_->Read(&message)) emit(std::exchange(message, {}));
    Stop();
    writer_.join();
    return stream_->Finish();
  }

  void Send(const WorkerMessage& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(message);
    changed_.notify_all();
  }

  void Flush() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kFlushFor, [this] { return stopping_ || (queue_.empty() && !writing_); });
  }

  void Cancel() { context_.TryCancel(); }

 private:
  void Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }

  void WriteLoop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      const WorkerMessage message = std::move(queue_.front());
      queue_.pop_front();
      writing_ = true;
      lock.unlock();
      const bool written = stream_->Write(message);
      lock.lock();
      writing_ = false;
      changed_.notify_all();
      if (!written) return;  // The reader is told of the end as well.
    }
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<WorkerMessage, CoordinatorMessage>> stream_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<WorkerMessage> queue_;
  bool writing_ = false;
  bool stopping_ = false;
  std::thread writer_;
};

class GrpcAttachment final : public Attachment {
 public:
  GrpcAttachment(std::shared_ptr<grpc::Channel> channel, std::string token, std::function<void(Event)> emit,
                 std::function<void(const absl::Status&)> refused)
      : stub_(Coordinator::NewStub(channel)),
        token_(std::move(token)),
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

  void Flush() override {
    if (const std::shared_ptr<AttachStream> stream = Current()) stream->Flush();
  }

 private:
  std::shared_ptr<AttachStream> Current() {
    std::lock_guard<std::mutex> lock(mutex_);
    return current_;
  }

  void Run() {
    int64_t pause_ms = kMinPauseMs;
    bool was_heard = true;
    while (true) {
      auto stream = std::make_shared<AttachStream>(stub_.get(), token_);
      {
        std::lock_guard<std::mutex> lock(mutex_);
        if (ending_) stream->Cancel();
        current_ = stream;
      }
      emit_(Connected{});
      bool heard = false;
      const grpc::Status status = stream->Read([&](Event event) {
        heard = true;
        emit_(std::move(event));
      });
      emit_(Disconnected{});
      std::unique_lock<std::mutex> lock(mutex_);
      current_ = nullptr;
      if (ending_) return;
      if (IsFinal(status)) {
        refused_(absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                              absl::StrCat("the coordinator rejected this worker: ", status.error_message())));
        return;
      }
      // Logged once for each loss of the connection.
      if (heard || was_heard) LogWarn("no connection to the coordinator", {{"error", status.error_message()}});
      was_heard = heard;
      pause_ms = heard ? kMinPauseMs : std::min(pause_ms * 2, kMaxPauseMs);
      const int64_t jitter_ms = random_->Below(static_cast<uint64_t>(pause_ms) / 2 + 1);
      changed_.wait_for(lock, std::chrono::milliseconds(pause_ms - jitter_ms), [this] { return ending_; });
      if (ending_) return;
    }
  }

  const std::unique_ptr<Coordinator::Stub> stub_;
  const std::string token_;
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

std::unique_ptr<Attachment> Attachment::Start(std::shared_ptr<grpc::Channel> channel, const std::string& token,
                                              std::function<void(Event)> emit,
                                              std::function<void(const absl::Status&)> refused) {
  return std::make_unique<GrpcAttachment>(std::move(channel), token, std::move(emit), std::move(refused));
}

}  // namespace xlad::worker
