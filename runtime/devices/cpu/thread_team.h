// ThreadTeam: the threads that compute the tiles of one stream's work.
//
// One thread, the owner, starts work and takes part in it. After a piece of work, the other threads spin for about 30
// microseconds, because the next piece usually follows at once, and then sleep on a futex. The owner never waits for a
// thread that has not begun to take part: it computes all tiles by itself if the other cores are busy with other
// programs.
//
// Tiles are divided into one contiguous part for each thread, so that successive kernels find their data in the caches
// of the same cores. A thread that has finished its part takes tiles from other parts (work stealing).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace xlad::runtime {

class ThreadTeam {
 public:
  // `threads` (at least 1) includes the owner. The other threads start when they are first needed.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return threads_; }

  // Calls work(thread, begin, end) for ranges that together cover 0 .. tiles-1 exactly once, and returns when all calls
  // have returned; `thread` (below threads()) differs between calls that run at the same time. Returns 0 if all calls
  // return 0. Otherwise it returns the first other result, and the remaining tiles may be skipped. Only the owner may
  // call Run, and not from inside `work`.
  template <typename Work>
  int32_t Run(int64_t tiles, const Work& work) {
    if (tiles <= 0) return 0;
    if (threads_ == 1 || tiles == 1) return work(0, int64_t{0}, tiles);
    const auto call = [](const void* context, int thread, int64_t begin, int64_t end) -> int32_t {
      return (*static_cast<const Work*>(context))(thread, begin, end);
    };
    return RunOnAll(tiles, {call, &work});
  }

 private:
  struct Job {
    int32_t (*call)(const void* context, int thread, int64_t begin, int64_t end) = nullptr;
    const void* context = nullptr;
  };
  // The remaining tiles of a thread's part: next .. end-1.
  struct alignas(64) Part {
    std::atomic<int64_t> next = 0;
    int64_t end = 0;
  };

  int32_t RunOnAll(int64_t tiles, Job job);
  void WorkOn(int thread);
  void Helper(int thread);
  // Waits for a job whose number is not `seen` and returns its number. Returns `seen` if the team ends.
  uint64_t NextJob(uint64_t seen);
  void WakeHelpers(int64_t count);

  // The state word: the number of the current job, whether threads may still join it, and how many have joined it and
  // are still working.
  static constexpr uint64_t kJoined = 0xffff, kOpen = 0x10000;
  static constexpr int kNumberShift = 17;

  const int threads_;
  std::unique_ptr<Part[]> parts_;
  Job job_;
  std::vector<std::thread> helpers_;
  alignas(64) std::atomic<uint64_t> state_ = 0;
  alignas(64) std::atomic<int32_t> code_ = 0;  // The first result other than 0.
  alignas(64) std::atomic<uint32_t> epoch_ = 0;  // Changes with every job; helpers sleep on it.
  std::atomic<int> sleeping_ = 0;
  std::atomic<bool> ending_ = false;
};

}  // namespace xlad::runtime
