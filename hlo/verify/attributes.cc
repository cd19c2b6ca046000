// Verifier rules on the attributes that shape inference does not check.

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "hlo/analysis/leaves.h"
#include "hlo/infer/rules.h"
#include "hlo/verify/rules.h"

namespace xlad::hlo {
namespace {

// The opcodes that complete an operation, and the opcodes that their operand may have.
struct ChainRow {
  Opcode done;
  std::initializer_list<Opcode> starts;
};

absl::Status CheckChain(const Instruction& instruction) {
// The state of an operation may pass through loops, tuples and copies.
#define XLAD_ASYNC                                                                                              \
  Opcode::kAsyncStart, Opcode::kAsyncUpdate, Opcode::kGetTupleElement, Opcode::kParameter, Opcode::kWhile,      \
      Opcode::kConditional, Opcode::kCall, Opcode::kCopy, Opcode::kOptBarrier, Opcode::kTuple, Opcode::kBitcast
  static const ChainRow kChains[] = {
      {Opcode::kAllReduceDone, {Opcode::kAllReduceStart}},
      {Opcode::kAllGatherDone, {Opcode::kAllGatherStart}},
      {Opcode::kCollectivePermuteDone, {Opcode::kCollectivePermuteStart}},
      {Opcode::kCopyDone, {Opcode::kCopyStart}},
      {Opcode::kAsyncUpdate, {XLAD_ASYNC}},
      {Opcode::kAsyncDone, {XLAD_ASYNC}},
  };
#undef XLAD_ASYNC
  for (const ChainRow& row : kChains) {
    if (row.done != instruction.opcode() || instruction.operand_count() < 1) continue;
    const Opcode opcode = instruction.operand(0)->opcode();
    if (!Contains(row.starts, opcode)) {
      return Violation("async-pair", absl::StrCat("operand ", ToString(opcode)), ToString(*row.starts.begin()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFusion(const Instruction& instruction) {
  const std::string& kind = instruction.attributes().fusion_kind;
  if (kind == "kLoop" || kind == "kInput" || kind == "kOutput" || kind == "kCustom") return absl::OkStatus();
  return Violation("fusion-kind", Setting("kind", kind), "kLoop, kInput, kOutput or kCustom");
}

absl::Status CheckCustomCall(const Instruction& instruction) {
  const Attributes& a = instruction.attributes();
  if (a.custom_call_target.empty()) return Violation("custom-call-target", "no target", "a name");
  if (!a.operand_layout_constraints.empty() &&
      std::ssize(a.operand_layout_constraints) != instruction.operand_count()) {
    return Violation("custom-call-layouts", Counted(a.operand_layout_constraints.size(), "operand layout"),
                     absl::StrCat(instruction.operand_count(), ", one per operand"));
  }
  for (size_t k = 0; k < a.operand_layout_constraints.size(); ++k) {
    XLAD_RETURN_IF_ERROR(VerifyShape(a.operand_layout_constraints[k]));
    const Shape& operand = instruction.operand(k)->shape();
    if (!a.operand_layout_constraints[k].SameIgnoringLayout(operand)) {
      return Violation("custom-call-layouts", absl::StrCat("layout ", Brief(a.operand_layout_constraints[k])),
                       Brief(operand));
    }
  }
  return absl::OkStatus();
}

// The shape inside a buffer. Returns other shapes unchanged.
const Shape* Pinned(const Shape* shape) {
  const bool buffer = shape != nullptr && shape->kind() == Shape::Kind::kBuffer && shape->tuple().size() == 1;
  return buffer ? shape->tuple().data() : shape;
}

// The shapes to which the aliases of `instruction` refer: its result and its operands. The shape of an async-start may
// be incomplete, so its aliases refer to the result and the parameters of the computation that it calls.
void AliasedShapes(const Instruction& instruction, Shape* result, std::vector<const Shape*>* operands) {
  *result = instruction.shape();
  const bool start = instruction.opcode() == Opcode::kAsyncStart && instruction.called().size() == 1 &&
                     result->is_tuple() && result->tuple().size() >= 2;
  if (!start) {
    *operands = OperandShapes(instruction);
    return;
  }
  const Computation& wrapped = *instruction.called()[0];
  std::vector<Shape> parts = result->tuple(), parameters;
  for (const Instruction* const parameter : wrapped.parameters()) {
    operands->push_back(&parameter->shape());
    parameters.push_back(parameter->shape());
  }
  parts[0] = Shape::Tuple(std::move(parameters));
  parts[1] = wrapped.root()->shape();
  *result = Shape::Tuple(std::move(parts));
}

absl::Status CheckOutputAliases(const Instruction& instruction) {
  if (instruction.attributes().output_operand_aliasing.empty()) return absl::OkStatus();
  Shape result;
  std::vector<const Shape*> operands;
  AliasedShapes(instruction, &result, &operands);
  for (const OutputOperandAlias& alias : instruction.attributes().output_operand_aliasing) {
    const bool known = alias.operand >= 0 && alias.operand < std::ssize(operands);
    const Shape* const output = Pinned(PartAt(result, alias.output_index));
    const Shape* const operand =
        Pinned(known ? PartAt(*operands[alias.operand], alias.operand_index) : nullptr);
    if (output == nullptr || operand == nullptr) {
      return Violation("output-operand-alias",
                       absl::StrCat("output ", Brief(alias.output_index), " and operand ", alias.operand, " ",
                                    Brief(alias.operand_index)),
                       "a part of the result and a part of an operand");
    }
    if (output->is_array() != operand->is_array() || output->bytes() != operand->bytes()) {
      const bool alike = output->is_array() == operand->is_array();
      return Violation("output-operand-alias", absl::StrCat(Brief(*output), " aliased to ", Brief(*operand)),
                       alike ? "an equal number of bytes" : "two arrays or two tuples");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckConstant(const Instruction& instruction) {
  for (const Shape& part : instruction.shape().is_tuple() ? instruction.shape().tuple() : std::vector<Shape>{}) {
    if (!part.is_array() && !part.is_tuple()) return Violation("constant-literal", Brief(part), "arrays");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyAttributes(const Instruction& instruction) {
  XLAD_RETURN_IF_ERROR(CheckChain(instruction));
  XLAD_RETURN_IF_ERROR(CheckOutputAliases(instruction));
  switch (instruction.opcode()) {
    case Opcode::kFusion:
      return CheckFusion(instruction);
    case Opcode::kCustomCall:
      return CheckCustomCall(instruction);
    case Opcode::kConstant:
      return CheckConstant(instruction);
    case Opcode::kOutfeed:
      return VerifyShape(instruction.attributes().outfeed_shape);
    default:
      return absl::OkStatus();
  }
}

}  // namespace xlad::hlo
