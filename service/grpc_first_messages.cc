#include "service/grpc_first_messages.h"

namespace xlad::service {

FirstMessages::~FirstMessages() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

int64_t FirstMessages::Expect(grpc::CallbackServerContext* context) {
  const std::lock_guard lock(mutex_);
  waiting_[next_] = {std::chrono::steady_clock::now() + limit_, context};
  return next_++;
}

void FirstMessages::Arrived(int64_t number) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(number);
}

// Checks ten times in the time of the limit, so that a new call need not wake the thread.
void FirstMessages::Run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, limit_ / 10, [this] { return ending_; })) {
    const auto now = std::chrono::steady_clock::now();
    while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
      // The call ends after its Arrived, which needs the lock. gRPC calls its reactor on another thread.
      waiting_.begin()->second.context->TryCancel();
      waiting_.erase(waiting_.begin());
    }
  }
}

}  // namespace xlad::service
