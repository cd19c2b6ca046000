// What a pass may know besides the module.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::compiler {

struct PassContext {
  int64_t devices = 1;
  // For each entry parameter leaf, a label a device: devices with equal labels hold equal values. Empty where
  // nothing is known.
  std::vector<std::vector<int>> parameter_labels;
};

// What every pass is: changes the module; an error stops the pipeline.
using PassFunction = absl::Status (*)(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
