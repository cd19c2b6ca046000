#include "compiler/buffers/memory_limit.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "compiler/analysis/instruction_facts.h"
#include "compiler/buffers/liveness.h"

namespace xlad::compiler {
namespace {

// The number of values that the error names.
constexpr size_t kMaxNamedValues = 8;

const char* KindName(Allocation::Kind kind) {
  switch (kind) {
    case Allocation::PARAMETER:
      return "parameters";
    case Allocation::RESULT:
      return "results";
    case Allocation::CONSTANT:
      return "constants";
    default:
      return "temporaries";
  }
}

// Returns " (model.py:12)", or an empty string if the line is not known.
std::string LineOf(const Instruction* instruction) {
  const std::string source = instruction == nullptr ? "" : NearestSource(*instruction);
  return source.empty() ? "" : absl::StrCat(" (", source, ")");
}

// Finds, for each value, the instruction of the operation that writes it first. The entries of values that no
// operation writes stay null.
void FindWriters(const std::vector<LinearOp>& ops, std::vector<const Instruction*>* writers) {
  for (const LinearOp& op : ops) {
    FindWriters(op.condition, writers);
    for (const std::vector<LinearOp>& body : op.bodies) FindWriters(body, writers);
    for (const int value : op.outputs) {
      const Instruction*& writer = (*writers)[value];
      if (writer == nullptr) writer = op.instruction;
    }
  }
}

// The point at which the most bytes of temporaries are live.
struct Peak {
  int64_t point = 0;
  int64_t bytes = 0;
};

Peak FindPeak(const PlannedProgram& plan, const Liveness& liveness) {
  const LinearProgram& program = plan.program;
  const BufferAssignment& assignment = plan.assignment;
  // Values that share memory are counted once.
  std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, Intervals>> places;
  for (int v = 0; v < std::ssize(program.values); ++v) {
    const BufferSlice& slice = assignment.slices[v];
    if (slice.bytes() == 0 || slice.allocation() != 0) continue;
    auto& [bytes, live] = places[{slice.offset(), slice.bytes()}];
    bytes = slice.bytes();
    live = Unite(live, liveness.values[v]);
  }
  std::map<int64_t, int64_t> changes;  // For each point, the change of the live bytes.
  for (const auto& [place, bytes_and_live] : places) {
    for (const Interval& interval : bytes_and_live.second) {
      changes[interval.first] += bytes_and_live.first;
      changes[interval.last + 1] -= bytes_and_live.first;
    }
  }
  Peak peak;
  int64_t bytes = 0;
  for (const auto& [point, change] : changes) {
    bytes += change;
    if (bytes > peak.bytes) peak = {point, bytes};
  }
  return peak;
}

// Returns "; the most temporaries are needed at dot.3 (model.py:12), operation 7 of 31: 4096 bytes", or an empty string
// if there are no temporaries.
std::string PeakText(const Liveness& liveness, const Peak& peak) {
  if (peak.bytes == 0) return "";
  const size_t number = peak.point / 2;
  size_t at = number;  // If `number` is the end of a body, the last operation before it is named.
  while (at > 0 && (at >= liveness.op_at.size() || liveness.op_at[at] == nullptr)) --at;
  const LinearOp* const op = at < liveness.op_at.size() ? liveness.op_at[at] : nullptr;
  if (op == nullptr || op->instruction == nullptr) return "";
  const auto is_op = [](const LinearOp* other) {
    return other != nullptr && other->kind != LinearOp::Kind::kCopy && other->kind != LinearOp::Kind::kReserve;
  };
  const auto before = std::count_if(liveness.op_at.begin(), liveness.op_at.begin() + at + 1, is_op);
  const auto all = std::count_if(liveness.op_at.begin(), liveness.op_at.end(), is_op);
  return absl::StrCat("; the most temporaries are needed at ", op->instruction->name(), LineOf(op->instruction),
                      ", operation ", before, " of ", all, ": ", peak.bytes, " bytes");
}

// Lists the kMaxNamedValues largest values with memory of their own, largest first. These are parameters, results and
// constants, and the temporaries that are live at the peak.
std::string LargestValues(const PlannedProgram& plan, const Liveness& liveness, const Peak& peak) {
  const LinearProgram& program = plan.program;
  const BufferAssignment& assignment = plan.assignment;
  std::vector<const Instruction*> writers(program.values.size());
  FindWriters(program.ops, &writers);
  std::vector<int> order;
  std::set<std::pair<int32_t, int64_t>> places;
  for (int v = 0; v < std::ssize(program.values); ++v) {
    const bool is_temporary = assignment.slices[v].allocation() == 0;
    if (!is_temporary || HasPoint(liveness.values[v], peak.point)) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return program.values[a].bytes > program.values[b].bytes; });
  std::vector<std::string> names;
  for (const int v : order) {
    const BufferSlice& slice = assignment.slices[v];
    if (slice.bytes() == 0 || names.size() == kMaxNamedValues) break;
    if (!places.emplace(slice.allocation(), slice.offset()).second) continue;
    const Allocation::Kind kind = assignment.allocations[slice.allocation()].kind();
    const std::string line = LineOf(writers[v]);
    names.push_back(absl::StrCat(program.values[v].name, line, " (", KindName(kind), ", ", slice.bytes(), " bytes)"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Status MemoryLimitError(const PlannedProgram& usual, const PlannedProgram& least, int64_t limit) {
  std::vector<std::string> parts;
  for (const Allocation::Kind kind :
       {Allocation::PARAMETER, Allocation::RESULT, Allocation::CONSTANT, Allocation::TEMPORARY}) {
    int64_t bytes = 0;
    for (const Allocation& allocation : usual.assignment.allocations) {
      if (allocation.kind() == kind) bytes += allocation.bytes();
    }
    parts.push_back(absl::StrCat(KindName(kind), " ", bytes));
  }
  const Liveness liveness = ComputeLiveness(usual.program);
  const Peak peak = FindPeak(usual, liveness);
  std::string text =
      absl::StrCat("memory limit: found a step that needs ", TotalBytes(usual.assignment), " bytes on a device (",
                   absl::StrJoin(parts, ", "), "), expected at most ", limit, PeakText(liveness, peak),
                   "; the largest values: ", LargestValues(usual, liveness, peak));
  if (TotalBytes(least.assignment) < TotalBytes(usual.assignment)) {
    const Liveness of_least = ComputeLiveness(least.program);
    const Peak least_peak = FindPeak(least, of_least);
    absl::StrAppend(&text, ". It needs at least ", TotalBytes(least.assignment), " bytes if values are computed ",
                    "again (", WorkText(RepeatedWorkOf(least.program)), ")",
                    least.reached_growth
                        ? absl::StrCat(" in a program of at most ", kMaxGrowth, " times as many operations")
                        : "",
                    PeakText(of_least, least_peak),
                    "; the largest values are then: ", LargestValues(least, of_least, least_peak));
  }
  return absl::ResourceExhaustedError(absl::StrCat(text, ". Use a larger mesh, a smaller batch or a higher limit"));
}

}  // namespace xlad::compiler
