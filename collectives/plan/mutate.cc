// Random changes to schedules.
#include "collectives/plan/mutate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/plan/check.h"
#include "collectives/plan/interpret.h"

namespace xlad::collectives {
namespace {

// Returns a random region of the operation, or null if it has no region.
Region* RandomRegion(Random* random, ScheduleOp* op) {
  std::vector<Region*> regions;
  if (HasDestination(op->kind)) regions.push_back(&op->dst);
  for (Region& region : op->more_dsts) regions.push_back(&region);
  if (op->kind == OpKind::kSend || op->kind == OpKind::kRecvReduce || op->kind == OpKind::kCopy) {
    regions.push_back(&op->src);
  }
  for (ReduceSource& source : op->sources) {
    if (source.peer < 0) regions.push_back(&source.region);
  }
  return regions.empty() ? nullptr : regions[random->Below(regions.size())];
}

void MutateRegion(Random* random, int ranks, Region* region) {
  const int64_t step = random->Below(2) == 0 ? 1 : -1;
  switch (random->Below(4)) {
    case 0:
      region->begin += step * std::max<int64_t>(1, random->Below(region->count + 1));
      break;
    case 1:
      region->count = std::max<int64_t>(0, region->count + step);
      break;
    case 2:
      region->buffer = static_cast<ScheduleBuffer>(random->Below(3));
      break;
    default:
      region->rank = random->Below(ranks);
  }
}

void MutatePeer(Random* random, int ranks, ScheduleOp* op) {
  const int rank = random->Below(ranks);
  std::vector<int*> peers;
  if (op->peer >= 0) peers.push_back(&op->peer);
  for (ReduceSource& source : op->sources) {
    if (source.peer >= 0) peers.push_back(&source.peer);
  }
  if (!peers.empty()) *peers[random->Below(peers.size())] = rank;
}

void MutateOperands(Random* random, ScheduleOp* op) {
  if (!op->more_dsts.empty() && random->Below(2) == 0) {
    op->more_dsts.erase(op->more_dsts.begin() + random->Below(op->more_dsts.size()));
  } else if (op->sources.size() > 1) {
    const size_t i = random->Below(op->sources.size());
    if (random->Below(2) == 0) {
      op->sources.erase(op->sources.begin() + i);
    } else {
      std::swap(op->sources[i], op->sources[random->Below(op->sources.size())]);
    }
  }
}

}  // namespace

std::string MutateSchedules(Random* random, std::vector<Schedule>* schedules) {
  const int ranks = schedules->size();
  Schedule& schedule = (*schedules)[random->Below(schedules->size())];
  if (schedule.ops.empty()) return "";
  const Schedule before = schedule;
  const int64_t index = random->Below(schedule.ops.size());
  ScheduleOp& op = schedule.ops[index];
  const std::string text = Print(op);
  std::string what = "changed";
  switch (random->Below(8)) {
    case 0:
      what = "removed";
      schedule.ops.erase(schedule.ops.begin() + index);
      break;
    case 1: {
      const size_t other = random->Below(schedule.ops.size());
      what = absl::StrCat("exchanged with operation ", other);
      std::swap(op, schedule.ops[other]);
      break;
    }
    case 2:
      what = "repeated";
      schedule.ops.insert(schedule.ops.begin() + index, ScheduleOp(op));
      break;
    case 3:
      MutatePeer(random, ranks, &op);
      break;
    case 4:
      MutateOperands(random, &op);
      break;
    case 5:
      ++(op.kind == OpKind::kSignal || op.kind == OpKind::kWait ? op.flag : op.channel);
      break;
    default:
      if (Region* const region = RandomRegion(random, &op)) MutateRegion(random, ranks, region);
  }
  if (schedule == before) return "";
  return absl::StrCat("rank ", schedule.rank, ", operation ", index, " \"", text, "\" ", what,
                      what == "changed" ? absl::StrCat(" to \"", Print(schedule.ops[index]), "\"") : "");
}

absl::StatusOr<MutationCounts> CheckMutants(const ScheduleSet& set, int64_t mutants, Random* random) {
  MutationCounts counts;
  const bool any = std::any_of(set.schedules.begin(), set.schedules.end(),
                               [](const Schedule& schedule) { return !schedule.ops.empty(); });
  while (any && counts.mutants < mutants) {
    std::vector<Schedule> mutant = set.schedules;
    const std::string change = MutateSchedules(random, &mutant);
    if (change.empty()) continue;
    ++counts.mutants;
    if (!CheckSchedules(set.spec, mutant).ok()) {
      ++counts.rejected;
      continue;
    }
    const bool in_place = std::all_of(mutant.begin(), mutant.end(), [](const Schedule& s) { return s.in_place; });
    for (const bool list_order : {true, false, false}) {
      for (int place = 0; place <= (in_place ? 1 : 0); ++place) {
        const absl::Status run = Interpret(set.spec, mutant, {1, place == 1, list_order}, random);
        if (!run.ok()) return Annotate(run, absl::StrCat("the checker accepts a wrong mutant: ", change));
      }
    }
    ++counts.equivalent;
  }
  return counts;
}

}  // namespace xlad::collectives
