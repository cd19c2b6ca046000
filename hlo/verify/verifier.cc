// The verifier runs its groups of rules and adds the place to a violation.
#include "hlo/verify/verifier.h"

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

// Inference treats an unknown size as 0. This is correct for opcodes that only copy sizes or require equal sizes. If
// the check of another opcode fails and a size is unknown, the unknown size is reported as the violation.
absl::Status VerifyResult(const Instruction& instruction) {
  const absl::Status status = CheckResult(instruction);
  if (status.ok() || IsElementwise(instruction.opcode())) return status;
  const Shape* const unbounded = FindUnbounded(instruction);
  if (unbounded == nullptr) return status;
  return Violation("unbounded-dimension", Brief(*unbounded),
                   absl::StrCat("known sizes, because ", ToString(instruction.opcode()), " computes with them"));
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
  return absl::OkStatus();
}

}  // namespace xlad::hlo
