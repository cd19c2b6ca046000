// The passes of the compiler's pipeline. passes.def lists them in execution order.
//
// A pass changes the module in place and preserves its semantics. The evaluator returns the same results before and
// after the pass, except that arithmetic may round differently and a NaN may have another payload. A pass may assume
// that the module is verified and that all passes in earlier rows have run, except those that PipelineOptions leaves
// out. An error stops the pipeline, which adds the name of the pass to the message.
//
// Passes run on one thread and have no state between calls.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/analysis/attention_cost.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Determines which attention becomes library ops.
enum class AttentionChoice {
  kByCost,  // Attention for which a library op is estimated to be faster.
  kAlways,  // All recognized attention, to minimize memory.
  kNever,
};

// Information that a pass may use besides the module.
struct PassContext {
  int64_t devices = 1;  // The number of devices that run this module. Their partition ids count from 0.
  // parameter_labels[leaf][device]: devices with equal labels hold equal values of this leaf of the entry's parameters.
  // Leaves without an entry may differ between any two devices.
  std::vector<std::vector<int>> parameter_labels;
  AttentionChoice attention = AttentionChoice::kByCost;
  bool uses_cublaslt = false;  // Whether the program is for a GPU, where cuBLASLt computes the ops of IsGpuLibraryOp.
  // If not null, receives the costs of all recognized attention.
  std::vector<AttentionCost>* attention_costs = nullptr;
  bool keeps_loops_small = false;  // Whether no loop is made to hold more memory in order to be faster.
  bool has_larger_loops = false;  // Set by passes that have made a loop hold more memory.
  bool is_cpu = true;  // Whether the program is for a CPU. Simulated GPUs and TPUs are not CPUs.
};

using PassFunction = absl::Status (*)(hlo::Module& module, PassContext& context);

#define XLAD_PASS(name, function) absl::Status function(hlo::Module& module, PassContext& context);
#include "compiler/passes/passes.def"
#undef XLAD_PASS

}  // namespace xlad::compiler
