// Inside the verifier: its groups of rules, a file each. They run in this order, and each may trust what those
// before it have checked.
#pragma once

#include <string>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// The largest programs and shapes that pass. Far beyond real programs; they keep hostile ones from using up stack,
// memory and time.
constexpr int64_t kMaxNdim = 64;
constexpr int64_t kMaxTupleDepth = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kMaxCallDepth = 200;
constexpr int64_t kMaxExpandedInstructions = int64_t{1} << 28;  // With every call written out.
constexpr int64_t kMaxDevices = int64_t{1} << 24;

// "12:3: %add.4: " in front of a violation; of a computation, the place of its first instruction.
absl::Status AtInstruction(const absl::Status& status, const Instruction& instruction);
absl::Status AtComputation(const absl::Status& status, const Computation& computation);

// verifier_structure.cc: entry, roots, parameters, operands, order, calls. Touches no shapes.
absl::Status VerifyStructure(const Module& module);
// verifier_shape.cc: the shape itself, bounded and with a layout that fits.
absl::Status VerifyShape(const Shape& shape);
// The part of `shape` at `index`; nullptr where there is none.
const Shape* PartAt(const Shape& shape, const Dims& index);
// verifier_attributes.cc: what shape inference does not look at.
absl::Status VerifyAttributes(const Instruction& instruction);
// verifier_collective.cc: replica groups, pairs and channels. Holds no expanded groups beyond kMaxDevices.
absl::Status VerifyCollective(const Instruction& instruction);
// verifier_sharding.cc: sharding={...} against the instruction's shape.
absl::Status VerifySharding(const Instruction& instruction);
// verifier_header.cc: device counts, aliases, donors, entry layout, stack frames.
absl::Status VerifyHeader(const Module& module);

}  // namespace xlad::hlo
