// Maps each opcode to its evaluation function, or to the reason why it is not evaluated.
#include "base/containers.h"
#include "hlo/eval/evaluate.h"
#include "hlo/eval/operation.h"

namespace xlad::hlo {
namespace eval {
namespace {

std::vector<EvalFunction> MakeTable() {
  std::vector<EvalFunction> table(OpcodeCount());
  const absl::Span<const EvalRow> families[] = {
      UnaryRows(), UnaryMathRows(),   BinaryRows(), SelectRows(),  ConvertRows(), ShapeRows(),     DynamicRows(),
      TupleRows(), DotRows(),         GatherRows(), ScatterRows(), ReduceRows(),  WindowRows(),    SortRows(),
      MapRows(),   ConvolutionRows(), RngRows(),    FftRows(),     LinalgRows(),  BatchNormRows(), CustomCallRows(),
  };
  for (const auto& family : families) {
    for (const EvalRow& row : family) table[Index(row.opcode)] = row.function;
  }
  return table;
}

struct Reason {
  Opcode opcode;
  absl::string_view text;
};

constexpr absl::string_view kHost = "it exchanges data with the host while the program runs";

constexpr Reason kReasons[] = {
    {Opcode::kInfeed, kHost},
    {Opcode::kOutfeed, kHost},
    {Opcode::kRng, "its results depend on a generator's hidden state; use rng-bit-generator"},
    {Opcode::kRngGetAndUpdateState, "its results depend on a generator's hidden state; use rng-bit-generator"},
    {Opcode::kShuffle, "it is an instruction of one backend without a documented meaning"},
};

// The opcodes, other than collectives, that the interpreter runs itself.
constexpr Opcode kByInterpreter[] = {
    Opcode::kParameter,     Opcode::kConstant,      Opcode::kCall,        Opcode::kFusion,
    Opcode::kWhile,         Opcode::kConditional,   Opcode::kAsyncStart,  Opcode::kAsyncUpdate,
    Opcode::kAsyncDone,     Opcode::kAllGatherDone, Opcode::kPartitionId, Opcode::kCollectivePermuteDone,
    Opcode::kAllReduceDone, Opcode::kReplicaId,     Opcode::kSend,        Opcode::kSendDone,
    Opcode::kRecv,          Opcode::kRecvDone,
};

}  // namespace

EvalFunction FindEvalFunction(Opcode opcode) {
  static const std::vector<EvalFunction> table = MakeTable();
  return table[Index(opcode)];
}

absl::Status NotDefined(const Operation& operation, ElementType type) {
  return absl::UnimplementedError(
      absl::StrCat(ToString(operation.instruction.opcode()), " is not defined for ", tensor::ToString(type)));
}

}  // namespace eval

absl::string_view WhyNoEvaluator(Opcode opcode) {
  for (const eval::Reason& reason : eval::kReasons) {
    if (reason.opcode == opcode) return reason.text;
  }
  return HasEvaluator(opcode) ? "" : "the evaluator has no function for it";
}

bool HasEvaluator(Opcode opcode) {
  return eval::FindEvalFunction(opcode) != nullptr || IsCollective(opcode) || Contains(eval::kByInterpreter, opcode);
}

}  // namespace xlad::hlo
