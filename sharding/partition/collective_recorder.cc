#include "sharding/partition/collective_recorder.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "base/sort_distinct.h"
#include "hlo/attribute_keys.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;

void AppendNew(const std::vector<std::string>& lines, std::vector<std::string>* to) {
  for (const std::string& line : lines) {
    if (!Contains(*to, line)) to->push_back(line);
  }
}

// The axes of the step and those of the dimensions whose axes differ before and after it.
AxisList ChangedAxes(const ReshardStep& step) {
  AxisList changed = step.axes;
  for (size_t d = 0; d < step.before.size(); ++d) {
    if (step.before[d] == step.after[d]) continue;
    changed.insert(changed.end(), step.before[d].begin(), step.before[d].end());
    changed.insert(changed.end(), step.after[d].begin(), step.after[d].end());
  }
  return changed;
}

// The axes along which a collective runs. The step of a permute does not list its axes: they are the axes that the
// permute changes.
AxisList AxesAlong(const ReshardStep& step) {
  if (step.kind != Kind::kPermute) return step.axes;
  AxisList axes = ChangedAxes(step);
  SortDistinct(&axes);
  return Merged(axes);
}

std::string Parenthesized(const std::string& place) { return place.empty() ? "" : absl::StrCat(" (", place, ")"); }

// The mesh axes along which the two devices of some pair have different positions.
AxisList CrossedAxes(const Mesh& mesh, const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  AxisList crossed;
  for (int axis = 0; axis < std::ssize(mesh.axes()); ++axis) {
    const AxisList one = {mesh.Whole(axis)};
    const bool crosses = std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) {
      return mesh.Position(pair.first, one) != mesh.Position(pair.second, one);
    });
    if (crosses) crossed.push_back(one[0]);
  }
  return crossed;
}

}  // namespace

std::vector<std::string> CollectiveRecorder::Because(const CollectivePurpose& purpose) const {
  const auto& [from, step, to, cause] = purpose;
  std::vector<std::string> lines;
  const bool reduces = step.kind == Kind::kAllReduce || step.kind == Kind::kReduceScatter;
  if (reduces) AppendNew(Chain(from.partial), &lines);
  if (step.kind == Kind::kAllReduce && !lines.empty()) return lines;
  const std::string place = cause.op == nullptr ? "" : source_.module->SourceOf(*cause.op);
  const std::string name = cause.op == nullptr ? "program" : cause.op->name();
  lines.insert(reduces ? lines.end() : lines.begin(), absl::StrCat(name, ": ", cause.what, Parenthesized(place)));
  for (const AxisRef& axis : ChangedAxes(step)) {
    AppendNew(Chain(OriginOf(from.sharding, axis)), &lines);
    AppendNew(Chain(OriginOf(to, axis)), &lines);
  }
  return lines;
}

void CollectiveRecorder::Add(CollectiveInfo info, hlo::Instruction* collective) {
  info.collective_id = CollectiveId{*collective->attributes().channel_id};
  info.kind = std::string(hlo::ToString(collective->opcode()));
  hlo::WriteOrigin({ToString(source_.mesh, info.axes), {info.op}, info.because}, collective);
  records_.push_back(std::move(info));
}

void CollectiveRecorder::Record(hlo::Instruction* collective, const CollectivePurpose& purpose) {
  CollectiveInfo info;
  info.axes = AxesAlong(purpose.step);
  info.op = purpose.cause.op == nullptr ? "" : purpose.cause.op->name();
  info.because = Because(purpose);
  Add(std::move(info), collective);
}

void CollectiveRecorder::RecordUserCollective(const hlo::Instruction& source, hlo::Instruction* local) {
  hlo::Attributes& attributes = local->mutable_attributes();
  std::vector<std::pair<int64_t, int64_t>> pairs = attributes.source_target_pairs;
  if (source.opcode() != hlo::Opcode::kCollectivePermute) {
    hlo::ReplicaGroups groups;
    groups.groups = attributes.replica_groups.Expand(source_.mesh.devices());
    attributes.replica_groups = groups;
    for (const auto& group : groups.groups) {
      for (int64_t device : group) pairs.emplace_back(group[0], device);
    }
  }
  CollectiveInfo info;
  info.axes = CrossedAxes(source_.mesh, pairs);
  info.op = source.name();
  info.written_by_user = true;
  info.because = {absl::StrCat(source.name(), ": written in a manual computation",
                               Parenthesized(source_.module->SourceOf(source)))};
  attributes.channel_id = ChannelOf(NewId());
  Add(std::move(info), local);
}

std::vector<CollectiveInfo> CollectiveRecorder::TakeRecords(const hlo::Module& module) {
  absl::flat_hash_set<int64_t> used;
  for (const auto& computation : module.computations()) {
    for (const auto& instruction : computation->instructions()) {
      if (hlo::IsCollective(instruction->opcode()) && instruction->attributes().channel_id) {
        used.insert(*instruction->attributes().channel_id);
      }
    }
  }
  std::erase_if(records_, [&](const CollectiveInfo& info) {
    return !used.contains(ChannelOf(info.collective_id));
  });
  return std::move(records_);
}

}  // namespace xlad::sharding
