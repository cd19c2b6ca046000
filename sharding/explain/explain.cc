#include "sharding/explain/explain.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_split.h"
#include "hlo/analysis/trip_count.h"
#include "sharding/cost/cost.h"
#include "sharding/model/axes.h"

namespace xlad::sharding {
namespace {

using hlo::Instruction;
using hlo::Opcode;

int64_t BytesOf(absl::Span<Instruction* const> values) {
  int64_t bytes = 0;
  for (const Instruction* value : values) bytes += value->shape().bytes();
  return bytes;
}

// The minimum number of bytes that each device sends.
double LeastBytes(const Instruction& collective, int64_t n) {
  const bool gathers = collective.opcode() == Opcode::kAllGather;
  const int64_t bytes = gathers ? collective.shape().bytes() : BytesOf(collective.operands());
  return CommunicationBytes(collective.opcode(), static_cast<double>(bytes), n);
}

// The number of bytes that each device sends in a ring algorithm, which cuts a reduced or exchanged operand into n
// chunks of ceil(elements / n) elements.
int64_t WireBytes(const Instruction& collective, int64_t n) {
  switch (collective.opcode()) {
    case Opcode::kAllReduce:
    case Opcode::kReduceScatter:
    case Opcode::kAllToAll: break;
    default: return std::llround(LeastBytes(collective, n));
  }
  int64_t padded = 0;
  for (const Instruction* operand : collective.operands()) {
    padded += ShardSize(operand->shape().elements(), n) * n * tensor::ByteWidth(operand->shape().type());
  }
  return std::llround(CommunicationBytes(collective.opcode(), static_cast<double>(padded), n));
}

// The size of the largest group of a collective on `devices` devices.
int64_t GroupSize(const hlo::ReplicaGroups& groups, int64_t devices) {
  if (groups.iota) return groups.iota->dims.back();
  int64_t size = 1;
  for (const auto& group : groups.Expand(devices)) size = std::max(size, std::ssize(group));
  return size;
}

class Explainer {
 public:
  explicit Explainer(const PartitionedProgram& program) : program_(program), infos_(ByChannel(program)) {}

  Explanation Run() {
    for (const Variant& variant : program_.variants) {
      Visit(*variant.module->entry(), {1, 1});
      break;  // All variants have the same collectives.
    }
    result_.bytes_per_device = std::llround(bytes_);
    return std::move(result_);
  }

 private:
  // The number of times that one step of the program runs a computation.
  struct Runs {
    std::optional<int64_t> known;  // Nullopt in a loop whose trip count is unknown.
    double assumed;                // Counts kAssumedTripCount iterations of each such loop.
  };

  void Visit(const hlo::Computation& computation, const Runs& runs) {
    for (const auto& instruction : computation.instructions()) {
      if (hlo::IsCollective(instruction->opcode())) Add(*instruction, runs);
      const bool control = instruction->opcode() == Opcode::kWhile || instruction->opcode() == Opcode::kConditional ||
                           instruction->opcode() == Opcode::kCall;
      if (!control) continue;
      Runs inner = runs;
      if (instruction->opcode() == Opcode::kWhile) {
        const std::optional<int64_t> trips = TripCount(*instruction);
        inner.known = runs.known && trips ? std::optional(*runs.known * *trips) : std::nullopt;
        inner.assumed = runs.assumed * static_cast<double>(TripCountOrAssumed(*instruction));
      }
      for (const hlo::Computation* called : instruction->called()) Visit(*called, inner);
    }
  }

  void Add(const Instruction& instruction, const Runs& runs) {
    const int64_t devices = program_.mesh.devices();
    ExplainedCollective entry;
    entry.kind = std::string(hlo::ToString(instruction.opcode()));
    entry.group_size = GroupSize(instruction.attributes().replica_groups, devices);
    const bool permute = instruction.opcode() == Opcode::kCollectivePermute;
    if (permute) entry.group_size = devices;
    const double bytes = LeastBytes(instruction, entry.group_size);
    entry.bytes = std::llround(bytes);
    entry.wire_bytes = WireBytes(instruction, entry.group_size);
    entry.trip_count = runs.known;
    Describe(instruction, &entry);
    bytes_ += bytes * static_cast<double>(runs.known.value_or(1));
    result_.assumed_bytes_per_device += bytes * runs.assumed;
    result_.collectives.push_back(std::move(entry));
  }

  void Describe(const Instruction& instruction, ExplainedCollective* entry) const {
    const auto found = infos_.find(instruction.attributes().channel_id.value_or(-1));
    if (found != infos_.end()) {
      const CollectiveInfo& info = *found->second;
      for (const AxisRef& axis : info.axes) entry->axes.push_back(ToString(program_.mesh, {axis}));
      entry->op = info.op;
      entry->because = info.because;
      return;
    }
    entry->op = instruction.name();
    const std::string source = program_.variants[0].module->SourceOf(instruction);
    entry->because.push_back(
        absl::StrCat(instruction.name(), ": written in the program", source.empty() ? "" : " (" + source + ")"));
  }

  const PartitionedProgram& program_;
  const CollectivesByChannel infos_;
  Explanation result_;
  double bytes_ = 0;
};

}  // namespace

absl::StatusOr<Explanation> Explain(const PartitionedProgram& program) {
  if (program.variants.empty()) {
    return absl::InvalidArgumentError("found a partitioned program without a module, expected one");
  }
  return Explainer(program).Run();
}

}  // namespace xlad::sharding
