#include "service/build_queue/build_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace xlad::service {
namespace {

// How often the ages of builds are checked.
constexpr std::chrono::milliseconds kBuildTick{100};

}  // namespace

BuildQueue::BuildQueue(const BuildQueueOptions& options) : options_(options) {
  thread_ = std::thread([this] { Run(); });
}

void BuildQueue::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    waiting_.clear();
    for (const auto& build : running_) build->cancel.Raise();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

int64_t BuildQueue::Add(const std::string& job_id, Work work, bool is_urgent) {
  auto build = std::make_unique<Build>();
  build->job_id = job_id;
  build->work = std::move(work);
  build->is_urgent = is_urgent;
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t number = next_number_++;
  if (ending_) return number;
  build->number = number;
  waiting_.push_back(std::move(build));
  changed_.notify_all();
  return number;
}

template <typename Condition>
void BuildQueue::CancelIf(const Condition& condition) {
  std::erase_if(waiting_, condition);
  for (const auto& build : running_) {
    if (condition(build)) build->cancel.Raise();
  }
}

void BuildQueue::Cancel(const std::string& job_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  CancelIf([&](const auto& build) { return build->job_id == job_id; });
}

void BuildQueue::CancelOne(int64_t number) {
  std::lock_guard<std::mutex> lock(mutex_);
  CancelIf([&](const auto& build) { return build->number == number; });
}

bool BuildQueue::HasRoom(bool for_urgent) const {
  const int64_t old_before_ns = options_.clock->NowNs() - options_.old_after_ms * kNsPerMs;
  const auto counts = [&](const auto& build) { return build->is_urgent == for_urgent; };
  const auto is_young = [&](const auto& build) { return counts(build) && build->started_ns > old_before_ns; };
  return std::count_if(running_.begin(), running_.end(), counts) < (for_urgent ? options_.all : options_.not_urgent) &&
         std::count_if(running_.begin(), running_.end(), is_young) < (for_urgent ? options_.young : 1);
}

BuildQueue::Builds::iterator BuildQueue::Next() {
  const auto is_urgent = [](const auto& build) { return build->is_urgent; };
  const auto urgent = std::find_if(waiting_.begin(), waiting_.end(), is_urgent);
  if (urgent != waiting_.end()) return HasRoom(true) ? urgent : waiting_.end();
  return HasRoom(false) ? waiting_.begin() : waiting_.end();
}

void BuildQueue::StartBuilds() {
  for (auto next = Next(); next != waiting_.end(); next = Next()) {
    running_.splice(running_.end(), waiting_, next);
    Build* const build = running_.back().get();
    build->started_ns = options_.clock->NowNs();
    build->thread = std::thread([this, build] {
      build->work(&build->cancel);
      std::lock_guard<std::mutex> lock(mutex_);
      build->done = true;
      changed_.notify_all();
    });
  }
}

void BuildQueue::TakeDone(Builds* done) {
  for (auto at = running_.begin(); at != running_.end();) {
    const auto next = std::next(at);
    if ((*at)->done) done->splice(done->end(), running_, at);
    at = next;
  }
}

void BuildQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    Builds done;
    TakeDone(&done);
    StartBuilds();
    if (!done.empty()) {
      lock.unlock();
      for (const auto& build : done) build->thread.join();
      lock.lock();
      continue;
    }
    if (ending_ && running_.empty()) return;
    if (waiting_.empty()) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, kBuildTick);
    }
  }
}

}  // namespace xlad::service
