// Renews certificates and join files before they expire.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"

namespace xlad::service {

// Calls a function every `check_ms`, on a thread of its own.
class Renewal {
 public:
  // `renew_if_due` returns whether it has renewed the file. `what` is the kind of file for the log. An error is logged,
  // and the next call tries again.
  Renewal(std::string what, std::string file, int64_t check_ms, std::function<absl::StatusOr<bool>()> renew_if_due)
      : what_(std::move(what)),
        file_(std::move(file)),
        renew_if_due_(std::move(renew_if_due)),
        check_(check_ms),
        thread_([this] { Run(); }) {}
  ~Renewal() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, check_, [this] { return ending_; })) {
      const absl::StatusOr<bool> renewed = renew_if_due_();
      if (!renewed.ok()) {
        LogError(absl::StrCat("the ", what_, " cannot be renewed"),
                 {{"file", file_}, {"error", std::string(renewed.status().message())}});
      } else if (*renewed) {
        LogInfo(absl::StrCat("the ", what_, " was renewed"), {{"file", file_}});
      }
    }
  }

  const std::string what_, file_;
  const std::function<absl::StatusOr<bool>()> renew_if_due_;
  const std::chrono::milliseconds check_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace xlad::service
