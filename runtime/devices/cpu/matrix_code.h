// Decides when a process generates oneDNN's code for matrix products, which takes about 30 ms of a core.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace xlad::runtime {

// Calls `generate` once, on a thread of its own: when a program that needs the code is loaded, or when no program has
// been loaded for a while. A process that loads another program soon after its start needs its cores for that.
// Thread-safe.
class MatrixCode {
 public:
  MatrixCode(std::function<void()> generate, std::chrono::milliseconds wait)
      : generate_(std::move(generate)), wait_(wait), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

  void OnLoad(bool needs_code) {
    const std::lock_guard lock(mutex_);
    is_loaded_ = true;
    is_needed_ = is_needed_ || needs_code;
    changed_.notify_all();
  }
  // Whether one of the loaded programs needs the code. Null if no program has been loaded.
  std::optional<bool> is_needed() const {
    const std::lock_guard lock(mutex_);
    return is_loaded_ ? std::optional(is_needed_) : std::nullopt;
  }

 private:
  void Run(const std::stop_token& stop) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, stop, wait_, [this] { return is_loaded_; });
      if (is_loaded_) changed_.wait(lock, stop, [this] { return is_needed_; });
    }
    if (!stop.stop_requested()) generate_();
  }

  const std::function<void()> generate_;
  const std::chrono::milliseconds wait_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool is_loaded_ = false, is_needed_ = false;
  std::jthread thread_;  // Declared last, because it uses the other members.
};

// Returns the object that all cpu devices and all programs of native code in this process share. It calls
// GenerateMatrixCode (dnnl_util.h). The first owner makes it. The last owner destroys it, and waits about 30 ms if the
// code is being generated. Threads do not survive a fork. Therefore a child process makes its own object, and must not
// destroy the devices and programs of its parent. Thread-safe.
std::shared_ptr<MatrixCode> MatrixCodeOfProcess();

}  // namespace xlad::runtime
