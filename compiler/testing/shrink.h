// Reduces a failing program to a smaller program that fails in the same way (delta debugging, Zeller 2002).
#pragma once

#include <functional>
#include <memory>

#include "hlo/module.h"

namespace xlad::compiler {

// Replaces instructions of `module` with zeros or, for some opcodes, with their first operand if it has the same shape,
// and removes annotations, as long as `fails` returns true for the result. Keeps parameters and the number and shapes
// of results. Calls `fails` at most `tries` times.
std::unique_ptr<hlo::Module> Shrink(const hlo::Module& module, const std::function<bool(const hlo::Module&)>& fails,
                                    int tries);

}  // namespace xlad::compiler
