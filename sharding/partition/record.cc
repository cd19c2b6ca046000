// The tag of every collective: which op needs it, and the chain of causes down to the user's annotations.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "hlo/attribute_keys.h"
#include "sharding/partition/emitter.h"

namespace xlad::sharding {
namespace {

using Kind = ReshardStep::Kind;

void AppendNew(const std::vector<std::string>& lines, std::vector<std::string>* to) {
  for (const std::string& line : lines) {
    if (std::find(to->begin(), to->end(), line) == to->end()) to->push_back(line);
  }
}

// The axes that differ between before and after, on any dimension.
AxisList Changed(const ReshardStep& step) {
  AxisList changed = step.axes;
  for (size_t d = 0; d < step.before.size(); ++d) {
    if (step.before[d] == step.after[d]) continue;
    changed.insert(changed.end(), step.before[d].begin(), step.before[d].end());
    changed.insert(changed.end(), step.after[d].begin(), step.after[d].end());
  }
  return changed;
}

}  // namespace

std::vector<std::string> Emitter::Because(const LocalArray& from, const ReshardStep& step, const TensorSharding& to,
                                          const Why& why) const {
  std::vector<std::string> lines;
  const bool reduces = step.kind == Kind::kAllReduce || step.kind == Kind::kReduceScatter;
  if (reduces) AppendNew(Chain(from.partial), &lines);
  if (step.kind == Kind::kAllReduce && !lines.empty()) return lines;
  const std::string place = why.op == nullptr ? "" : program_->source->module->SourceOf(*why.op);
  const std::string name = why.op == nullptr ? "program" : why.op->name();
  std::string what = absl::StrCat(name, ": ", why.what, place.empty() ? "" : absl::StrCat(" (", place, ")"));
  lines.insert(reduces ? lines.end() : lines.begin(), std::move(what));
  for (const AxisRef& axis : Changed(step)) {
    AppendNew(Chain(OriginOf(from.sharding, axis)), &lines);
    AppendNew(Chain(OriginOf(to, axis)), &lines);
  }
  return lines;
}

void Emitter::Record(hlo::Instruction* collective, const LocalArray& from, const ReshardStep& step,
                     const TensorSharding& to, const Why& why) {
  CollectiveInfo info;
  info.collective_id = collective_id_;
  info.kind = std::string(hlo::ToString(collective->opcode()));
  info.axes = step.kind == Kind::kPermute ? Changed(step) : step.axes;
  std::sort(info.axes.begin(), info.axes.end());
  info.axes.erase(std::unique(info.axes.begin(), info.axes.end()), info.axes.end());
  info.axes = step.kind == Kind::kPermute ? Merged(info.axes) : step.axes;
  info.op = why.op == nullptr ? "" : why.op->name();
  info.because = Because(from, step, to, why);
  hlo::WriteOrigin({ToString(mesh(), info.axes), {info.op}, info.because}, collective);
  program_->collectives.push_back(std::move(info));
}

}  // namespace xlad::sharding
