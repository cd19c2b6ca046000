#include "service/build_queue/build_pool.h"

#include <chrono>
#include <utility>

#include "base/log.h"

namespace xlad::service {
namespace {

absl::StatusOr<ChildResult> StartAndRun(const std::string& program, absl::string_view input,
                                        const ChildLimits& limits) {
  const auto child = IdleChild::Start({program, "__build"}, limits);
  if (!child.ok()) return absl::UnavailableError(child.status().message());
  return (*child)->Run(input, limits);
}

}  // namespace

BuildPool::BuildPool(const BuildPoolOptions& options) : options_(options) {
  if (options_.keep_idle) thread_ = std::thread([this] { KeepIdle(); });
}

BuildPool::~BuildPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<ChildResult> BuildPool::Run(absl::string_view input, const ChildLimits& limits) {
  if (limits.nice > 0) return StartAndRun(options_.program_path, input, limits);
  const std::unique_ptr<IdleChild> idle = TakeIdle(limits);
  absl::StatusOr<ChildResult> result =
      idle != nullptr ? idle->Run(input, limits) : StartAndRun(options_.program_path, input, limits);
  const std::lock_guard lock(mutex_);
  --urgent_builds_;
  is_wanted_ = true;
  changed_.notify_all();
  return result;
}

std::unique_ptr<IdleChild> BuildPool::TakeIdle(const ChildLimits& limits) {
  std::unique_ptr<IdleChild> idle;
  {
    const std::lock_guard lock(mutex_);
    ++urgent_builds_;
    has_built_ = true;
    idle = std::move(idle_);
    changed_.notify_all();
  }
  if (idle == nullptr) return nullptr;
  const absl::Status limited = idle->Limit(limits);
  if (limited.ok()) return idle;
  LogWarn("the idle process for builds cannot be used", {{"reason", std::string(limited.message())}});
  return nullptr;
}

pid_t BuildPool::WaitForIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return idle_ != nullptr; });
  return idle_->pid();
}

void BuildPool::KeepIdle() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto may_start = [this] { return is_wanted_ && idle_ == nullptr && urgent_builds_ == 0; };
    changed_.wait(lock, [&] { return ending_ || may_start(); });
    if (ending_) return;
    const auto is_disturbed = [&] { return ending_ || !may_start(); };
    const std::chrono::milliseconds quiet(has_built_ ? options_.quiet_ms : 0);
    if (changed_.wait_for(lock, quiet, is_disturbed)) continue;
    is_wanted_ = false;
    lock.unlock();
    absl::StatusOr<std::unique_ptr<IdleChild>> started = IdleChild::Start({options_.program_path, "__build", "idle"});
    if (!started.ok()) {
      LogWarn("the idle process for builds cannot be started", {{"reason", std::string(started.status().message())}});
    }
    lock.lock();
    if (started.ok()) {
      idle_ = *std::move(started);
      changed_.notify_all();
    } else {
      is_wanted_ = true;
      changed_.wait_for(lock, std::chrono::milliseconds(options_.retry_ms), [this] { return ending_; });
    }
  }
}

}  // namespace xlad::service
