#include "sharding/cost/cost.h"

#include "hlo/analysis/counts.h"
#include "hlo/analysis/trip_count.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

double FlopsOf(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kDot) return hlo::DotFlops(instruction);
  return instruction.opcode() == Opcode::kConvolution ? hlo::ConvolutionFlops(instruction) : 0;
}

}  // namespace

double CommunicationBytes(Opcode collective, double bytes, int64_t group_size) {
  const double n = group_size;
  switch (collective) {
    case Opcode::kAllReduce:
      return 2 * bytes * (n - 1) / n;  // Multiplying first keeps integral results exact.
    case Opcode::kAllGather:
    case Opcode::kReduceScatter:
    case Opcode::kAllToAll:
      return bytes * (n - 1) / n;
    default:
      return bytes;
  }
}

double Flops(const hlo::Computation& computation) {
  double flops = 0;
  for (const auto& instruction : computation.instructions()) {
    flops += FlopsOf(*instruction);
    const bool loop = instruction->opcode() == Opcode::kWhile;
    if (!loop && instruction->opcode() != Opcode::kConditional && instruction->opcode() != Opcode::kCall) continue;
    const double times = loop ? static_cast<double>(TripCountOrAssumed(*instruction)) : 1;
    for (const hlo::Computation* called : instruction->called()) flops += times * Flops(*called);
  }
  return flops;
}

}  // namespace xlad::sharding
