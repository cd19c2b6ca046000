#include "compiler/testing/random_schedule.h"

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

// A random schedule of a product of matrices. ApplySchedule refuses one if its blocks are too large, or if it does not
// pack factors that are multiplied in pairs.
KernelSchedule RandomProductSchedule(const Kernel& kernel, Random& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.Below(static_cast<uint64_t>(n))); };
  KernelSchedule schedule = DefaultSchedule(kernel, 1 + below(5));
  for (KernelSchedule::Split& split : schedule.splits) {
    const int64_t size = kernel.dims[split.dim == "m" ? 1 : split.dim == "n" ? 2 : 3].size;
    if (below(3) != 0) split.factor = 1 + below(std::min<int64_t>(size + 2, 100));
  }
  // The order of the loops over blocks, and of those over panels.
  if (below(2) == 0) std::swap(schedule.order[1], schedule.order[2]);
  if (below(2) == 0) std::swap(schedule.order[4], schedule.order[5]);
  schedule.bind = {schedule.order.begin(), schedule.order.begin() + 3};
  schedule.tile = 1 + below(4);
  const bool by_rows = below(2) == 0;
  schedule.vectorize = {by_rows ? "m.i" : "n.i"};
  schedule.stage.clear();
  for (const int operand : {0, 1}) {
    const bool is_in_lanes = by_rows == (operand == 0);
    if (is_in_lanes || below(2) == 0) schedule.stage.push_back({kernel.arrays[operand].name, "k.o"});
  }
  if (below(2) == 0) {
    const int64_t lanes = int64_t{4} << below(5), lines = int64_t{1} << below(5);
    schedule.atom = by_rows ? KernelSchedule::Tile{lanes, lines} : KernelSchedule::Tile{lines, lanes};
  }
  return schedule;
}

// Makes random schedules. ApplySchedule accepts only some of them.
class Maker {
 public:
  Maker(const Kernel& kernel, Random* random) : kernel_(kernel), random_(*random) {}

  KernelSchedule Make() {
    if (IsProductKernel(kernel_)) return RandomProductSchedule(kernel_, random_);
    KernelSchedule schedule;
    std::vector<int> dims;
    for (int d = 0; d < std::ssize(kernel_.dims); ++d) {
      const std::string& name = kernel_.dims[d].name;
      std::vector<std::string> loops = {name};
      if (OneIn(2)) {
        schedule.splits.push_back({name, 1 + Below(kernel_.dims[d].size + 2)});
        loops = {name + ".o", name + ".i"};
      }
      // Sometimes the loops are placed before loops of earlier dimensions.
      const auto at = OneIn(4) ? schedule.order.begin() + Below(std::ssize(schedule.order) + 1) : schedule.order.end();
      schedule.order.insert(at, loops.begin(), loops.end());
    }
    const KernelSchedule usual = DefaultSchedule(kernel_, 1 + Below(5));
    if (schedule.splits.empty() || OneIn(2)) {
      schedule.bind = usual.bind;
      schedule.tile = usual.tile;
    }
    for (size_t s = 0; s + 1 < kernel_.statements.size(); ++s) {
      if (!OneIn(4)) schedule.at.push_back({kernel_.statements[s].name, AnyOf(schedule.order)});
    }
    for (const KernelArray& array : kernel_.arrays) {
      if (array.role == KernelArray::Role::kTemporary && OneIn(3)) {
        schedule.stage.push_back({array.name, AnyOf(schedule.order)});
      }
    }
    if (OneIn(2)) schedule.vectorize = {schedule.order.back()};
    if (OneIn(4)) schedule.unroll = {schedule.order.back()};
    return schedule;
  }

  // Removes primitives until the schedule is accepted.
  absl::StatusOr<ScheduledKernel> Accepted() {
    KernelSchedule schedule = Make();
    while (true) {
      auto scheduled = ApplySchedule(kernel_, schedule);
      if (scheduled.ok() || !absl::IsInvalidArgument(scheduled.status())) return scheduled;
      if (IsProductKernel(kernel_)) {
        schedule = Make();
        continue;
      }
      if (!schedule.bind.empty()) {
        schedule.bind.clear();
      } else if (!schedule.stage.empty()) {
        schedule.stage.pop_back();
      } else if (!schedule.at.empty()) {
        schedule.at.erase(schedule.at.begin() + Below(std::ssize(schedule.at)));
      } else {
        schedule = Make();
      }
    }
  }

 private:
  int64_t Below(int64_t n) { return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(n))); }
  bool OneIn(int64_t n) { return Below(n) == 0; }
  std::string AnyOf(const std::vector<std::string>& names) { return names[Below(std::ssize(names))]; }

  const Kernel& kernel_;
  Random& random_;
};

}  // namespace

KernelSchedule RandomSchedule(const Kernel& kernel, Random* random) { return Maker(kernel, random).Make(); }

absl::StatusOr<ScheduledKernel> RandomScheduled(const Kernel& kernel, Random* random) {
  return Maker(kernel, random).Accepted();
}

}  // namespace xlad::compiler
