#include "compiler/buffers/memory_limit.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xlad::compiler {
namespace {

constexpr size_t kNamed = 8;

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

// The largest values that have memory of their own, largest first.
std::string LargestValues(const LinearProgram& program, const BufferAssignment& assignment) {
  std::vector<int> order;
  std::set<std::pair<int32_t, int64_t>> places;
  for (int v = 0; v < std::ssize(program.values); ++v) order.push_back(v);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return program.values[a].bytes > program.values[b].bytes;
  });
  std::vector<std::string> names;
  for (const int v : order) {
    const BufferSlice& slice = assignment.slices[v];
    if (slice.bytes() == 0 || names.size() == kNamed) break;
    if (!places.emplace(slice.allocation(), slice.offset()).second) continue;
    const Allocation::Kind kind = assignment.allocations[slice.allocation()].kind();
    names.push_back(absl::StrCat(program.values[v].name, " (", KindName(kind), ", ", slice.bytes(), " bytes)"));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::Status CheckMemoryLimit(const LinearProgram& program, const BufferAssignment& assignment, int64_t limit) {
  if (limit <= 0) return absl::OkStatus();
  int64_t total = 0;
  std::vector<std::string> parts;
  for (const Allocation::Kind kind :
       {Allocation::PARAMETER, Allocation::RESULT, Allocation::CONSTANT, Allocation::TEMPORARY}) {
    int64_t bytes = 0;
    for (const Allocation& allocation : assignment.allocations) {
      if (allocation.kind() == kind) bytes += allocation.bytes();
    }
    total += bytes;
    parts.push_back(absl::StrCat(KindName(kind), " ", bytes));
  }
  if (total <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("memory limit: found a step that needs ", total, " bytes on a device (", absl::StrJoin(parts, ", "),
                   "), expected at most ", limit, "; the largest values: ", LargestValues(program, assignment),
                   ". Use a larger mesh, a smaller batch or a higher limit"));
}

}  // namespace xlad::compiler
