// Small helpers over hlo:: that several passes need.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "hlo/build/builder.h"
#include "hlo/module.h"

namespace xlad::compiler {

using hlo::Computation;
using hlo::Instruction;
using hlo::Module;
using hlo::Opcode;
using hlo::Shape;
using tensor::Dims;
using tensor::ElementType;

// The computations that run as steps: the entry and the conditions, bodies and branches below it, callees first. Not
// among them: reducers, comparators, fused computations.
std::vector<Computation*> StepComputations(const Module& module);

// The instructions of a computation as they are now, so that it may be edited on the way.
std::vector<Instruction*> Snapshot(const Computation& computation);

// Array and token leaves of a shape, in tuple order.
void AppendLeaves(const Shape& shape, std::vector<const Shape*>* leaves);
std::vector<const Shape*> Leaves(const Shape& shape);
int64_t CountLeaves(const Shape& shape);
// The first leaf of tuple element `index`.
int64_t FirstLeaf(const Shape& tuple, int64_t index);

// A copy of `instruction` on other operands, appended to `to`. Called computations are shared.
Instruction* CloneOn(const Instruction& instruction, absl::Span<Instruction* const> operands, Computation* to);

// Copies everything in `from` but its parameters, which become `arguments`, to the end of `to`; returns what stands
// for `from`'s root.
Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to);

// A constant, or a broadcast, reshape or convert-free chain over a scalar constant: the one value that it is full
// of. Null where it is not.
const hlo::Literal* SplatLiteral(const Instruction& instruction);
// The value of a scalar or splat as a double, where it is real.
bool SplatValue(const Instruction& instruction, double* value);
// The value of an integer scalar constant that an int64_t can hold (a u64 may not fit).
bool ConstantInteger(const Instruction& instruction, int64_t* value);

// Whether the instruction must stay although nobody uses it.
bool HasSideEffect(const Instruction& instruction);

// Whether a collective runs in this computation or below it.
bool ContainsCollective(const Computation& computation);

// "found" text for errors: name, opcode, and source where it is known.
std::string Describe(const Instruction& instruction);

}  // namespace xlad::compiler
