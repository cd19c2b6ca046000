#include "compiler/analysis/overlap_cost.h"

#include <algorithm>
#include <cmath>

#include "collectives/plan/cost_parameters.h"
#include "compiler/analysis/flops.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/analysis/library_op.h"
#include "hlo/analysis/transparent.h"
#include "hlo/attribute_keys.h"
#include "sharding/cost/cost.h"

namespace xlad::compiler {
namespace {

using hlo::Instruction;
using hlo::Opcode;

constexpr double kNsOfLibraryFlop = 0.02;

double NsOfAll(const hlo::Computation& computation) {
  double ns = 0;
  for (const auto& instruction : computation.instructions()) ns += ComputeNs(*instruction);
  return ns;
}

// The number of rounds of an all-reduce by recursive halving and doubling.
double RoundsOf(int64_t ranks) { return 2 * std::ceil(std::log2(static_cast<double>(std::max<int64_t>(ranks, 2)))); }

}  // namespace

double ComputeNs(const Instruction& instruction) {
  if (IsTransparent(instruction)) return 0;
  switch (instruction.opcode()) {
    case Opcode::kWhile: {
      const auto trips = static_cast<double>(std::max<int64_t>(hlo::NotedTripCount(instruction).value_or(1), 1));
      return trips * (NsOfAll(*instruction.called()[0]) + NsOfAll(*instruction.called()[1]));
    }
    case Opcode::kConditional: {
      double ns = 0;
      for (const hlo::Computation* branch : instruction.called()) ns += NsOfAll(*branch);
      return ns / static_cast<double>(instruction.called().size());
    }
    default:
      break;
  }
  if (hlo::IsCollective(instruction.opcode())) return 0;
  if (IsLibraryOp(instruction)) return kNsOfLibraryFlop * FlopsOf(instruction);
  return EstimateNs(instruction);
}

double TransferNs(const Instruction& collective, int64_t ranks, const NetworkSpeed& network) {
  double operands = 0;
  for (const Instruction* operand : collective.operands()) operands += static_cast<double>(operand->shape().bytes());
  const double bytes = std::max(operands, static_cast<double>(collective.shape().bytes()));
  return network.latency_ns + sharding::CommunicationBytes(collective.opcode(), bytes, ranks) / network.bytes_per_ns;
}

int64_t BucketBytes(int64_t total, int64_t ranks) {
  const collectives::CostParameters costs;
  const double latency_ns = RoundsOf(ranks) * (costs.round_us + costs.message_us) * 1e3;
  const double ns_of_byte =
      sharding::CommunicationBytes(Opcode::kAllReduce, 1, std::max<int64_t>(ranks, 2)) / costs.gigabytes_per_s;
  const double latency_bytes = latency_ns / ns_of_byte;
  const auto all = static_cast<double>(total);
  if (all <= latency_bytes) return total;
  return std::min(std::sqrt(all * latency_bytes), all / 2);
}

}  // namespace xlad::compiler
