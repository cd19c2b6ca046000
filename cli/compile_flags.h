// Flags of `xlad run`, `xlad submit` and `xlad compile` that say how a program is compiled, and when its code runs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::cli {

struct CompileFlags {
  std::string executor = "compiled", overlap = "by-cost", schedules_path, mode = "run-to-run";
  std::string tier = "quick-first";
  bool check_numerics = false;
  int64_t memory_limit_bytes = 0;
};

void AddCompileFlags(CLI::App* app, CompileFlags* flags);
// Returns the policy that the flags specify, with the contents of the file of schedules. InvalidArgument if the flags
// contradict each other, or, with the file and the line, if the file is malformed.
absl::StatusOr<CompilePolicy> ReadCompileFlags(const CompileFlags& flags);

// --compile-tier, for commands that train.
void AddTierFlag(CLI::App* app, CompileFlags* flags);
JobSpec::CompileTier TierOf(const CompileFlags& flags);

}  // namespace xlad::cli
