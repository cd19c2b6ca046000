#include "collectives/exec/messages/calibrate.h"

#include <algorithm>

#include "collectives/plan/algorithm.h"
#include "collectives/plan/calibration.h"

namespace xlad::collectives {
namespace {

// Ordered by the value of a measurement: if the time is over, the kinds at the end have no corrections.
constexpr int64_t kSizes[] = {1 << 10, 64 << 10, 1 << 20, 8 << 10};
constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kAllGather, CollectiveKind::kBroadcast,
                                     CollectiveKind::kAllToAll,  CollectiveKind::kReduce};
constexpr int64_t kChunkedFromBytes = 64 << 10;
constexpr int kChunks = 4;
constexpr int kRepeats = 5;

// A spec whose larger buffer has about `bytes` bytes.
CollectiveSpec SpecOf(CollectiveKind kind, int ranks, int64_t bytes) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.ranks = ranks;
  spec.reduction = Reduces(kind) ? Reduction::kSum : Reduction::kNone;
  spec.mode = ReductionMode::kFast;
  const int64_t part = std::max<int64_t>(1, bytes / 4 / ranks);
  spec.counts = {OutputHasParts(kind) && !InputHasParts(kind) ? part : part * ranks};
  return spec;
}

class Calibration {
 public:
  Calibration(MessageGroup* group, const Clock& clock, int64_t budget_ms)
      : group_(*group), clock_(clock), left_us_(static_cast<double>(budget_ms) * 1e3) {}

  absl::StatusOr<CostModel> Run() {
    CollectiveSpec slowest;
    slowest.ranks = group_.ranks();
    slowest.reduction = Reduction::kMax;
    slowest.type = tensor::ElementType::kF64;
    slowest.counts = {kRepeats + 1};
    XLAD_ASSIGN_OR_RETURN(slowest_, group_.Prepare(slowest));
    for (const int64_t bytes : kSizes) {
      for (const CollectiveKind kind : kKinds) {
        const CollectiveSpec spec = SpecOf(kind, group_.ranks(), bytes);
        for (const Algorithm& algorithm : Algorithms()) {
          if (algorithm.needs_windows || !Applies(algorithm, spec)) continue;
          XLAD_RETURN_IF_ERROR(Measure({.algorithm = std::string(algorithm.name)}, spec));
          if (bytes < kChunkedFromBytes) continue;
          XLAD_RETURN_IF_ERROR(Measure({.algorithm = std::string(algorithm.name), .chunks = kChunks}, spec));
        }
      }
    }
    if (measured_.empty()) return CostModel();
    return FitCosts(measured_);
  }

 private:
  // The median over the repeats of the time of the slowest rank.
  absl::Status Measure(const CollectivePlan& plan, const CollectiveSpec& spec) {
    if (left_us_ <= 0) return absl::OkStatus();
    const int64_t begin_ns = clock_.NowNs();
    XLAD_ASSIGN_OR_RETURN(const auto operation, group_.Prepare(spec, plan.ToString()));
    const int64_t width = tensor::ByteWidth(spec.type);
    input_.resize(std::max<size_t>(input_.size(), spec.input_elements() * width + 64));
    output_.resize(std::max<size_t>(output_.size(), spec.output_elements() * width + 64));
    double own[kRepeats + 1], all[kRepeats + 1];
    XLAD_RETURN_IF_ERROR(group_.Run(*operation, input_.data(), output_.data()));
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      XLAD_RETURN_IF_ERROR(group_.Barrier());
      const int64_t start_ns = clock_.NowNs();
      XLAD_RETURN_IF_ERROR(group_.Run(*operation, input_.data(), output_.data()));
      own[repeat] = static_cast<double>(clock_.NowNs() - start_ns) / 1e3;
    }
    own[kRepeats] = static_cast<double>(clock_.NowNs() - begin_ns) / 1e3;
    XLAD_RETURN_IF_ERROR(group_.Run(*slowest_, own, all));
    left_us_ -= all[kRepeats];
    std::sort(all, all + kRepeats);
    measured_.push_back({plan, spec, std::max(all[kRepeats / 2], 1e-3)});
    return absl::OkStatus();
  }

  MessageGroup& group_;
  const Clock& clock_;
  double left_us_;  // Equal on all ranks.
  std::unique_ptr<MessageGroup::Operation> slowest_;
  std::vector<std::byte> input_, output_;
  std::vector<MeasuredPlan> measured_;
};

}  // namespace

absl::StatusOr<CostModel> Calibrate(MessageGroup* group, const Clock& clock, int64_t budget_ms) {
  return Calibration(group, clock, budget_ms).Run();
}

}  // namespace xlad::collectives
