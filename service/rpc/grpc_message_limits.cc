#include "service/rpc/grpc_message_limits.h"

#include <utility>

namespace xlad::service {

MessageLimits::~MessageLimits() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

int64_t MessageLimits::Begin(grpc::CallbackServerContext* context) {
  const std::lock_guard lock(mutex_);
  waiting_[next_] = {std::chrono::steady_clock::now() + limit_, context};
  return next_++;
}

void MessageLimits::End(int64_t number) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(number);
}

MessageLimits::Room MessageLimits::Reserve(const std::string& user, bool may_wait, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = unsent_by_user_.find(user);
  const int64_t own = found == unsent_by_user_.end() ? 0 : found->second;
  const bool fits = own + bytes <= kMaxUnsentBytesOfUser && unsent_bytes_ + bytes <= kMaxUnsentBytes;
  if (!fits && own > 0 && !may_wait) return Room::kRefused;
  if (bytes > 0) unsent_by_user_[user] += bytes;
  if (!fits) return Room::kMustWait;
  unsent_bytes_ += bytes;
  return Room::kReserved;
}

void MessageLimits::Release(const std::string& user, Room room, int64_t bytes) {
  if (room == Room::kRefused || bytes == 0) return;
  const std::lock_guard lock(mutex_);
  if (room == Room::kReserved) unsent_bytes_ -= bytes;
  const auto own = unsent_by_user_.find(user);
  if ((own->second -= bytes) == 0) unsent_by_user_.erase(own);
}

bool MessageLimits::ReserveParsed(const std::string& user, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = parsed_by_user_.find(user);
  const int64_t own = found == parsed_by_user_.end() ? 0 : found->second;
  if (parsed_bytes_ + bytes > kMaxParsedBytesOfAll) return false;
  if (own > 0 && own + bytes > kMaxParsedBytesOfUser) return false;
  if (bytes > 0) parsed_by_user_[user] += bytes;
  parsed_bytes_ += bytes;
  return true;
}

void MessageLimits::ReleaseParsed(const std::string& user, int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  parsed_bytes_ -= bytes;
  const auto own = parsed_by_user_.find(user);
  if ((own->second -= bytes) == 0) parsed_by_user_.erase(own);
}

// Checks ten times in the time of the limit, so that a new message need not wake the thread.
void MessageLimits::Run() {
  std::unique_lock lock(mutex_);
  auto checked = std::chrono::steady_clock::now();
  while (!changed_.wait_for(lock, limit_ / 10, [this] { return ending_; })) {
    const auto now = std::chrono::steady_clock::now();
    // If this process was stopped for a while, messages that were sent in time may still wait in its sockets.
    const bool was_stopped = now - std::exchange(checked, now) > limit_ / 2;
    if (was_stopped) {
      for (auto& [number, waiting] : waiting_) waiting.until = now + limit_;
    }
    while (!waiting_.empty() && waiting_.begin()->second.until <= now) {
      // The call ends after its End, which needs the lock. gRPC calls its reactor on another thread.
      waiting_.begin()->second.context->TryCancel();
      waiting_.erase(waiting_.begin());
    }
  }
}

}  // namespace xlad::service
