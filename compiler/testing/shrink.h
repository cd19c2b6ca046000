// A smaller program that fails in the same way.
#pragma once

#include <functional>
#include <memory>

#include "hlo/module.h"

namespace xlad::compiler {

// Takes values out of `module` (zeros for them, or the operand where that has the same values) and annotations off as
// long as `fails` says that the rest still fails. Parameters and the number and shapes of the results stay. Calls
// `fails` at most `tries` times.
std::unique_ptr<hlo::Module> Shrink(const hlo::Module& module, const std::function<bool(const hlo::Module&)>& fails,
                                    int tries);

}  // namespace xlad::compiler
