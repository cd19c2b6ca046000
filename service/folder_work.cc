#include "service/folder_work.h"

#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace xlad::service {

void FolderWork::Push(const std::string& folder, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (!stopping_) PushLocked(folder, std::move(work));
}

void FolderWork::PushLocked(const std::string& folder, std::function<void()> work) {
  const auto [found, is_new] = folders_.try_emplace(folder);
  found->second.work.push_back(std::move(work));
  if (!is_new) return;
  found->second.since = Clock::now();
  ready_.push_back(folder);
  if (idle_ < ready_.size() && threads_.size() < kMaxThreads) TryToAddThread();
  ready_changed_.notify_one();
}

void FolderWork::TryToAddThread() {
  try {
    threads_.emplace_back([this] { RunThread(); });
  } catch (const std::system_error& error) {  // The work waits for one of the other threads.
    LogWarn("the work on a folder has to wait, because no thread can be started", {{"error", error.what()}});
  }
}

absl::Status FolderWork::Run(const std::string& folder, std::function<void()> work) {
  std::unique_lock lock(mutex_);
  if (stopping_) return absl::UnavailableError("the coordinator is stopping");
  const auto found = folders_.find(folder);
  if (found != folders_.end() && Clock::now() - found->second.since >= patience_) return DoesNotAnswer(folder);
  struct Waiting {  // Guarded by mutex_.
    bool is_done = false;
    bool is_abandoned = false;
  };
  const auto waiting = std::make_shared<Waiting>();
  PushLocked(folder, [this, waiting, work = std::move(work)] {
    {
      const std::lock_guard begin(mutex_);
      if (waiting->is_abandoned) return;
    }
    work();
    const std::lock_guard done(mutex_);
    waiting->is_done = true;
    done_changed_.notify_all();
  });
  done_changed_.wait_for(lock, patience_, [&] { return waiting->is_done || stopping_; });
  if (waiting->is_done) return absl::OkStatus();
  waiting->is_abandoned = true;
  return stopping_ ? absl::UnavailableError("the coordinator is stopping") : DoesNotAnswer(folder);
}

absl::Status FolderWork::DoesNotAnswer(const std::string& folder) const {
  return absl::UnavailableError(absl::StrCat(folder, " is busy or has not answered for ", patience_.count(),
                                             " ms, expected a file system that answers; check that the server of its "
                                             "file system runs and can be reached"));
}

void FolderWork::Cancel() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  ready_changed_.notify_all();
  done_changed_.notify_all();
}

void FolderWork::Stop() {
  Cancel();
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void FolderWork::RunThread() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    ready_changed_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
    --idle_;
    if (stopping_) return;
    const std::string name = std::move(ready_.front());
    ready_.pop_front();
    Folder& folder = folders_.at(name);
    const std::function<void()> work = std::move(folder.work.front());
    folder.work.pop_front();
    folder.since = Clock::now();
    lock.unlock();
    work();
    lock.lock();
    if (folder.work.empty()) {
      folders_.erase(name);
    } else {
      folder.since = Clock::now();
      ready_.push_back(name);
    }
  }
}

}  // namespace xlad::service
