// The rules of Simplify: from an instruction to what replaces it (made with `builder`), or null.
#pragma once

#include "compiler/analysis/hlo_util.h"

namespace xlad::compiler {

// add, multiply, select, compare, convert, ...; also a scalar op pulled in front of broadcasts.
Instruction* SimplifyElementwise(Instruction* instruction, hlo::Builder& builder);
// reshape, broadcast, transpose, slice, pad, concatenate, reverse, dynamic-slice, ...
Instruction* SimplifyShape(Instruction* instruction, hlo::Builder& builder);
// reduce, sort, tuples, control flow.
Instruction* SimplifyOther(Instruction* instruction, hlo::Builder& builder);

// The dims without those of size 1.
Dims WithoutUnits(const Dims& dims);
bool IsIota(const Dims& dims);  // 0, 1, 2, ...

}  // namespace xlad::compiler
