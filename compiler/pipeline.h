// Runs the compiler's passes over an HLO module. passes/passes.def is the table of passes.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/pass_time.h"
#include "compiler/passes/passes.h"

namespace xlad::compiler {

struct PassEntry {
  const char* name;
  PassFunction pass;
};

// The names in passes.def, in order. A name occurs once for each time that the pass runs.
absl::Span<const PassEntry> PassTable();

struct PipelineOptions {
  // If not empty, the module's text is written to this directory: 00.input.hlo, then NN.NAME.hlo after every pass.
  std::string dump_directory;
  bool verify = false;               // Whether to run hlo::Verify after every pass. An error names the pass.
  std::vector<std::string> only;     // If not empty, run only the passes with these names.
  std::vector<std::string> without;  // Do not run the passes with these names.
};

// Runs the table on the module. Appends the time of each pass to `times`, which may be null. An error of a pass is
// returned with the name of the pass as a prefix. The module is then in an unspecified state.
absl::Status RunPipeline(hlo::Module& module, PassContext& context, const PipelineOptions& options,
                         std::vector<PassTime>* times);

}  // namespace xlad::compiler
