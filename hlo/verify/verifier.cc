// The verifier runs its groups of rules and adds the place to a violation.
#include "hlo/verify/verifier.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hlo/infer/infer.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

absl::Status CheckResult(const Instruction& instruction) {
  XLAD_ASSIGN_OR_RETURN(const Shape expected, InferShape(instruction));
  if (instruction.shape().SameIgnoringLayout(expected)) return absl::OkStatus();
  return Violation("result-shape", absl::StrCat("result ", Brief(instruction.shape())),
                   absl::StrCat(Brief(expected), ", the result shape of ", ToString(instruction.opcode())));
}

// The first shape with an unknown size ("?") among the operands and the result, or null if there is none.
const Shape* FindUnbounded(const Instruction& instruction) {
  for (const Instruction* const operand : instruction.operands()) {
    if (operand->shape().has_unbounded()) return &operand->shape();
  }
  return instruction.shape().has_unbounded() ? &instruction.shape() : nullptr;
}

absl::Status NeedsKnownSizes(const Instruction& instruction) {
  const Shape* const unbounded = FindUnbounded(instruction);
  return Violation("unbounded-dimension",
                   unbounded == nullptr ? "a computation with unknown sizes" : Brief(*unbounded),
                   absl::StrCat("known sizes, because ", ToString(instruction.opcode()),
                                IsElementwise(instruction.opcode()) ? " requires equal ones" : " computes with them"));
}

// Inference treats an unknown size as 0. This is correct for opcodes that only copy sizes or require equal sizes. For
// all others an unknown size is a violation, here or in VerifyOtherSizes.
absl::Status VerifyResult(const Instruction& instruction) {
  const absl::Status status = CheckResult(instruction);
  if (status.ok() || IsElementwise(instruction.opcode()) || FindUnbounded(instruction) == nullptr) return status;
  return NeedsKnownSizes(instruction);
}

void SetUnknownSizes(int64_t size, Shape* shape) {
  for (Shape& element : shape->tuple()) SetUnknownSizes(size, &element);
  for (size_t d = 0; d < shape->extents().size(); ++d) {
    if (shape->extents()[d] == Shape::Extent::kUnbounded) shape->array().dims[d] = size;
  }
}

// An opcode that computes with unknown sizes may by chance accept 0, as a reshape of f32[?] to f32[0] does. It does not
// accept another size as well, so the program is checked a second time with a prime number that is unlikely in
// programs.
absl::Status VerifyOtherSizes(const Module& module) {
  constexpr int64_t kOtherSize = 1009;
  const auto has_unbounded = [](const auto& computation) {
    return std::any_of(computation->instructions().begin(), computation->instructions().end(),
                       [](const auto& instruction) { return instruction->shape().has_unbounded(); });
  };
  const auto& computations = module.computations();
  if (std::none_of(computations.begin(), computations.end(), has_unbounded)) return absl::OkStatus();
  const std::unique_ptr<Module> other = module.Clone();
  for (const auto& computation : other->computations()) {
    for (const auto& instruction : computation->instructions()) {
      SetUnknownSizes(kOtherSize, &instruction->mutable_shape());
      SetUnknownSizes(kOtherSize, &instruction->mutable_attributes().outfeed_shape);
    }
  }
  for (size_t c = 0; c < computations.size(); ++c) {
    const auto& instructions = computations[c]->instructions();
    for (size_t i = 0; i < instructions.size(); ++i) {
      if (CheckResult(*other->computations()[c]->instructions()[i]).ok()) continue;
      return AtInstruction(NeedsKnownSizes(*instructions[i]), *instructions[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyInstruction(const Instruction& instruction) {
  XLAD_RETURN_IF_ERROR(VerifyAttributes(instruction));
  XLAD_RETURN_IF_ERROR(VerifyCollective(instruction));
  XLAD_RETURN_IF_ERROR(VerifyResult(instruction));
  return VerifySharding(instruction);
}

}  // namespace

absl::Status AtInstruction(const absl::Status& status, const Instruction& instruction) {
  if (status.ok()) return status;
  const std::string place =
      instruction.line() > 0 ? absl::StrCat(instruction.line(), ":", instruction.column(), ": ") : "";
  return Annotate(status, absl::StrCat(place, "%", instruction.name()));
}

absl::Status AtComputation(const absl::Status& status, const Computation& computation) {
  if (status.ok()) return status;
  const auto& instructions = computation.instructions();
  const bool placed = !instructions.empty() && instructions[0]->line() > 0;
  const std::string place = placed ? absl::StrCat(instructions[0]->line(), ":", instructions[0]->column(), ": ") : "";
  return Annotate(status, absl::StrCat(place, "computation %", computation.name()));
}

absl::Status Verify(const Module& module) {
  XLAD_RETURN_IF_ERROR(VerifyStructure(module));
  // All shapes are checked before any rule computes with them.
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      XLAD_RETURN_IF_ERROR(AtInstruction(VerifyShape(instruction->shape()), *instruction));
    }
  }
  XLAD_RETURN_IF_ERROR(VerifyHeader(module));
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      XLAD_RETURN_IF_ERROR(AtInstruction(VerifyInstruction(*instruction), *instruction));
    }
  }
  return VerifyOtherSizes(module);
}

}  // namespace xlad::hlo
