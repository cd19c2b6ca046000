// The passes of the compiler's pipeline. passes.def lists them in execution order.
//
// A pass changes the module in place and keeps its meaning: the evaluator returns the same results before and after it,
// except that arithmetic may round differently and a NaN result may have another payload. A pass may assume that the
// module is verified and that the passes in all rows above its own have run. An error stops the pipeline, which adds
// the name of the pass to the message.
//
// Passes run on one thread and keep no state between calls.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "compiler/analysis/attention_cost.h"
#include "hlo/module.h"

namespace xlad::compiler {

// Which attention becomes library ops.
enum class AttentionChoice {
  kByCost,  // That which is faster so.
  kAlways,  // All that is recognized, for the least memory.
  kNever,
};

// What a pass may know besides the module.
struct PassContext {
  int64_t devices = 1;  // The number of devices that run this module. Their partition ids count from 0.
  // parameter_labels[leaf][device]: devices with equal labels hold equal values of this leaf of the entry's parameters.
  // Leaves without an entry may differ between any two devices.
  std::vector<std::vector<int>> parameter_labels;
  AttentionChoice attention = AttentionChoice::kByCost;
  std::vector<AttentionCost>* attention_costs = nullptr;  // If not null, gets those of all recognized attention.
};

using PassFunction = absl::Status (*)(hlo::Module& module, PassContext& context);

#define XLAD_PASS(name, function) absl::Status function(hlo::Module& module, PassContext& context);
#include "compiler/passes/passes.def"
#undef XLAD_PASS

}  // namespace xlad::compiler
