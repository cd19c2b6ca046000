#include "compiler/testing/random_schedule.h"

#include <string>
#include <vector>

namespace xlad::compiler {
namespace {

// Makes random schedules. ApplySchedule accepts only some of them.
class Maker {
 public:
  Maker(const Kernel& kernel, Random* random) : kernel_(kernel), random_(*random) {}

  KernelSchedule Make() {
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
