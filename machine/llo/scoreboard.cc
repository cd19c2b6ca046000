#include "machine/llo/scoreboard.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "machine/llo/vector_ops.h"

namespace xlad::machine {
namespace {

constexpr double kExtendedInterval = 2;  // Cycles between two extended functions.
constexpr double kBurstBytes = 64;
constexpr int64_t kTimedIterations = 3;  // Timed at the beginning of a loop. The last iteration is also timed.
// A kernel with more timed items has deeply nested loops: the number grows by a factor of four with each level.
constexpr int64_t kMaxTimedItems = int64_t{1} << 24;

// The use of the units so far.
struct Use {
  double mxu = 0, vpu = 0, hbm = 0, stall = 0, bytes = 0, bundles = 0;  // mxu, vpu, hbm and stall are in cycles.

  Use Plus(const Use& other, double times) const {
    return {mxu + times * other.mxu,     vpu + times * other.vpu,     hbm + times * other.hbm,
            stall + times * other.stall, bytes + times * other.bytes, bundles + times * other.bundles};
  }
};

// All times are in cycles.
class Scoreboard {
 public:
  Scoreboard(const LloProgram& program, const Chip& chip) : program_(program) {
    const double units = MatrixUnitsOf(chip);
    const double flops_per_cycle = chip.bf16_flops / chip.cores / units / chip.clock_hz;
    matrix_interval_ = 2.0 * kSublanes * kLanes * kLanes / flops_per_cycle;
    bytes_per_cycle_ = chip.hbm_bytes_per_s / chip.cores / chip.clock_hz;
    dma_latency_ = kDmaLatencyUs * 1e-6 * chip.clock_hz;
  }

  void Run(const std::vector<LloItem>& items) {
    for (const LloItem& item : items) {
      ++timed_items_;
      if (const auto* loop = std::get_if<LloLoop>(&item)) {
        Loop(*loop);
      } else {
        Issue(std::get<LloBundle>(item));
      }
    }
  }

  double now() const { return now_; }
  const Use& use() const { return use_; }

 private:
  void Loop(const LloLoop& loop) {
    const auto iterate = [&](int64_t i) {
      scalars_[loop.counter] = i;
      Run(loop.items);
    };
    const bool times_all = timed_items_ <= kMaxTimedItems;
    const int64_t first = times_all ? kTimedIterations : 1, last = times_all ? 1 : 0;
    if (loop.trips <= first + last) {
      for (int64_t i = 0; i < loop.trips; ++i) iterate(i);
      return;
    }
    for (int64_t i = 0; i + 1 < first; ++i) iterate(i);
    const double before = now_;
    const Use used = use_;
    iterate(first - 1);
    const double left = loop.trips - first - last;
    Shift(left * (now_ - before));
    use_ = use_.Plus(use_.Plus(used, -1), left);
    if (last > 0) iterate(loop.trips - 1);
  }

  // Adds `cycles` to all times.
  void Shift(double cycles) {
    now_ += cycles;
    for (double& ready : scalar_ready_) ready += cycles;
    for (double& ready : vector_ready_) ready += cycles;
    for (double& free : unit_free_) free += cycles;
    for (double& free : load_free_) free += cycles;
    for (auto& queue : results_) Shift(cycles, &queue);
    for (auto& queue : arrivals_) Shift(cycles, &queue);
    Shift(cycles, &transposed_);
    extended_free_ += cycles;
    dma_free_ += cycles;
  }
  static void Shift(double cycles, std::deque<double>* queue) {
    for (double& time : *queue) time += cycles;
  }

  void Issue(const LloBundle& bundle) {
    double at = now_;
    for (const LloInstruction& i : bundle) at = std::max(at, ReadyAt(i));
    use_.stall += at - now_;
    now_ = at + 1;
    ++use_.bundles;
    bool uses_vector_unit = false;
    for (const LloInstruction& i : bundle) {
      const LloSlot slot = InfoOf(i.op).slot;
      uses_vector_unit |= slot == LloSlot::kVector || slot == LloSlot::kExtended || slot == LloSlot::kCross;
      Start(i, at);
    }
    if (uses_vector_unit) ++use_.vpu;
    for (const LloInstruction& i : bundle) {
      if (InfoOf(i.op).slot == LloSlot::kScalar) next_scalars_.emplace_back(i.dst, Scalar(i));
    }
    for (const auto& [number, value] : next_scalars_) scalars_[number] = value;
    next_scalars_.clear();
  }

  double ReadyAt(const LloInstruction& i) const {
    const LloOpInfo& info = InfoOf(i.op);
    double at = 0;
    for (size_t s = 0; s < info.sources.size(); ++s) {
      at = std::max(at, info.sources[s] == 's' ? scalar_ready_[i.sources[s]] : vector_ready_[i.sources[s]]);
    }
    const std::deque<double>* queue = nullptr;
    if (i.op == LloOp::kMPush) at = std::max(at, unit_free_[MatrixUnitOf(i)]);
    if (i.op == LloOp::kMLoad) at = std::max(at, load_free_[MatrixUnitOf(i)]);
    // The products before a swap use the old weights.
    if (i.op == LloOp::kMSwap) at = std::max({at, load_free_[MatrixUnitOf(i)], unit_free_[MatrixUnitOf(i)]});
    if (info.slot == LloSlot::kExtended) at = std::max(at, extended_free_);
    if (i.op == LloOp::kMPop) queue = &results_[MatrixUnitOf(i)];
    if (i.op == LloOp::kXPop) queue = &transposed_;
    if (i.op == LloOp::kDmaWait && scalars_[i.sources[0]] != 0) queue = &arrivals_[i.semaphore];
    return queue == nullptr || queue->empty() ? at : std::max(at, queue->front());
  }

  void Start(const LloInstruction& i, double at) {
    const LloOpInfo& info = InfoOf(i.op);
    const double ready = at + info.latency;
    if (info.dst == 's') scalar_ready_[i.dst] = ready;
    if (info.dst == 'v') vector_ready_[i.dst] = ready;
    const auto pop = [](std::deque<double>* queue) {
      if (!queue->empty()) queue->pop_front();
    };
    switch (i.op) {
      case LloOp::kMLoad:
        load_free_[MatrixUnitOf(i)] = at + kSublanes;  // One row of weights per cycle.
        return;
      case LloOp::kMPush:
        unit_free_[MatrixUnitOf(i)] = at + matrix_interval_;
        use_.mxu += matrix_interval_;
        // The data of a row crosses the 128 rows and the 128 columns of the array.
        results_[MatrixUnitOf(i)].push_back(at + matrix_interval_ + 2 * kLanes);
        return;
      case LloOp::kMPop:
        return pop(&results_[MatrixUnitOf(i)]);
      case LloOp::kXPush:
        transposed_.push_back(at + kLanes);
        return;
      case LloOp::kXPop:
        return pop(&transposed_);
      case LloOp::kDmaIn:
      case LloOp::kDmaOut:
        if (scalars_[i.sources[4]] != 0) StartCopy(i, at);
        return;
      case LloOp::kDmaWait:
        if (scalars_[i.sources[0]] != 0) pop(&arrivals_[i.semaphore]);
        return;
      default:
        if (info.slot == LloSlot::kExtended) extended_free_ = at + kExtendedInterval;
    }
  }

  void StartCopy(const LloInstruction& i, double at) {
    const double rows = std::max<int64_t>(scalars_[i.sources[2]], 0);
    const double columns = std::max<int64_t>(scalars_[i.sources[3]], 0);
    const double width = BytesOf(program_.buffers[i.buffer].type);
    const bool is_dense = static_cast<double>(i.stride) == columns;
    const double pieces =
        is_dense ? std::ceil(rows * columns * width / kBurstBytes) : rows * std::ceil(columns * width / kBurstBytes);
    const double cycles = pieces * kBurstBytes / bytes_per_cycle_;
    dma_free_ = std::max(dma_free_, at) + cycles;
    arrivals_[i.semaphore].push_back(dma_free_ + dma_latency_);
    use_.hbm += cycles;
    use_.bytes += rows * columns * width;
  }

  int64_t Scalar(const LloInstruction& i) const {
    return ScalarResult(i, scalars_[i.sources[0]], scalars_[i.sources[1]]);
  }

  const LloProgram& program_;
  double matrix_interval_ = 8, bytes_per_cycle_ = 1, dma_latency_ = 0;
  double now_ = 0;
  int64_t timed_items_ = 0;
  Use use_;
  std::array<int64_t, kScalarRegisters> scalars_ = {};
  std::array<double, kScalarRegisters> scalar_ready_ = {};
  std::array<double, kVectorRegisters> vector_ready_ = {};
  std::array<double, kMatrixUnits> unit_free_ = {}, load_free_ = {};
  std::array<std::deque<double>, kMatrixUnits> results_;
  std::array<std::deque<double>, kSemaphores> arrivals_;
  std::deque<double> transposed_;
  double extended_free_ = 0, dma_free_ = 0;
  std::vector<std::pair<int, int64_t>> next_scalars_;
};

}  // namespace

int MatrixUnitsOf(const Chip& chip) {
  const int64_t side = std::max(1, chip.mxu_size / kLanes);
  return static_cast<int>(std::clamp<int64_t>(chip.mxus_per_core * side * side, 1, kMatrixUnits));
}

LloTime TimeLlo(const LloProgram& program, const LloKernel& kernel, const Chip& chip) {
  LloTime time;
  const double us_per_cycle = 1e6 / chip.clock_hz / chip.cores;
  if (!kernel.macro.empty()) {
    const LloMacro& macro = kernel.macro[0];
    time.vpu_us = macro.vector_ops / chip.vector_ops() * 1e6;
    time.hbm_us = macro.hbm_bytes / chip.hbm_bytes_per_s * 1e6;
    time.hbm_bytes = macro.hbm_bytes;
    time.us = std::max(time.vpu_us, time.hbm_us) + kDmaLatencyUs;
    return time;
  }
  Scoreboard scoreboard(program, chip);
  scoreboard.Run(kernel.items);
  const Use& use = scoreboard.use();
  time.us = scoreboard.now() * us_per_cycle;
  time.mxu_us = use.mxu * us_per_cycle / MatrixUnitsOf(chip);
  time.vpu_us = use.vpu * us_per_cycle;
  time.hbm_us = use.hbm * us_per_cycle;
  time.stall_us = use.stall * us_per_cycle;
  time.hbm_bytes = use.bytes;
  time.bundles = use.bundles;
  return time;
}

}  // namespace xlad::machine
