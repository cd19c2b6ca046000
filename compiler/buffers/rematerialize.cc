#include "compiler/buffers/rematerialize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_format.h"
#include "compiler/analysis/flops.h"
#include "compiler/analysis/kernel_cost.h"
#include "compiler/buffers/repeat_operations.h"
#include "hlo/attribute_keys.h"

namespace xlad::compiler {
namespace {

constexpr int kMaxRounds = 4;
// Another round follows only if the arena has at most this fraction of its size before the round.
constexpr double kMinProgress = 0.99;
// The sizes of segments that are tried: all dropped bytes divided by these numbers.
constexpr int kDivisors[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
// The number of cost limits that are tried. Limit k drops about k / kCostLimits of the bytes that can be dropped.
constexpr int kCostLimits = 8;
constexpr size_t kMaxCuts = 64;

// A program with less memory, and the time that it adds to the program at the start of the round.
struct SmallerProgram {
  LinearProgram program;
  BufferAssignment assignment;
  double ns = std::numeric_limits<double>::infinity();
  int64_t arena_bytes = std::numeric_limits<int64_t>::max();
};

class Round {
 public:
  // `target` is the number of bytes for temporaries. A plan adds at most `max_added` operations.
  Round(const LinearProgram& program, int64_t target, int64_t max_added)
      : program_(program),
        target_(target),
        max_added_(max_added),
        profile_(program),
        facts_(program, WidestList(), profile_),
        cuts_(FindCuts(), facts_.size),
        planner_(facts_, cuts_) {}

  void Run() {
    planner_.Plan({std::numeric_limits<double>::infinity(), std::numeric_limits<int64_t>::max()});
    std::vector<SavePlanner::Dropped> dropped = planner_.dropped();
    if (dropped.empty()) return;
    std::sort(dropped.begin(), dropped.end(),
              [](const auto& a, const auto& b) { return a.ns_per_byte < b.ns_per_byte; });
    int64_t all = 0, seen = 0;
    for (const SavePlanner::Dropped& one : dropped) all += one.bytes;
    std::vector<double> limits;
    for (const SavePlanner::Dropped& one : dropped) {
      seen += one.bytes;
      const auto wanted = static_cast<double>(std::ssize(limits) + 1) * static_cast<double>(all) / kCostLimits;
      if (static_cast<double>(seen) >= wanted && std::ssize(limits) + 1 < kCostLimits) {
        if (limits.empty() || limits.back() < one.ns_per_byte) limits.push_back(one.ns_per_byte);
      }
    }
    limits.push_back(std::numeric_limits<double>::infinity());
    const int64_t whole = std::numeric_limits<int64_t>::max();
    for (const double limit : limits) TryRule({limit, whole});
    for (const int divisor : kDivisors) {
      if (divisor > 1) TrySegments(all / divisor, limits);
    }
    if (fits_.has_value()) SaveAgain();
  }

  // The cheapest program that fits, or null.
  SmallerProgram* fitting() { return fits_.has_value() ? &*fits_ : nullptr; }
  // The program that needs the fewest bytes, among those that do not fit. Null if there is none.
  SmallerProgram* least() { return least_.has_value() ? &*least_ : nullptr; }
  // Whether a plan had too many operations.
  bool reached_growth() const { return reached_growth_; }

 private:
  // The list with the most bytes of repeatable values that are live at the point of peak memory, among the lists that
  // contain this point.
  ListPath WidestList() const {
    ListPath widest;
    int64_t most = -1;
    const std::vector<ListPath> paths = ListsAt(program_, profile_.liveness, profile_.peak_point);
    if (paths.size() == 1) return paths[0];
    for (const ListPath& path : paths) {
      const RecomputeFacts facts(program_, path, profile_);
      int64_t bytes = 0;
      for (int value = 0; value < std::ssize(facts.def); ++value) {
        if (facts.def[value] < 0 || !facts.can_repeat[facts.def[value]]) continue;
        if (HasPoint(profile_.liveness.values[value], profile_.peak_point)) bytes += facts.bytes[value];
      }
      if (bytes > most) widest = path;
      most = std::max(most, bytes);
    }
    return widest;
  }

  // For each range of positions that need more than the target, the position that needs most. At most kMaxCuts
  // positions.
  std::vector<int> FindCuts() const {
    const auto needs_more = [&](int a, int b) { return facts_.live_bytes[a] > facts_.live_bytes[b]; };
    std::vector<int> cuts;
    int peak = -1;
    for (int i = 0; i <= facts_.size; ++i) {
      if (i < facts_.size && facts_.live_bytes[i] > target_) {
        if (peak < 0 || needs_more(i, peak)) peak = i;
      } else if (peak >= 0) {
        cuts.push_back(std::exchange(peak, -1));
      }
    }
    if (cuts.size() > kMaxCuts) {
      std::nth_element(cuts.begin(), cuts.begin() + kMaxCuts, cuts.end(), needs_more);
      cuts.resize(kMaxCuts);
      std::sort(cuts.begin(), cuts.end());
    }
    return cuts;
  }

  // Tries segments of `bytes` bytes with the limits of cost. Finds the lowest sufficient limit by bisection.
  void TrySegments(int64_t bytes, const std::vector<double>& limits) {
    if (!TryRule({limits.back(), bytes})) return;
    size_t low = 0, high = limits.size() - 1;
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (TryRule({limits[middle], bytes})) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
  }

  bool TryRule(const SavingRule& rule) {
    const std::vector<bool> saved = planner_.Plan(rule);
    return Try(saved);
  }

  // Tries a program that saves only these values. Returns whether more values should be saved. This is true if the
  // program fits, if it takes at least as long as another program that fits, or if it has too many operations. It is
  // false if the program needs too much memory.
  bool Try(const std::vector<bool>& saved) {
    std::optional<Repeated> repeated = RepeatOperations(program_, facts_, cuts_, saved, max_added_);
    if (!repeated.has_value()) {  // More values should be saved.
      reached_growth_ = true;
      return true;
    }
    if (fits_.has_value() && repeated->ns >= fits_->ns) return true;
    const int64_t peak = MemoryProfile(repeated->program).peak_bytes;
    const bool is_less = !least_.has_value() || peak < least_->arena_bytes;
    if (peak > target_ && !is_less) return false;
    SmallerProgram smaller;
    smaller.assignment = AssignBuffers(repeated->program);
    smaller.program = std::move(repeated->program);
    smaller.ns = repeated->ns;
    smaller.arena_bytes = smaller.assignment.arena_bytes;
    const bool fits = smaller.arena_bytes <= target_;
    if (fits && (!fits_.has_value() || smaller.ns < fits_->ns)) {
      fits_ = std::move(smaller);
      saved_ = saved;
      dropped_ = planner_.dropped();
    } else if (!fits && (!least_.has_value() || smaller.arena_bytes < least_->arena_bytes)) {
      least_ = std::move(smaller);
    }
    return fits;
  }

  // Saves as many of the values that are expensive to compute again as fit, by bisection.
  void SaveAgain() {
    const std::vector<bool> saved = saved_;
    const std::vector<SavePlanner::Dropped> dropped = InOrderOfSaving(dropped_);
    size_t low = 0, high = dropped.size();  // `low` of them can be saved, `high` cannot.
    while (low + 1 < high) {
      const size_t middle = (low + high) / 2;
      std::vector<bool> more = saved;
      for (size_t k = 0; k < middle; ++k) {
        for (const int value : facts_.writes[dropped[k].position]) more[value] = true;
      }
      (Try(more) ? low : high) = middle;
    }
  }

  // The most expensive operations first. Operations of similar cost, for example one in each layer, are spread over the
  // program. Otherwise, the operations that remain dropped would be neighbors: each would need the one before it, and
  // all of them would be computed again together.
  static std::vector<SavePlanner::Dropped> InOrderOfSaving(std::vector<SavePlanner::Dropped> dropped) {
    using Key = std::tuple<double, uint32_t, size_t>;
    std::vector<Key> keys;
    for (int k = 0; k < std::ssize(dropped); ++k) {
      const double size_of_cost = std::floor(4 * std::log2(dropped[k].ns_per_byte + 1e-9));
      keys.emplace_back(-size_of_cost, ReverseBits(k), k);
    }
    std::sort(keys.begin(), keys.end());
    std::vector<SavePlanner::Dropped> sorted;
    for (const Key& key : keys) sorted.push_back(dropped[std::get<2>(key)]);
    return sorted;
  }
  static uint32_t ReverseBits(uint32_t bits) {
    uint32_t reversed = 0;
    for (int i = 0; i < 32; ++i) reversed |= (bits >> i & 1) << (31 - i);
    return reversed;
  }

  const LinearProgram& program_;
  const int64_t target_;
  const int64_t max_added_;
  const MemoryProfile profile_;
  const RecomputeFacts facts_;
  const Cuts cuts_;
  SavePlanner planner_;
  std::optional<SmallerProgram> fits_, least_;
  // The saved values of the cheapest program that fits, and the operations whose results it does not save.
  std::vector<bool> saved_;
  std::vector<SavePlanner::Dropped> dropped_;
  bool reached_growth_ = false;
};

int64_t CountOperations(const std::vector<LinearOp>& ops) {
  int64_t count = std::ssize(ops);
  for (const LinearOp& op : ops) {
    count += CountOperations(op.condition);
    for (const std::vector<LinearOp>& body : op.bodies) count += CountOperations(body);
  }
  return count;
}

void AddWork(const std::vector<LinearOp>& ops, double executions, RepeatedWork* work) {
  for (const LinearOp& op : ops) {
    if (op.kind == LinearOp::Kind::kWhile) {
      const auto trips = static_cast<double>(std::max<int64_t>(hlo::NotedTripCount(*op.instruction).value_or(1), 1));
      AddWork(op.condition, executions * trips, work);
      AddWork(op.bodies[0], executions * trips, work);
    } else if (op.kind == LinearOp::Kind::kIf) {
      for (const auto& body : op.bodies) AddWork(body, executions / static_cast<double>(op.bodies.size()), work);
    } else if (op.kind == LinearOp::Kind::kKernel || op.kind == LinearOp::Kind::kLibrary) {
      const double flops = executions * FlopsOf(*op.instruction);
      if (!op.is_repeated) {
        work->usual_flops += flops;
        continue;
      }
      ++work->operations;
      work->flops += flops;
      work->bytes += executions * BytesMoved(*op.instruction);
    }
  }
}

// Searches for a program that fits into `limit` bytes, in rounds. Returns the one that needs least if none fits.
PlannedProgram Search(const LinearProgram& program, int64_t limit) {
  PlannedProgram best{program, {}};
  best.assignment = AssignBuffers(best.program);
  const int64_t most_operations = kMaxGrowth * CountOperations(program.ops);
  for (int round = 0; round < kMaxRounds && TotalBytes(best.assignment) > limit; ++round) {
    const int64_t fixed_bytes = TotalBytes(best.assignment) - best.assignment.arena_bytes;
    Round search(best.program, std::max<int64_t>(limit - fixed_bytes, 0),
                 most_operations - CountOperations(best.program.ops));
    search.Run();
    best.reached_growth = best.reached_growth || search.reached_growth();
    SmallerProgram* found = search.fitting() != nullptr ? search.fitting() : search.least();
    if (found == nullptr || found->arena_bytes >= best.assignment.arena_bytes) break;
    const bool progresses =
        static_cast<double>(found->arena_bytes) <= kMinProgress * static_cast<double>(best.assignment.arena_bytes);
    best.program = std::move(found->program);
    best.assignment = std::move(found->assignment);
    if (!progresses) break;
  }
  return best;
}

}  // namespace

RepeatedWork RepeatedWorkOf(const LinearProgram& program) {
  RepeatedWork work;
  AddWork(program.ops, 1, &work);
  return work;
}

std::string WorkText(const RepeatedWork& work) {
  const double percent = work.usual_flops > 0 ? 100 * work.flops / work.usual_flops : 0;
  return absl::StrFormat("%d operations are repeated: %.1f %% more operations on floats, %.0f bytes read and written",
                         work.operations, percent, work.bytes);
}

int64_t TotalBytes(const BufferAssignment& assignment) {
  int64_t total = 0;
  for (const Allocation& allocation : assignment.allocations) total += allocation.bytes();
  return total;
}

PlannedProgram Rematerialize(LinearProgram program, int64_t limit) {
  PlannedProgram best = Search(program, limit);
  if (limit <= 0 || TotalBytes(best.assignment) <= limit) return best;
  // The cuts depend on the limit, so a search with limit 0 may find a program that needs fewer bytes.
  PlannedProgram least = Search(program, 0);
  least.reached_growth = best.reached_growth = least.reached_growth || best.reached_growth;
  return TotalBytes(least.assignment) < TotalBytes(best.assignment) ? std::move(least) : std::move(best);
}

}  // namespace xlad::compiler
