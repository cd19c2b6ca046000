// Small helpers over hlo:: that several passes need.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "hlo/analysis/constants.h"
#include "hlo/analysis/leaves.h"
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

// A copy of `instruction` on other operands, appended to `to`. Called computations are shared.
Instruction* CloneOn(const Instruction& instruction, absl::Span<Instruction* const> operands, Computation* to);

// Copies everything in `from` but its parameters, which become `arguments`, to the end of `to`; returns what stands
// for `from`'s root.
Instruction* InlineInto(const Computation& from, absl::Span<Instruction* const> arguments, Computation* to);

// Whether the instruction must stay although nobody uses it.
bool HasSideEffect(const Instruction& instruction);

// Whether a collective runs in this computation or below it.
bool ContainsCollective(const Computation& computation);

// "found" text for errors: name, opcode, and source where it is known.
std::string Describe(const Instruction& instruction);

}  // namespace xlad::compiler
