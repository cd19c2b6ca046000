#include "worker/report_queue.h"

#include <chrono>
#include <utility>

namespace xlad::worker {
namespace {

constexpr std::chrono::milliseconds kProgressPeriod{100};

}  // namespace

ReportQueue::ReportQueue(MessageSocket* socket, std::function<int64_t()> progress, std::function<void()> lost)
    : socket_(socket), progress_(std::move(progress)), lost_(std::move(lost)) {
  thread_ = std::thread([this] { Run(); });
}

ReportQueue::~ReportQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void ReportQueue::Push(WorkerMessage message) {
  std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back(std::move(message));
  started_ = true;
  changed_.notify_all();
}

void ReportQueue::SetSilence(const std::map<std::string, int64_t>& silent) {
  std::lock_guard<std::mutex> lock(mutex_);
  silent_ = silent;
  silence_is_new_ = true;
  changed_.notify_all();
}

void ReportQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    const auto woken = [this] { return ending_ || silence_is_new_ || !queue_.empty(); };
    if (started_) {
      changed_.wait_for(lock, kProgressPeriod, woken);
    } else {
      changed_.wait(lock, woken);
    }
    const bool is_last = ending_;
    const std::vector<WorkerMessage> messages = std::exchange(queue_, {});
    lock.unlock();
    const absl::Status status = Send(messages);
    lock.lock();
    if (!status.ok()) {
      lost_();
      return;
    }
    if (is_last && queue_.empty()) return;
  }
}

// Progress is sent first, so that the daemon has the last step when it receives a failure. The metrics of many quick
// steps are combined into one message.
absl::Status ReportQueue::Send(const std::vector<WorkerMessage>& messages) {
  XLAD_RETURN_IF_ERROR(SendProgress());
  for (size_t i = 0; i < messages.size(); ++i) {
    AttemptReport report;
    *report.mutable_message() = messages[i];
    while (messages[i].has_steps() && i + 1 < messages.size() && messages[i + 1].has_steps()) {
      report.mutable_message()->mutable_steps()->MergeFrom(messages[++i].steps());
    }
    socket_->Queue(report.SerializeAsString());
  }
  return socket_->SendAll();
}

absl::Status ReportQueue::SendProgress() {
  const int64_t finished = progress_();
  AttemptReport report;
  AttemptProgress* const progress = report.mutable_progress();
  progress->set_finished_steps(finished);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool is_known = finished == reported_ && !silence_is_new_;
    if (is_known) return absl::OkStatus();
    silence_is_new_ = false;
    for (const auto& [worker, ms] : silent_) {
      SilentPeer* const peer = progress->add_silent();
      peer->set_worker_id(worker);
      peer->set_silent_ms(ms);
    }
  }
  reported_ = finished;
  socket_->Queue(report.SerializeAsString());
  return socket_->SendAll();
}

}  // namespace xlad::worker
