#include "sharding/cost/cost.h"

#include "hlo/analysis/trip_count.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

double Elements(const hlo::Shape& shape) { return static_cast<double>(shape.elements()); }

double FlopsOf(const Instruction& instruction) {
  if (instruction.opcode() == Opcode::kDot) {
    double contracted = 1;
    for (const int64_t d : instruction.attributes().dot->lhs_contracting) {
      contracted *= static_cast<double>(instruction.operand(0)->shape().dims()[d]);
    }
    return 2 * Elements(instruction.shape()) * contracted;
  }
  if (instruction.opcode() != Opcode::kConvolution) return 0;
  const hlo::Shape& kernel = instruction.operand(1)->shape();
  const size_t features = instruction.attributes().convolution->kernel_output_feature;
  return 2 * Elements(instruction.shape()) * Elements(kernel) / static_cast<double>(kernel.dims()[features]);
}

}  // namespace

double CommunicationBytes(Opcode collective, double bytes, int64_t group_size) {
  const double n = static_cast<double>(group_size);
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
