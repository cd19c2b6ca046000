// `xlad bench COLLECTIVE`: times of a collective among processes of one or several hosts, with the flags, columns and
// definitions of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "collectives/plan/spec.h"

namespace xlad::cli {

struct BenchOptions {
  std::string collective;
  int64_t min_bytes = 32 << 20, max_bytes = 32 << 20, step_bytes = 1 << 20;
  int64_t factor = 0;  // If 0, sizes grow by step_bytes.
  int iterations = 0;  // Iterations per batch; if 0, chosen by size.
  int batches = 15;
  int warmup = 5;
  int aggregated = 1;  // The number of operations per iteration.
  int check = 1;       // If 0, the results are not checked.
  int average = 3;     // The reported time: 0 that of rank 0; 1 the mean, 2 the minimum, 3 the maximum of all ranks.
  int root = 0;
  // If 0, the number that a launcher has started or, without a launcher, the number of cores, at least 2 and at most 8.
  int ranks = 0;
  int registered = 0;        // If 1, xlad allocates the buffers, and other ranks access them directly.
  int64_t rotate_bytes = 0;  // The total size of the buffers that iterations use in turn.
  std::string type = "float", op = "sum", algorithm, plans, transport = "auto", mode = "fast", json;
  bool any_network = false, checksums = false, shrink = false;
  bool explain = false, wide = false, memory = false, digest = false, calibrate = false;
  // How long the ranks measure, with --calibrate or if this machine has not been calibrated.
  int64_t calibrate_ms = 1000;
  int64_t deadline_ms = 30000;            // How long to wait until all ranks have started.
  std::string meeting_folder;             // Empty if all ranks are on this host.
  std::string listen_host = "127.0.0.1";  // The address by which other ranks reach this one.
};

// Declares the flags, without the positional COLLECTIVE.
void AddBenchFlags(CLI::App* app, BenchOptions* options);

// `xlad bench --calibrate` without a collective: measures this machine with the ranks that a launcher has started, with
// --ranks, or with 2, 4 and 8 ranks. Returns the exit code.
int RunCalibration(const BenchOptions& options);

// Runs the benchmark and returns the exit code: 1 if a check or a call failed, 2 if an option is wrong. If no launcher
// has started the ranks, the function starts them.
int RunBench(const BenchOptions& options);

// Returns InvalidArgument if a name is unknown, if options contradict each other, or if the reduction is not defined
// for the element type.
absl::Status CheckBenchOptions(const BenchOptions& options);

// Accepts the names of nccl-tests ("float", "bfloat16", "f8e4m3") and those of real types of HLO with 8 bits or more
// ("f32", "bf16", "f8e4m3fn"). For any other name, returns InvalidArgument with a list of them.
absl::StatusOr<tensor::ElementType> ParseBenchType(const std::string& name);
// The name of the type in nccl-tests if it has one, otherwise its name in HLO.
std::string BenchTypeName(tensor::ElementType type);
// Accepts the names of a collective in xlad and in nccl-tests: "all_to_all", "alltoall" or "alltoall_perf".
absl::StatusOr<collectives::CollectiveKind> ParseBenchCollective(const std::string& name);
// Whether the name is that of a collective whose parts have different sizes: "all_gather_v", "all_to_all_v".
bool IsRaggedBench(const std::string& name);
absl::StatusOr<collectives::Reduction> ParseBenchOp(const std::string& name);
// Accepts "run-to-run", "fast" or "canonical".
absl::StatusOr<collectives::ReductionMode> ParseBenchMode(const std::string& name);

}  // namespace xlad::cli
