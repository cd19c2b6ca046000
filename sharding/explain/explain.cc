#include "sharding/explain/explain.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
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

// The least that a device sends.
double LeastBytes(const Instruction& collective, int64_t n) {
  const bool gathers = collective.opcode() == Opcode::kAllGather;
  const int64_t bytes = gathers ? collective.shape().bytes() : BytesOf(collective.operands());
  return CommunicationBytes(collective.opcode(), static_cast<double>(bytes), n);
}

// What a ring sends: a reduced or exchanged operand is cut into n chunks of ceil(elements / n) elements.
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

class Explainer {
 public:
  explicit Explainer(const PartitionedProgram& program) : program_(program) {
    for (const CollectiveInfo& info : program.collectives) infos_[info.collective_id] = &info;
  }

  Explanation Run() {
    for (const Variant& variant : program_.variants) {
      Visit(*variant.module->entry(), 1);
      break;  // Variants' collectives are the same by id.
    }
    result_.bytes_per_device = std::llround(bytes_);
    return std::move(result_);
  }

 private:
  void Visit(const hlo::Computation& computation, std::optional<int64_t> times) {
    for (const auto& instruction : computation.instructions()) {
      if (hlo::IsCollective(instruction->opcode())) Add(*instruction, times);
      const bool control = instruction->opcode() == Opcode::kWhile || instruction->opcode() == Opcode::kConditional ||
                           instruction->opcode() == Opcode::kCall;
      if (!control) continue;
      std::optional<int64_t> inner = times;
      if (instruction->opcode() == Opcode::kWhile) {
        const std::optional<int64_t> trips = TripCount(*instruction);
        inner = times && trips ? std::optional(*times * *trips) : std::nullopt;
      }
      for (const hlo::Computation* called : instruction->called()) Visit(*called, inner);
    }
  }

  void Add(const Instruction& instruction, std::optional<int64_t> times) {
    const int64_t devices = program_.mesh.devices();
    ExplainedCollective entry;
    entry.kind = std::string(hlo::ToString(instruction.opcode()));
    for (const auto& group : instruction.attributes().replica_groups.Expand(devices)) {
      entry.group_size = std::max(entry.group_size, std::ssize(group));
    }
    const bool permute = instruction.opcode() == Opcode::kCollectivePermute;
    if (permute) entry.group_size = devices;
    const double bytes = LeastBytes(instruction, entry.group_size);
    entry.bytes = std::llround(bytes);
    entry.wire_bytes = WireBytes(instruction, entry.group_size);
    entry.trip_count = times;
    Describe(instruction, &entry);
    bytes_ += bytes * static_cast<double>(times.value_or(1));
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
  absl::flat_hash_map<int64_t, const CollectiveInfo*> infos_;
  Explanation result_;
  double bytes_ = 0;
};

}  // namespace

absl::StatusOr<Explanation> Explain(const PartitionedProgram& program) {
  if (program.variants.empty()) return absl::InvalidArgumentError("found a partitioned program without a module");
  return Explainer(program).Run();
}

}  // namespace xlad::sharding
