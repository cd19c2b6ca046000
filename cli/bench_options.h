// `xlad bench COLLECTIVE`: times of a collective among processes of this host, with the flags, columns and definitions
// of nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "collectives/plan/spec.h"

namespace xlad::cli {

struct BenchOptions {
  std::string collective;
  int64_t min_bytes = 32 << 20, max_bytes = 32 << 20, step_bytes = 1 << 20;
  int64_t factor = 0;  // 0: sizes grow by step_bytes.
  int iterations = 0;  // The number of iterations in a batch; 0: chosen by size.
  int batches = 15;
  int warmup = 5;
  int aggregated = 1;  // Operations of one iteration.
  int check = 1;
  int average = 3;  // Which of the ranks' times is reported: 0 rank 0's, 1 the mean, 2 the minimum, 3 the maximum.
  int root = 0;
  int ranks = 0;             // 0: the launcher's number; without a launcher, the number of cores, from 2 to 8.
  int registered = 0;        // 1: xlad allocates the buffers, and other ranks access them directly.
  int64_t rotate_bytes = 0;  // Iterations use buffers in turn, of this many bytes in total.
  std::string type = "float", op = "sum", algorithm, plans, transport = "auto", mode = "fast", json;
  bool any_network = false, checksums = false, shrink = false;
  bool explain = false, wide = false, memory = false, digest = false, calibrate = false;
  int64_t calibrate_ms = 1000;  // For --calibrate, or if this machine has not been calibrated.
  int64_t deadline_ms = 30000;
};

// Declares the flags, without the positional COLLECTIVE.
void AddBenchFlags(CLI::App* app, BenchOptions* options);

// `xlad bench --calibrate` without a collective: measures this machine with --ranks, or with 2, 4 and 8 ranks, and
// returns the exit code.
int RunCalibration(const BenchOptions& options);

// Runs the benchmark and returns the exit code: 1 if a check or a call failed, 2 if an option is wrong. Starts the
// ranks if no launcher has.
int RunBench(const BenchOptions& options);

// InvalidArgument if options contradict each other or ask for what the benchmark cannot do with any number of ranks.
absl::Status CheckBenchOptions(const BenchOptions& options);

// Accepts the names of nccl-tests ("float", "bfloat16", "f8e4m3") and of HLO ("f32", "bf16", "f8e4m3fn"). For any other
// name, returns InvalidArgument with a list of them.
absl::StatusOr<tensor::ElementType> ParseBenchType(const std::string& name);
// The name of nccl-tests if the type has one.
std::string BenchTypeName(tensor::ElementType type);
// The collective by its names in xlad and nccl-tests: "all_to_all", "alltoall" or "alltoall_perf".
absl::StatusOr<collectives::CollectiveKind> ParseBenchCollective(const std::string& name);
// Whether the name is of a collective whose parts have different sizes: "all_gather_v", "all_to_all_v".
bool IsRaggedBench(const std::string& name);
absl::StatusOr<collectives::Reduction> ParseBenchOp(const std::string& name);
// "run-to-run", "fast" or "canonical".
absl::StatusOr<collectives::ReductionMode> ParseBenchMode(const std::string& name);

}  // namespace xlad::cli
