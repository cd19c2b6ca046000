#include "tests/cuda_driver_double/driver_double.h"

#include <cstdlib>
#include <sstream>

namespace xlad::cuda_double {
namespace {

Settings ReadSettings(const std::string& text) {
  Settings settings;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos) continue;
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "devices") settings.devices = std::stoi(value);
    if (key == "version") settings.version = std::stoi(value);
    if (key == "capability") settings.capability = std::stoi(value);
    if (key == "pools") settings.pools = std::stoi(value);
    if (key == "cublaslt") settings.cublaslt = std::stoi(value);
    if (key == "races") settings.races = std::stoi(value);
    if (key == "drop_barrier") settings.drop_barrier = std::stoi(value);
    if (key == "memory") settings.memory = std::stoull(value);
    if (key == "fail") {
      std::istringstream parts(value);
      std::string function, code, calls = "0";
      std::getline(parts, function, ':');
      std::getline(parts, code, ':');
      std::getline(parts, calls, ':');
      settings.failures[function] = {std::stoi(code), calls.empty() ? 0 : std::stoi(calls)};
    }
  }
  const char* const chosen = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream numbers(chosen != nullptr ? chosen : "");
  for (std::string number; chosen != nullptr && std::getline(numbers, number, ',');) {
    if (std::stoi(number) >= 0 && std::stoi(number) < settings.devices) settings.visible.push_back(std::stoi(number));
  }
  for (int number = 0; chosen == nullptr && number < settings.devices; ++number) settings.visible.push_back(number);
  settings.devices = static_cast<int>(settings.visible.size());
  return settings;
}

}  // namespace

DriverDouble& DriverDouble::Get() {
  static auto* const instance = new DriverDouble;
  return *instance;
}

DriverDouble::DriverDouble() {
  const char* const text = std::getenv("XLAD_CUDA_DOUBLE");
  Configure(text != nullptr ? text : "");
}

void DriverDouble::Configure(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t memory_before = settings_.memory;
  settings_ = ReadSettings(text);
  broken_ = 0;
  if (memory_ == nullptr || settings_.memory != memory_before) {
    memory_ = std::make_unique<WindowMemory>(settings_.memory);
  }
}

Result DriverDouble::Enter(const std::string& function) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto failure = settings_.failures.find(function);
  if (failure != settings_.failures.end() && failure->second.calls-- <= 0) return failure->second.code;
  return broken_;
}

void DriverDouble::Break(Result error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (broken_ == 0) broken_ = error;
}

Result DriverDouble::broken() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return broken_;
}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void WorkQueue::Add(std::function<Result()> work, bool always) {
  const std::lock_guard<std::mutex> lock(mutex_);
  queue_.push_back({std::move(work), always});
  changed_.notify_all();
}

Result WorkQueue::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return queue_.empty(); });
  return DriverDouble::Get().broken();
}

void WorkQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    lock.unlock();
    if (work.always || DriverDouble::Get().broken() == 0) {
      const Result result = work.run();
      if (result != 0) DriverDouble::Get().Break(result);
    }
    work.run = nullptr;
    lock.lock();
    queue_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace xlad::cuda_double
