// Measures the plans that a group can run and fits the cost model to their times.
//
// `Group` is a MessageGroup or a ProcessGroup. All ranks make the same calls together and get the same result.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/calibration.h"

namespace xlad::collectives {

// Returns a spec for measurements. The larger of its buffers has about `bytes` bytes.
inline CollectiveSpec MeasuredSpec(CollectiveKind kind, int ranks, int64_t bytes) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
  spec.mode = ReductionMode::kFast;
  const int64_t part = std::max<int64_t>(1, bytes / 4 / ranks);
  spec.counts = {OutputHasParts(kind) && !InputHasParts(kind) ? part : part * ranks};
  return spec;
}

template <typename Group>
class Calibrator {
 public:
  using Operation = typename Group::Operation;
  struct Options {
    // Buffer sizes in bytes. The most useful sizes come first, because the budget may not suffice for the last ones.
    std::vector<int64_t> sizes;
    // The maximum number of back-to-back runs per batch. Slow operations run fewer times (kBatchUs).
    int iterations = 1;
    std::function<std::vector<CollectivePlan>(const CollectiveSpec& spec, int64_t bytes)> plans_of;
    // If the plan is empty, the group chooses one.
    std::function<absl::StatusOr<std::unique_ptr<Operation>>(const CollectiveSpec& spec, const std::string& plan)>
        prepare;
    CostParameters base;
    int64_t budget_ms = 0;
  };

  Calibrator(Group* group, const Clock& clock, Options options)
      : group_(*group),
        clock_(clock),
        options_(std::move(options)),
        left_us_(static_cast<double>(options_.budget_ms) * 1e3) {}

  absl::StatusOr<CostModel> Run() {
    CollectiveSpec slowest;
    slowest.ranks = group_.ranks();
    slowest.reduction = Reduction::kMax;
    slowest.type = tensor::ElementType::kF64;
    slowest.counts = {kRepeats + 1};
    counted_ns_ = clock_.NowNs();
    XLAD_ASSIGN_OR_RETURN(slowest_, options_.prepare(slowest, ""));
    for (const int64_t bytes : options_.sizes) {
      for (const CollectiveKind kind : kKinds) {
        const CollectiveSpec spec = MeasuredSpec(kind, group_.ranks(), bytes);
        XLAD_RETURN_IF_ERROR(MeasureAll(options_.plans_of(spec, bytes), spec));
      }
    }
    if (measured_.empty()) return CostModel(options_.base);
    return FitCosts(measured_, options_.base);
  }

 private:
  static constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                              CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                                              CollectiveKind::kAllToAll,  CollectiveKind::kReduce};
  static constexpr int kRepeats = 5;
  // A plan whose first run takes more than this many times as long as the fastest first run is not measured again.
  static constexpr double kMaxRatio = 2.5;
  // The longest time of the runs between two barriers, unless one run takes longer.
  static constexpr double kBatchUs = 4000;

  // Measures all plans of a spec. Plans with equal schedules get the time of the first one, so the choice between them
  // does not depend on noise. Among two ranks, for example, rings and grids have equal schedules. After the budget is
  // used up, schedules are built only to find plans whose schedules equal those of a measured plan of this spec.
  absl::Status MeasureAll(const std::vector<CollectivePlan>& plans, const CollectiveSpec& spec) {
    double least_us = std::numeric_limits<double>::infinity();
    std::map<uint64_t, double> known;  // The time by the hash of the schedules.
    for (const CollectivePlan& plan : plans) {
      if (left_us_ <= 0 && known.empty()) return absl::OkStatus();
      XLAD_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, BuildSchedules(plan, spec));
      const uint64_t hash = HashSchedules(schedules);
      if (const auto found = known.find(hash); found != known.end()) {
        measured_.push_back({plan, spec, found->second});
        continue;
      }
      if (left_us_ <= 0) continue;
      XLAD_RETURN_IF_ERROR(Measure(plan, spec, &least_us));
      known[hash] = measured_.back().us;
    }
    return absl::OkStatus();
  }

  // Measures a plan. `least_us` is the time of the fastest first run of this spec's plans. A plan with a fast first run
  // is measured again: its time is the median over kRepeats batches of runs, as in `xlad bench`. A batch of one run
  // would include the time in which the other ranks leave the barrier. All decisions depend on times that are equal on
  // all ranks.
  absl::Status Measure(const CollectivePlan& plan, const CollectiveSpec& spec, double* least_us) {
    XLAD_ASSIGN_OR_RETURN(const auto operation, options_.prepare(spec, plan.ToString()));
    const int64_t width = tensor::ByteWidth(spec.type);
    input_.resize(std::max<size_t>(input_.size(), spec.input_elements() * width + 64));
    output_.resize(std::max<size_t>(output_.size(), spec.output_elements() * width + 64));
    XLAD_RETURN_IF_ERROR(group_.Run(*operation, input_.data(), output_.data()));
    XLAD_ASSIGN_OR_RETURN(std::vector<double> times, Batches(operation.get(), HasRoot(spec.kind), 1, 1));
    const double first_us = std::max(times[0], 1e-3);
    *least_us = std::min(*least_us, first_us);
    if (first_us <= kMaxRatio * *least_us) {
      const int iterations = std::clamp(static_cast<int>(kBatchUs / first_us), 1, options_.iterations);
      XLAD_ASSIGN_OR_RETURN(times, Batches(operation.get(), HasRoot(spec.kind), kRepeats, iterations));
    }
    std::sort(times.begin(), times.end());
    measured_.push_back({plan, spec, std::max(times[times.size() / 2], 1e-3)});
    return absl::OkStatus();
  }

  // Returns the time of the slowest rank for one run, for each of `batches` batches of `iterations` runs. If the kind
  // has a root, a barrier follows each run, because a root would otherwise be ahead of the other ranks. Subtracts the
  // time since the previous call from the budget. This includes the time to build schedules.
  absl::StatusOr<std::vector<double>> Batches(Operation* operation, bool has_root, int batches, int iterations) {
    double own[kRepeats + 1] = {}, all[kRepeats + 1] = {};
    for (int batch = 0; batch < batches; ++batch) {
      XLAD_RETURN_IF_ERROR(group_.Barrier());
      const int64_t start_ns = clock_.NowNs();
      for (int i = 0; i < iterations; ++i) {
        XLAD_RETURN_IF_ERROR(group_.Run(*operation, input_.data(), output_.data()));
        if (has_root) XLAD_RETURN_IF_ERROR(group_.Barrier());
      }
      own[batch] = static_cast<double>(clock_.NowNs() - start_ns) / 1e3 / iterations;
    }
    const int64_t now_ns = clock_.NowNs();
    own[kRepeats] = static_cast<double>(now_ns - counted_ns_) / 1e3;
    counted_ns_ = now_ns;
    XLAD_RETURN_IF_ERROR(group_.Run(*slowest_, own, all));
    left_us_ -= all[kRepeats];
    return std::vector<double>(all, all + batches);
  }

  Group& group_;
  const Clock& clock_;
  const Options options_;
  double left_us_;          // The rest of the budget, which is equal on all ranks.
  int64_t counted_ns_ = 0;  // The time until which the time of this rank has been subtracted from the budget.
  std::unique_ptr<Operation> slowest_;
  std::vector<std::byte> input_, output_;
  std::vector<MeasuredPlan> measured_;
};

}  // namespace xlad::collectives
