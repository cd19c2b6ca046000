// The default kernel schedule, which divides a kernel by rows.
#include <algorithm>

#include "base/containers.h"
#include "base/rounding.h"
#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

class Chooser {
 public:
  explicit Chooser(const Kernel& kernel) : kernel_(kernel) {
    for (int d = 0; d < std::ssize(kernel.dims); ++d) {
      const bool everywhere = std::all_of(kernel.statements.begin(), kernel.statements.end(),
                                          [&](const Statement& s) { return Contains(s.over, d); });
      (everywhere ? rows_ : columns_).push_back(d);
    }
  }

  KernelSchedule Run(int64_t wanted_tiles) {
    ChooseLoops();
    const int64_t rows = kernel_.Extent(rows_);
    for (const int d : rows_) schedule_.bind.push_back(kernel_.dims[d].name);
    if (!rows_.empty()) schedule_.tile = std::max<int64_t>(1, CeilDiv(rows, wanted_tiles));
    ChooseGroups();
    ChooseStages();
    return std::move(schedule_);
  }

 private:
  void ChooseLoops() {
    int64_t lanes = 1;
    for (const Statement& statement : kernel_.statements) lanes = std::max(lanes, statement.lanes);
    // The loops over rows are outside of the loops over columns.
    for (const std::vector<int>* part : {&rows_, &columns_}) {
      for (const int d : *part) {
        const std::string& name = kernel_.dims[d].name;
        if (lanes == 1 || columns_.empty() || d != columns_.back()) {
          schedule_.order.push_back(name);
          continue;
        }
        schedule_.splits.push_back({name, lanes});
        schedule_.order.insert(schedule_.order.end(), {name + ".o", name + ".i"});
      }
    }
    if (!columns_.empty()) schedule_.vectorize = {schedule_.order.back()};
  }

  bool HasAllDims(const Statement& statement) const { return statement.dims().size() == kernel_.dims.size(); }

  // Statements of one group are computed in one loop over the columns.
  void ChooseGroups() {
    const std::string row = rows_.empty() ? "" : kernel_.dims[rows_.back()].name;
    int first = 0;  // The first statement of the group.
    for (int s = 0; s < std::ssize(kernel_.statements); ++s) {
      const bool joins = s > 0 && groups_.back() == group_ && CanJoin(first, s);
      if (!joins) {
        ++group_;
        first = s;
      }
      groups_.push_back(group_);
      if (s == 0) continue;
      if (joins) {
        schedule_.at.push_back({kernel_.statements[s - 1].name, schedule_.order.back()});
      } else if (!row.empty()) {
        schedule_.at.push_back({kernel_.statements[s - 1].name, row});
      }
    }
  }

  // Whether statement s can be in one loop with the statements first .. s-1.
  bool CanJoin(int first, int s) const {
    const Statement& statement = kernel_.statements[s];
    for (int other = first; other < s; ++other) {
      if (!HasAllDims(kernel_.statements[other]) || !HasAllDims(statement)) return false;
      for (const KernelRead& read : statement.value.reads) {
        if (read.array == KernelRead::kPosition || kernel_.WriterOf(read.array) != other) continue;
        if (kernel_.statements[other].is_reduction() || read.at != kernel_.statements[other].at) return false;
      }
    }
    return true;
  }

  void ChooseStages() {
    for (int a = 0; a < std::ssize(kernel_.arrays); ++a) {
      const KernelArray& array = kernel_.arrays[a];
      if (array.role != KernelArray::Role::kTemporary) continue;
      const int writer = kernel_.WriterOf(a);
      bool same_group = HasAllDims(kernel_.statements[writer]) && !kernel_.statements[writer].is_reduction();
      for (int s = 0; s < std::ssize(kernel_.statements); ++s) {
        for (const KernelRead& read : kernel_.statements[s].value.reads) {
          if (read.array == a && groups_[s] != groups_[writer]) same_group = false;
        }
      }
      if (same_group) {
        schedule_.stage.push_back({array.name, schedule_.order.back()});
      } else if (!rows_.empty()) {
        schedule_.stage.push_back({array.name, kernel_.dims[rows_.back()].name});
      }
    }
  }

  const Kernel& kernel_;
  std::vector<int> rows_, columns_;
  std::vector<int> groups_;
  int group_ = 0;
  KernelSchedule schedule_;
};

}  // namespace

KernelSchedule DefaultSchedule(const Kernel& kernel, int64_t wanted_tiles) {
  if (IsProductKernel(kernel)) return DefaultProductSchedule(kernel, wanted_tiles);
  return Chooser(kernel).Run(std::max<int64_t>(1, wanted_tiles));
}

}  // namespace xlad::compiler
