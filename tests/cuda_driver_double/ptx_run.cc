// Runs the threads of a block one after the other, each up to the next barrier or instruction of its warp.
#include <algorithm>
#include <cstdio>

#include "tests/cuda_driver_double/ptx_program.h"

namespace xlad::cuda_double {
namespace {

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

// Runs a warp until each of its threads waits at a barrier or has ended. Returns the error of a thread or of the warp,
// or 0.
int RunWarp(Thread* warp, int lanes) {
  while (true) {
    int together = 0;  // The number of threads that wait for the other threads of the warp.
    for (int lane = 0; lane < lanes; ++lane) {
      if (warp[lane].state == ThreadState::kReady) Run(&warp[lane]);
      if (warp[lane].state == ThreadState::kFailed) return warp[lane].error;
      together += warp[lane].state == ThreadState::kWarp;
    }
    if (together == 0) return 0;
    if (together != lanes) return kLaunchFailed;  // Some threads never reach the instruction; a GPU would hang.
    if (const int error = RunWarpInstruction(warp, lanes); error != 0) return error;
  }
}

}  // namespace

int RunBlock(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters,
             const uint32_t (&position)[4], RaceChecker* races) {
  static thread_local std::vector<Thread> threads;
  static thread_local std::vector<uint64_t> shared;
  const int count = static_cast<int>(position[1]);
  threads.resize(static_cast<size_t>(count));
  // Shared memory is overwritten with a pattern, because its contents at the start of a block are undefined.
  shared.assign(static_cast<size_t>(kernel.shared_bytes + 7) / 8, 0xdeadbeefdeadbeef);
  for (int n = 0; n < count; ++n) {
    Thread& thread = threads[static_cast<size_t>(n)];
    Start(kernel, position, static_cast<uint32_t>(n), &thread);
    thread.memory = &memory;
    thread.races = races;
    thread.parameters = parameters;
    thread.shared = reinterpret_cast<std::byte*>(shared.data());
    thread.shared_bytes = kernel.shared_bytes;
  }
  if (races != nullptr) races->BeginBlock(position[2]);
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
    if (races != nullptr) races->Barrier();
  }
}

int RunGrid(const Function& kernel, const GlobalMemory& memory, const std::byte* parameters, const Grid& grid) {
  RaceChecker races;
  for (uint32_t block = 0; block < grid.blocks; ++block) {
    const int error = RunBlock(kernel, memory, parameters, {0, grid.threads, block, grid.blocks},
                               grid.checks_races ? &races : nullptr);
    if (error == 0) continue;
    if (!races.error().empty()) std::fprintf(stderr, "%s: %s\n", kernel.name.c_str(), races.error().c_str());
    return error;
  }
  return 0;
}

}  // namespace xlad::cuda_double
