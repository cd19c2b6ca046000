// Runs the threads of a block one after the other, each up to the next barrier or shuffle.
#include <algorithm>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

constexpr int kWarp = 32;

void Start(const Function& kernel, const uint32_t (&position)[4], uint32_t number, Thread* thread) {
  thread->function = &kernel;
  thread->own_registers = kernel.registers;
  thread->registers = thread->own_registers.data();
  thread->local.resize(static_cast<size_t>(kernel.local_bytes));
  thread->local_base = 0;
  thread->frames.clear();
  thread->next = kernel.code.data();
  thread->state = ThreadState::kReady;
  thread->Set<uint32_t>(kTid, number);
  thread->Set<uint32_t>(kNtid, position[1]);
  thread->Set<uint32_t>(kCtaid, position[2]);
  thread->Set<uint32_t>(kNctaid, position[3]);
  thread->Set<uint32_t>(kLane, number % kWarp);
}

void Run(Thread* thread) {
  const Instruction* next = thread->next;
  thread->state = ThreadState::kReady;
  while (next != nullptr) next = next->step(next, *thread);
}

// shfl.sync.MODE.b32 result, value, lane, clamp and mask, members. If the source lane is out of range, a lane keeps
// its own value.
void Exchange(Thread* warp, int lanes) {
  uint32_t values[kWarp] = {};
  for (int lane = 0; lane < lanes; ++lane) values[lane] = warp[lane].Get<uint32_t>(warp[lane].next->r[1]);
  for (int lane = 0; lane < lanes; ++lane) {
    Thread& thread = warp[lane];
    const Instruction& shuffle = *thread.next;
    const int by = static_cast<int>(thread.Get<uint32_t>(shuffle.r[2]) & 31);
    const uint32_t control = thread.Get<uint32_t>(shuffle.r[3]);
    const int segment = static_cast<int>(control >> 8 & 31), clamp = static_cast<int>(control & 31);
    const int first = lane & segment, last = first | (clamp & ~segment);
    int from = lane;
    bool is_inside = true;
    switch (shuffle.mode) {
      case 'u':
        from = lane - by, is_inside = from >= last;
        break;
      case 'd':
        from = lane + by, is_inside = from <= last;
        break;
      case 'b':
        from = lane ^ by, is_inside = from <= last;
        break;
      default:
        from = first | (by & ~segment), is_inside = from <= last;
    }
    thread.Set<uint32_t>(shuffle.r[0], values[is_inside && from < lanes ? from : lane]);
    thread.next = &shuffle + 1;
  }
}

// Runs a warp until each of its threads waits at a barrier or has ended. Returns the error of a thread, or 0.
int RunWarp(Thread* warp, int lanes) {
  while (true) {
    int shuffling = 0, waiting = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      if (warp[lane].state == ThreadState::kReady) Run(&warp[lane]);
      if (warp[lane].state == ThreadState::kFailed) return warp[lane].error;
      shuffling += warp[lane].state == ThreadState::kShuffle;
      waiting += warp[lane].state == ThreadState::kBarrier;
    }
    if (shuffling == 0) return 0;
    if (shuffling != lanes || waiting != 0) return 719;  // Some threads never reach the shuffle; a GPU would hang.
    Exchange(warp, lanes);
    for (int lane = 0; lane < lanes; ++lane) warp[lane].state = ThreadState::kReady;
  }
}

}  // namespace

int RunBlock(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters,
             const uint32_t (&position)[4]) {
  static thread_local std::vector<Thread> threads;
  static thread_local std::vector<uint64_t> shared;
  const int count = static_cast<int>(position[1]);
  threads.resize(static_cast<size_t>(count));
  // Shared memory is overwritten with a pattern, because its contents after the previous block are undefined.
  shared.assign(static_cast<size_t>(kernel.shared_bytes + 7) / 8, 0xdeadbeefdeadbeef);
  for (int n = 0; n < count; ++n) {
    Thread& thread = threads[static_cast<size_t>(n)];
    Start(kernel, position, static_cast<uint32_t>(n), &thread);
    thread.memory = &memory;
    thread.parameters = parameters;
    thread.shared = reinterpret_cast<std::byte*>(shared.data());
    thread.shared_bytes = kernel.shared_bytes;
  }
  while (true) {
    for (int first = 0; first < count; first += kWarp) {
      const int error = RunWarp(&threads[static_cast<size_t>(first)], std::min(kWarp, count - first));
      if (error != 0) return error;
    }
    bool any = false;
    for (Thread& thread : threads) {
      if (thread.state != ThreadState::kBarrier) continue;
      thread.state = ThreadState::kReady;
      any = true;
    }
    if (!any) return 0;
  }
}

}  // namespace xlad::cuda_double
