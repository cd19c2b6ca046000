// The names of hlo:: and tensor:: that the compiler uses without qualification.
#pragma once

#include "hlo/module.h"

namespace xlad::compiler {

using hlo::Computation;
using hlo::Instruction;
using hlo::Module;
using hlo::Opcode;
using hlo::Shape;
using tensor::Dims;
using tensor::ElementType;

}  // namespace xlad::compiler
