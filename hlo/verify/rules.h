// The groups of rules of the verifier, one file each. VerifyStructure runs first, then VerifyShape for every
// instruction, then VerifyHeader. Then, for one instruction after the other, VerifyAttributes, VerifyCollective, shape
// inference and VerifySharding run. Each group may rely on the ones before it. Internal to the verifier.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "hlo/module.h"

namespace xlad::hlo {

// Limits on programs and shapes. They are far above the sizes of real programs, and they bound the stack, memory and
// time that a hostile program can use.
constexpr int64_t kMaxNdim = 64;
constexpr int64_t kMaxTupleDepth = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 62;
constexpr int64_t kMaxCallDepth = 200;
constexpr int64_t kMaxExpandedInstructions = 1 << 28;  // The number of instructions after inlining every call.
constexpr int64_t kMaxDevices = 1 << 24;

// Puts the place "12:3: computation %main: " in front of an error. The place of a computation is that of its first
// instruction.
absl::Status AtComputation(const absl::Status& status, const Computation& computation);

// structure.cc: entry, roots, parameters, operands, order and calls. It does not read shapes.
absl::Status VerifyStructure(const Module& module);
// shape.cc: the limits on a shape, and its layout.
absl::Status VerifyShape(const Shape& shape);
// attributes.cc: the attributes that shape inference does not check.
absl::Status VerifyAttributes(const Instruction& instruction);
// collective.cc: replica groups, pairs and channels. It never expands groups of more than kMaxDevices devices.
absl::Status VerifyCollective(const Instruction& instruction);
// The product of `sizes`, or nullopt if a size is below 1 or the product above kMaxDevices.
std::optional<int64_t> DeviceProduct(const Dims& sizes);
// sharding.cc: whether sharding={...} fits the shape of the instruction.
absl::Status VerifySharding(const Instruction& instruction);
// header.cc: device counts, aliases, donors, entry layout and stack frames.
absl::Status VerifyHeader(const Module& module);

}  // namespace xlad::hlo
