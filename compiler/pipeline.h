// The compiler's passes over HLO, as a table, and the driver that runs it.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/pass_time.h"
#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

struct PassEntry {
  const char* name;
  PassFunction pass;
};

// In the order in which they run; a name may occur more than once.
absl::Span<const PassEntry> PassTable();

struct PipelineOptions {
  std::string dump_directory;     // NN.name.hlo after every pass, 00.input.hlo before; empty: nowhere.
  bool verify = false;            // hlo::Verify after every pass; an error names the pass.
  std::vector<std::string> only;  // Run just these passes (for tools and tests); empty: all.
};

// Runs the table. Errors are the passes' own with the pass's name in front.
absl::Status RunPipeline(hlo::Module& module, PassContext& context, const PipelineOptions& options,
                         std::vector<PassTime>* times);

}  // namespace xlad::compiler
