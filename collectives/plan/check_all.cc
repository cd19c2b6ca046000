#include "collectives/plan/check_all.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/check.h"

namespace xlad::collectives {
namespace {

constexpr int kMaxMutatedRanks = 8;
constexpr int64_t kMutantsOfATask = 25;

// The plan of an algorithm with its default parameters. The spec is made when the task runs, because the specs of all
// tasks together are large.
struct CheckTask {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 0;
  ReductionMode mode = ReductionMode::kRunToRun;
  const Algorithm* algorithm = nullptr;
  int most_slots = 0;  // If it is not 0, the plan is checked with 1 to this many slots.
  // Otherwise, mutants of the plan are checked.
  uint64_t mutant_seed = 0;
  int64_t mutants = 0;
};

struct TaskCounts {
  int64_t executions = 0;
  MutationCounts mutations;
};

CollectiveSpec SpecToCheck(CollectiveKind kind, int ranks, ReductionMode mode) {
  CollectiveSpec spec;
  spec.mode = mode;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
  const int64_t count = kind == CollectiveKind::kBarrier ? 0 : 2 * ranks;
  spec.counts = {InputHasParts(kind) ? count * ranks : count};
  if (kind == CollectiveKind::kCollectivePermute || kind == CollectiveKind::kSendRecv) {
    for (int rank = 0; rank < ranks; rank += 2) spec.pairs.push_back({rank, (rank + 1) % ranks});
  }
  if (HasRoot(kind)) spec.root = ranks / 2;
  return spec;
}

// The plans of the algorithms for `ranks` ranks, with their default parameters.
std::vector<CheckTask> TasksFor(const CheckAllOptions& options, int ranks) {
  const ReductionMode mode = options.canonical ? ReductionMode::kCanonical : ReductionMode::kRunToRun;
  std::vector<CheckTask> tasks;
  for (int number = 1; number <= kNumCollectiveKinds; ++number) {
    const auto kind = static_cast<CollectiveKind>(number);
    if (options.canonical && !Reduces(kind)) continue;
    const CollectiveSpec spec = SpecToCheck(kind, ranks, mode);
    for (const Algorithm& algorithm : Algorithms()) {
      const bool is_named = options.algorithm.empty() || options.algorithm == algorithm.name;
      if (is_named && Applies(algorithm, spec)) tasks.push_back({kind, ranks, mode, &algorithm});
    }
  }
  return tasks;
}

CollectiveSpec SpecOf(const CheckTask& task) { return SpecToCheck(task.kind, task.ranks, task.mode); }

CollectivePlan PlanOf(const CheckTask& task) { return {.algorithm = std::string(task.algorithm->name)}; }

absl::Status CheckOne(const CheckTask& task, const CollectivePlan& plan, const CollectiveSpec& spec,
                      TaskCounts* counts) {
  XLAD_ASSIGN_OR_RETURN(std::vector<Schedule> schedules, BuildSchedules(plan, spec));
  if (task.most_slots == 0) {
    XLAD_ASSIGN_OR_RETURN(counts->mutations, CheckMutants({spec, std::move(schedules)}, task.mutants,
                                                          SeededRandom(task.mutant_seed).get()));
    return absl::OkStatus();
  }
  bool waited = true;
  for (int slots = 1; slots <= task.most_slots && waited; ++slots) {
    ++counts->executions;
    const absl::StatusOr<ScheduleCosts> costs = CheckSchedules(spec, schedules, {slots});
    absl::Status status = costs.status();
    if (status.ok()) status = CheckFormulas(plan, spec, *costs);
    if (!status.ok()) return Annotate(status, absl::StrCat("slots=", slots));
    waited = costs->waited_for_slots;
  }
  return absl::OkStatus();
}

absl::Status RunTask(const CheckTask& task, TaskCounts* counts) {
  const CollectivePlan plan = PlanOf(task);
  const CollectiveSpec spec = SpecOf(task);
  const absl::Status status = CheckOne(task, plan, spec, counts);
  return status.ok() ? status : Annotate(status, absl::StrCat(plan.ToString(), ", ", spec.ToString()));
}

// A plan without operations has no mutants.
bool HasOperations(const CheckTask& task) {
  return !BuildSchedule(PlanOf(task), SpecOf(task), 0)->ops.empty();
}

}  // namespace

absl::Status RunUntilError(int64_t count, int threads, absl::FunctionRef<absl::Status(int64_t)> task) {
  std::atomic<int64_t> next = 0, failed = count;
  std::mutex mutex;
  absl::Status failure;
  const auto work = [&] {
    for (int64_t i = next++; i < failed; i = next++) {
      const absl::Status status = task(i);
      if (status.ok()) continue;
      const std::lock_guard<std::mutex> lock(mutex);
      if (i > failed) continue;
      failed = i;
      failure = status;
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return failure;
}

absl::StatusOr<CheckAllCounts> CheckAllPlans(const CheckAllOptions& options) {
  if (!options.algorithm.empty()) XLAD_RETURN_IF_ERROR(FindAlgorithm(options.algorithm).status());
  CheckAllCounts all;
  std::vector<CheckTask> tasks, small;
  for (int ranks = options.most_ranks; ranks >= 2; --ranks) {  // The longest tasks are first.
    for (CheckTask& task : TasksFor(options, ranks)) {
      if (ranks <= kMaxMutatedRanks && HasOperations(task)) small.push_back(task);
      task.most_slots = options.most_slots;
      tasks.push_back(task);
    }
  }
  if (tasks.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("found algorithm ", options.algorithm, ", which has no ",
                                                   options.canonical ? "canonical " : "", "plan for 2 to ",
                                                   options.most_ranks, " ranks"));
  }
  all.plans = std::ssize(tasks);
  all.checks = all.plans * options.most_slots;
  for (int64_t made = 0, i = 0; made < options.mutants && !small.empty(); ++i) {
    tasks.push_back(small[i % std::ssize(small)]);
    tasks.back().mutant_seed = options.seed + i;
    tasks.back().mutants = std::min(kMutantsOfATask, options.mutants - made);
    made += tasks.back().mutants;
  }
  std::vector<TaskCounts> counts(tasks.size());
  XLAD_RETURN_IF_ERROR(RunUntilError(std::ssize(tasks), options.threads,
                                     [&](int64_t i) { return RunTask(tasks[i], &counts[i]); }));
  for (const TaskCounts& of_task : counts) {
    all.executions += of_task.executions;
    all.mutations.mutants += of_task.mutations.mutants;
    all.mutations.rejected += of_task.mutations.rejected;
    all.mutations.equivalent += of_task.mutations.equivalent;
  }
  return all;
}

}  // namespace xlad::collectives
