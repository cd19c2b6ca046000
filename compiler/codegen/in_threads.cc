#include "compiler/codegen/in_threads.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/process/cores.h"

namespace xlad::compiler {

absl::Status ForEachInThreads(size_t count, const std::function<absl::Status(size_t)>& work) {
  std::vector<absl::Status> results(count);
  std::atomic<size_t> next = 0;
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) results[i] = work(i);
  };
  const size_t usable = UsableThreads();
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min(count, usable); ++t) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  for (absl::Status& result : results) XLAD_RETURN_IF_ERROR(std::move(result));
  return absl::OkStatus();
}

}  // namespace xlad::compiler
