// The default kernel schedule, which divides a kernel by rows.
//
// In most kernels, a row is computed completely before the next one begins, so that it stays in the cache. If the rest
// of a kernel after reductions along short rows has only values of rows, it would then have no vectors. In such kernels
// the reductions of a block of rows are computed first, and then the rest for the block:
//
//   order r c.o c.i   bind r 2048   at s0 r   stage t0 r                   each row completely
//   split r 256   order r.o r.i c.o c.i   bind r.o 8   at s0 r.o   stage t0 r.o     blocks of 256 rows
#include <algorithm>

#include "base/containers.h"
#include "base/rounding.h"
#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

// The sizes of blocks of rows, and the number of columns of rows that are called short.
constexpr int64_t kMinBlock = 16, kMaxBlock = 256, kShortRow = 256;

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
    block_ = BlockOf(wanted_tiles);
    ChooseLoops();
    for (const std::string& name : bound_) schedule_.bind.push_back(name);
    const int64_t iterations = kernel_.Extent(rows_) / std::max<int64_t>(1, block_);
    if (!bound_.empty()) schedule_.tile = std::max<int64_t>(1, CeilDiv(iterations, wanted_tiles));
    ChooseGroups();
    ChooseStages();
    return std::move(schedule_);
  }

 private:
  // The number of rows that are computed together, or 0. It is the size of the last dimension of rows, or divides it.
  int64_t BlockOf(int64_t wanted_tiles) const {
    if (rows_.empty() || !IsReductionsThenMaps() || kernel_.Extent(columns_) > kShortRow) return 0;
    const int64_t size = kernel_.dims[rows_.back()].size, rows = kernel_.Extent(rows_);
    const auto is_enough = [&](int64_t block) {  // With fewer blocks, tiles could have very different sizes.
      return rows / block >= (wanted_tiles == 1 ? 1 : 2 * wanted_tiles);
    };
    if (rows_.size() > 1 && size >= kMinBlock && size <= kMaxBlock && is_enough(size)) return size;
    for (int64_t block = kMaxBlock; block >= kMinBlock; block /= 2) {
      if (size % block == 0 && size > block && is_enough(block)) return block;
    }
    return 0;
  }

  // Whether one loop over the columns computes reductions, and all other statements are maps over the rows.
  bool IsReductionsThenMaps() const {
    const std::vector<Statement>& statements = kernel_.statements;
    size_t s = 0;
    while (s < statements.size() && statements[s].is_reduction() && CanJoin(0, static_cast<int>(s))) ++s;
    return s > 0 && s < statements.size() &&
           std::none_of(
               statements.begin() + s, statements.end(),
               [&](const Statement& statement) { return statement.is_reduction() || HasAllDims(statement); });
  }

  void ChooseLoops() {
    int64_t lanes = 1;
    for (const Statement& statement : kernel_.statements) lanes = std::max(lanes, statement.lanes);
    // The loops over rows are outside of the loops over columns.
    for (const int d : rows_) {
      const std::string& name = kernel_.dims[d].name;
      const bool has_block = block_ > 0 && d == rows_.back();
      if (has_block && block_ < kernel_.dims[d].size) {
        AddSplit(name, block_);
        bound_.push_back(name + ".o");
      } else {
        schedule_.order.push_back(name);
        if (!has_block) bound_.push_back(name);
      }
    }
    for (const int d : columns_) {
      if (lanes > 1 && d == columns_.back()) {
        AddSplit(kernel_.dims[d].name, lanes);
      } else {
        schedule_.order.push_back(kernel_.dims[d].name);
      }
    }
    if (!columns_.empty()) schedule_.vectorize = {schedule_.order.back()};
  }

  void AddSplit(const std::string& dim, int64_t factor) {
    schedule_.splits.push_back({dim, factor});
    schedule_.order.insert(schedule_.order.end(), {dim + ".o", dim + ".i"});
  }

  bool HasAllDims(const Statement& statement) const { return statement.dims().size() == kernel_.dims.size(); }

  // Statements of one group are computed in one loop over the columns.
  void ChooseGroups() {
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
      } else if (!bound_.empty()) {
        schedule_.at.push_back({kernel_.statements[s - 1].name, bound_.back()});
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
      } else if (!bound_.empty()) {
        schedule_.stage.push_back({array.name, bound_.back()});
      }
    }
  }

  const Kernel& kernel_;
  std::vector<int> rows_, columns_;
  int64_t block_ = 0;
  std::vector<std::string> bound_;  // The loops whose iterations are divided into tiles.
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
