// Flags of `xlad run`, `xlad submit` and `xlad compile` that say how a program is compiled.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::cli {

struct CompileFlags {
  std::string executor = "compiled", overlap = "by-cost", schedules_path, mode = "run-to-run";
  bool check_numerics = false;
  int64_t memory_limit_bytes = 0;
};

void AddCompileFlags(CLI::App* app, CompileFlags* flags);
// Returns the policy that the flags specify, with the contents of the file of schedules. InvalidArgument if the flags
// contradict each other, or, with the file and the line, if the file is malformed.
absl::StatusOr<CompilePolicy> ReadCompileFlags(const CompileFlags& flags);

}  // namespace xlad::cli
