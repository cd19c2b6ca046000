// Helpers for building schedules.
#include "collectives/plan/algorithms/build.h"

namespace xlad::collectives {

std::vector<Interval> Parts(Interval all, int64_t n) {
  std::vector<Interval> parts;
  parts.reserve(n);
  for (int64_t i = 0; i < n; ++i) parts.push_back(Part(all, n, i));
  return parts;
}

ScheduleBuilder::ScheduleBuilder(const CollectiveSpec& spec, int rank) {
  schedule_.rank = rank;
  schedule_.ranks = spec.ranks;
  schedule_.input = spec.input_elements(rank);
  schedule_.output = spec.output_elements(rank);
}

void ScheduleBuilder::Send(int peer, Region src) {
  if (src.count > 0) schedule_.ops.push_back({OpKind::kSend, channel_, peer, src, {}, {}, {}, 0});
}

void ScheduleBuilder::Recv(int peer, Region dst) {
  if (dst.count > 0) schedule_.ops.push_back({OpKind::kRecv, channel_, peer, {}, dst, {}, {}, 0});
}

void ScheduleBuilder::RecvReduce(int peer, Region dst, Region src) {
  if (dst.count > 0) schedule_.ops.push_back({OpKind::kRecvReduce, channel_, peer, src, dst, {}, {}, 0});
}

void ScheduleBuilder::Copy(Region dst, Region src) {
  if (dst.count > 0) schedule_.ops.push_back({OpKind::kCopy, channel_, -1, src, dst, {}, {}, 0});
}

void ScheduleBuilder::Zero(Region dst) {
  if (dst.count > 0) schedule_.ops.push_back({OpKind::kZero, channel_, -1, {}, dst, {}, {}, 0});
}

void ScheduleBuilder::ReduceMany(Region dst, std::vector<ReduceSource> sources) {
  if (dst.count > 0) schedule_.ops.push_back({OpKind::kReduceMany, channel_, -1, {}, dst, std::move(sources), {}, 0});
}

Schedule ScheduleBuilder::Finish(bool in_place, int64_t scratch) {
  schedule_.in_place = in_place && schedule_.input == schedule_.output;
  schedule_.scratch = scratch;
  return std::move(schedule_);
}

std::vector<Unit> Units(const CollectivePlan& plan, Interval all) {
  std::vector<Unit> units;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    for (int channel = 0; channel < plan.channels; ++channel) {
      const Interval part = Part(all, plan.channels, channel);
      units.push_back({channel, Part(part, plan.chunks, chunk)});
    }
  }
  return units;
}

}  // namespace xlad::collectives
