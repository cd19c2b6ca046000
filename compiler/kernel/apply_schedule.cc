// ApplySchedule: computes the loops and the loop nest of a kernel with a schedule. Those of products are computed in
// product_schedule.cc.
#include <algorithm>
#include <map>

#include "absl/strings/str_join.h"
#include "base/containers.h"
#include "base/rounding.h"
#include "compiler/kernel/kernel_schedule.h"
#include "compiler/kernel/product_schedule.h"

namespace xlad::compiler {
namespace {

absl::Status Wrong(absl::string_view primitive, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel schedule: ", primitive, ": ", what));
}

bool Reads(const KernelCode& code, int array) {
  return std::any_of(code.reads.begin(), code.reads.end(), [&](const KernelRead& r) { return r.array == array; });
}

// Builds the loops and the loop nest of a scheduled kernel.
class Scheduler {
 public:
  Scheduler(Kernel kernel, KernelSchedule schedule) {
    result_.kernel = std::move(kernel);
    result_.schedule = std::move(schedule);
  }

  absl::StatusOr<ScheduledKernel> Run() {
    if (schedule().atom != KernelSchedule::Tile()) return Wrong("atom", "the kernel is not a product of matrices");
    XLAD_RETURN_IF_ERROR(MakeLoops());
    XLAD_RETURN_IF_ERROR(OrderLoops());
    XLAD_RETURN_IF_ERROR(Mark(schedule().vectorize, "vectorize", &KernelLoop::vectorize));
    XLAD_RETURN_IF_ERROR(Mark(schedule().unroll, "unroll", &KernelLoop::unroll));
    for (const Statement& statement : kernel().statements) {
      std::vector<int>& loops = loops_of_.emplace_back();
      const std::vector<int> dims = statement.dims();
      for (int l = 0; l < std::ssize(result_.loops); ++l) {
        if (Contains(dims, result_.loops[l].dim)) loops.push_back(l);
      }
      XLAD_RETURN_IF_ERROR(CheckReducedLast(statement, loops));
    }
    XLAD_RETURN_IF_ERROR(ShareLoops());
    for (int s = 0; s < std::ssize(kernel().statements); ++s) {
      XLAD_RETURN_IF_ERROR(CheckReads(s, kernel().statements[s].value));
      if (kernel().statements[s].is_reduction()) XLAD_RETURN_IF_ERROR(CheckReads(s, kernel().statements[s].initial));
    }
    XLAD_RETURN_IF_ERROR(Bind());
    XLAD_RETURN_IF_ERROR(Stage());
    result_.nest = Nest(0, std::ssize(kernel().statements), 0);
    return std::move(result_);
  }

 private:
  const Kernel& kernel() const { return result_.kernel; }
  const KernelSchedule& schedule() const { return result_.schedule; }

  absl::Status MakeLoops() {
    std::map<std::string, int64_t> factors;
    for (const KernelSchedule::Split& split : schedule().splits) {
      const std::string text = absl::StrCat("split ", split.dim, " ", split.factor);
      if (split.factor < 1) return Wrong(text, "expected a positive factor");
      if (!factors.emplace(split.dim, split.factor).second) return Wrong(text, "the dimension is already split");
    }
    for (int d = 0; d < std::ssize(kernel().dims); ++d) {
      const KernelDim& dim = kernel().dims[d];
      const auto found = factors.find(dim.name);
      if (found == factors.end()) {
        result_.loops.push_back({dim.name, d, dim.size, 1, -1});
        continue;
      }
      const int64_t factor = std::min(found->second, dim.size);
      result_.loops.push_back({absl::StrCat(dim.name, ".o"), d, CeilDiv(dim.size, factor), factor, -1});
      result_.loops.push_back({absl::StrCat(dim.name, ".i"), d, factor, 1, -1});
      factors.erase(found);
    }
    if (!factors.empty()) return Wrong(absl::StrCat("split ", factors.begin()->first), "there is no such dimension");
    return absl::OkStatus();
  }

  int FindLoop(const std::string& name) const {
    for (int l = 0; l < std::ssize(result_.loops); ++l) {
      if (result_.loops[l].name == name) return l;
    }
    return -1;
  }

  absl::Status OrderLoops() {
    const std::string text = absl::StrCat("order ", absl::StrJoin(schedule().order, " "));
    std::vector<KernelLoop> ordered;
    std::vector<bool> used(result_.loops.size(), false);
    for (const std::string& name : schedule().order) {
      const int loop = FindLoop(name);
      if (loop < 0) return Wrong(text, absl::StrCat("there is no loop ", name));
      if (used[loop]) return Wrong(text, absl::StrCat("loop ", name, " occurs twice"));
      used[loop] = true;
      ordered.push_back(result_.loops[loop]);
    }
    for (size_t l = 0; l < used.size(); ++l) {
      if (!used[l]) return Wrong(text, absl::StrCat("loop ", result_.loops[l].name, " is missing"));
    }
    result_.loops = std::move(ordered);
    for (int outer = 0; outer < std::ssize(result_.loops); ++outer) {
      for (int inner = 0; inner < std::ssize(result_.loops); ++inner) {
        // Two loops of one dimension are the loops of a split.
        if (inner == outer || result_.loops[inner].dim != result_.loops[outer].dim) continue;
        if (!result_.loops[outer].name.ends_with(".o")) continue;
        if (inner < outer) return Wrong(text, "expected the outer loop of a split before the inner one");
        result_.loops[outer].inner = inner;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Mark(const std::vector<std::string>& names, absl::string_view what, bool KernelLoop::* mark) {
    for (const std::string& name : names) {
      const int loop = FindLoop(name);
      if (loop < 0) return Wrong(absl::StrCat(what, " ", name), "there is no such loop");
      result_.loops[loop].*mark = true;
    }
    return absl::OkStatus();
  }

  // The reduced loops must be the inner ones, in the order of the dimensions, so that every lane combines its elements
  // in the order that the kernel states.
  absl::Status CheckReducedLast(const Statement& statement, const std::vector<int>& loops) const {
    if (!statement.is_reduction()) return absl::OkStatus();
    size_t next = 0;
    for (const int l : loops) {
      const auto found = std::find(statement.along.begin(), statement.along.end(), result_.loops[l].dim);
      const bool reduced = found != statement.along.end();
      const size_t position = found - statement.along.begin();
      if ((!reduced && next > 0) || (reduced && position + 1 < next)) {
        return Wrong(absl::StrCat("order ", absl::StrJoin(schedule().order, " ")),
                     absl::StrCat("reduction ", statement.name, " needs its reduced loops innermost, in their order"));
      }
      if (reduced) next = position + 1;
    }
    return absl::OkStatus();
  }

  // Sets shared_[s], the number of loops that statement s shares with the next statement.
  absl::Status ShareLoops() {
    shared_.assign(kernel().statements.size(), 0);
    for (const KernelSchedule::Place& place : schedule().at) {
      const std::string text = absl::StrCat("at ", place.what, " ", place.loop);
      const int loop = FindLoop(place.loop);
      if (loop < 0) return Wrong(text, "there is no such loop");
      int s = 0;
      while (s < std::ssize(kernel().statements) && kernel().statements[s].name != place.what) ++s;
      if (s + 1 >= std::ssize(kernel().statements)) return Wrong(text, "expected a statement before the last");
      const std::vector<int>&own = loops_of_[s], &next = loops_of_[s + 1];
      const auto found = std::find(own.begin(), own.end(), loop);
      const size_t depth = found - own.begin() + 1;
      if (found == own.end() || next.size() < depth || !std::equal(own.begin(), own.begin() + depth, next.begin())) {
        return Wrong(text, "expected a loop of both statements, with the same loops around it");
      }
      if (shared_[s] != 0) return Wrong(text, "found a second `at` for the statement, expected one");
      shared_[s] = depth;
    }
    return absl::OkStatus();
  }

  // The number of loops that two statements share.
  int SharedBetween(int first, int last) const {
    int shared = std::ssize(loops_of_[first]);
    for (int s = first; s < last; ++s) shared = std::min(shared, shared_[s]);
    return shared;
  }

  // Checks that in shared loops, an element is read in the iteration that writes it, and that reductions are complete
  // when they are read.
  absl::Status CheckReads(int reader, const KernelCode& code) const {
    for (const KernelRead& read : code.reads) {
      const int writer = read.array == KernelRead::kPosition ? -1 : kernel().WriterOf(read.array);
      if (writer < 0) continue;
      const int shared = SharedBetween(writer, reader);
      const Statement& from = kernel().statements[writer];
      const std::string text = absl::StrCat("at ", from.name);
      if (shared > 0 && read.at != from.at) {
        return Wrong(text, absl::StrCat("statement ", kernel().statements[reader].name, " reads ",
                                        kernel().arrays[read.array].name,
                                        " at positions that differ from those written, expected the same "
                                        "positions in shared loops"));
      }
      for (int depth = 0; depth < shared; ++depth) {
        const int dim = result_.loops[loops_of_[writer][depth]].dim;
        if (!Contains(from.along, dim)) continue;
        return Wrong(text, absl::StrCat("statement ", kernel().statements[reader].name,
                                        " reads the reduction before it is complete"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Bind() {
    if (schedule().bind.empty()) return absl::OkStatus();
    const std::string text = absl::StrCat("bind ", absl::StrJoin(schedule().bind, " "), " ", schedule().tile);
    if (schedule().tile < 1) return Wrong(text, "expected a positive number of iterations");
    int64_t iterations = 1;
    for (int i = 0; i < std::ssize(schedule().bind); ++i) {
      const int loop = FindLoop(schedule().bind[i]);
      if (loop != i) return Wrong(text, "expected the outermost loops, in their order");
      const auto same = [&](const KernelLoop& other) { return other.dim == result_.loops[loop].dim; };
      const bool is_outer_of_equal = result_.loops[loop].inner >= 0 &&
                                     kernel().dims[result_.loops[loop].dim].size % result_.loops[loop].factor == 0;
      if (std::count_if(result_.loops.begin(), result_.loops.end(), same) > 1 && !is_outer_of_equal) {
        return Wrong(text, "expected loops that are not split, or outer loops of splits without a remainder");
      }
      iterations *= result_.loops[loop].size;
      result_.bound.push_back(loop);
    }
    for (int s = 0; s < std::ssize(kernel().statements); ++s) {
      const Statement& statement = kernel().statements[s];
      for (size_t i = 0; i < result_.bound.size(); ++i) {
        const bool has = i < loops_of_[s].size() && loops_of_[s][i] == result_.bound[i];
        const int dim = result_.loops[result_.bound[i]].dim;
        if (!has || !Contains(statement.over, dim)) {
          return Wrong(text, absl::StrCat("statement ", statement.name, " does not have the loop ", schedule().bind[i],
                                          " over its results"));
        }
      }
      if (s + 1 < std::ssize(kernel().statements) && shared_[s] < std::ssize(result_.bound)) {
        return Wrong(text, absl::StrCat("statement ", statement.name,
                                        " does not share these loops with the next statement"));
      }
    }
    result_.tiles = CeilDiv(iterations, schedule().tile);
    return absl::OkStatus();
  }

  // The number that one iteration of a loop adds to a position.
  int64_t FactorOf(const Affine& position, int loop) const {
    return position.factors[result_.loops[loop].dim] * result_.loops[loop].factor;
  }

  absl::Status Stage() {
    result_.staged.assign(kernel().arrays.size(), {});
    for (const KernelSchedule::Place& place : schedule().stage) {
      const std::string text = absl::StrCat("stage ", place.what, " ", place.loop);
      int array = 0;
      while (array < std::ssize(kernel().arrays) && kernel().arrays[array].name != place.what) ++array;
      if (array == std::ssize(kernel().arrays) || kernel().arrays[array].role != KernelArray::Role::kTemporary) {
        return Wrong(text, "expected a temporary");
      }
      const int writer = kernel().WriterOf(array);
      const auto found = std::find(loops_of_[writer].begin(), loops_of_[writer].end(), FindLoop(place.loop));
      if (found == loops_of_[writer].end()) return Wrong(text, "expected a loop of the statement that writes it");
      const int depth = found - loops_of_[writer].begin() + 1;
      for (int s = writer + 1; s < std::ssize(kernel().statements); ++s) {
        const Statement& reader = kernel().statements[s];
        if ((Reads(reader.value, array) || Reads(reader.initial, array)) && SharedBetween(writer, s) < depth) {
          return Wrong(text, absl::StrCat("statement ", reader.name, " is outside of this loop"));
        }
      }
      StagedArray& staged = result_.staged[array];
      if (staged.elements != 0) return Wrong(text, "the temporary is staged already");
      staged.factors.assign(result_.loops.size(), 0);
      staged.elements = 1;
      const Affine& at = kernel().statements[writer].at;
      for (size_t i = depth; i < loops_of_[writer].size(); ++i) {
        const int loop = loops_of_[writer][i];
        staged.factors[loop] = FactorOf(at, loop);
        if (staged.factors[loop] < 0)
          return Wrong(text, "expected a temporary whose elements are written in ascending order");
        staged.elements += staged.factors[loop] * (result_.loops[loop].size - 1);
      }
    }
    return absl::OkStatus();
  }

  // The nest of statements first .. last-1, which share their first `depth` loops.
  std::vector<NestNode> Nest(int first, int last, int depth) const {
    std::vector<NestNode> nodes;
    while (first < last) {
      if (std::ssize(loops_of_[first]) == depth) {
        nodes.push_back({NestNode::Kind::kCompute, first++, {}});
        continue;
      }
      int end = first + 1;
      while (end < last && shared_[end - 1] > depth) ++end;
      const int loop = loops_of_[first][depth];
      std::vector<NestNode> finish;
      for (int s = first; s < end; ++s) {
        if (FirstReducedDepth(s) != depth) continue;
        nodes.push_back({NestNode::Kind::kStart, s, {}});
        finish.push_back({NestNode::Kind::kFinish, s, {}});
      }
      nodes.push_back({NestNode::Kind::kLoop, loop, Nest(first, end, depth + 1)});
      nodes.insert(nodes.end(), finish.begin(), finish.end());
      first = end;
    }
    return nodes;
  }

  int FirstReducedDepth(int s) const {
    const std::vector<int>& along = kernel().statements[s].along;
    for (int depth = 0; depth < std::ssize(loops_of_[s]); ++depth) {
      const int dim = result_.loops[loops_of_[s][depth]].dim;
      if (Contains(along, dim)) return depth;
    }
    return -1;
  }

  ScheduledKernel result_;
  std::vector<std::vector<int>> loops_of_;  // For each statement, its loops from the outermost to the innermost.
  std::vector<int> shared_;
};

}  // namespace

absl::StatusOr<ScheduledKernel> ApplySchedule(Kernel kernel, KernelSchedule schedule) {
  if (IsProductKernel(kernel)) return ApplyProductSchedule(std::move(kernel), std::move(schedule));
  return Scheduler(std::move(kernel), std::move(schedule)).Run();
}

}  // namespace xlad::compiler
