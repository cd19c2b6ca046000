#include "compiler/kernel/schedule_tables.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/quoted.h"
#include "compiler/kernel/object_emitter.h"

namespace xlad::compiler {
namespace {

// The maximum bytes of temporaries on the stack of a thread, and the maximum copies of a loop's body by unrolling.
constexpr int64_t kMaxStagedBytes = 1 << 20;
constexpr int64_t kMaxUnrolled = 256;

std::string HashText(uint64_t hash) { return absl::StrFormat("%016x", hash); }

// Rejects schedules that can be applied but need too much stack or code.
absl::Status CheckLimits(const ScheduledKernel& scheduled) {
  int64_t staged = 0, unrolled = 1;
  for (size_t a = 0; a < scheduled.staged.size(); ++a) {
    staged += scheduled.staged[a].elements * tensor::ByteWidth(scheduled.kernel.arrays[a].type);
  }
  for (const KernelLoop& loop : scheduled.loops) {
    if (loop.unroll) unrolled *= loop.size;
  }
  if (staged > kMaxStagedBytes) {
    return absl::InvalidArgumentError(absl::StrCat("kernel schedule: stage: found temporaries of ", staged,
                                                   " bytes that are held at once, expected at most ", kMaxStagedBytes));
  }
  if (unrolled <= kMaxUnrolled) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("kernel schedule: unroll: found ", unrolled,
                                                 " copies of a loop's body, expected at most ", kMaxUnrolled));
}

// The loop nest as a text in which the two loops of a split are one loop.
void AppendOrder(const ScheduledKernel& scheduled, const std::vector<NestNode>& nodes, int outer_dim,
                 std::string* text) {
  for (const NestNode& node : nodes) {
    if (node.kind != NestNode::Kind::kLoop) {
      absl::StrAppend(text, static_cast<int>(node.kind), ":", node.index, ";");
      continue;
    }
    const int dim = scheduled.loops[node.index].dim;
    const bool is_inner = dim == outer_dim && nodes.size() == 1;
    if (!is_inner) absl::StrAppend(text, "for ", dim, "{");
    AppendOrder(scheduled, node.body, dim, text);
    if (!is_inner) absl::StrAppend(text, "}");
  }
}

std::string OrderOf(const ScheduledKernel& scheduled) {
  std::string text;
  AppendOrder(scheduled, scheduled.nest, -1, &text);
  return text;
}

absl::StatusOr<std::shared_ptr<const ScheduledKernel>> Apply(const ScheduledKernel& usual, bool in_place,
                                                             const ScheduleTable::Entry& entry) {
  const std::string place = absl::StrCat("schedules: line ", entry.line, ": kernel ",
                                         HashText(KernelHash(usual.kernel)));
  auto scheduled = ApplySchedule(usual.kernel, entry.schedule);
  if (!scheduled.ok()) return Annotate(scheduled.status(), place);
  XLAD_RETURN_IF_ERROR(Annotate(CheckLimits(*scheduled), place));
  if (in_place && OrderOf(*scheduled) != OrderOf(usual)) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": found loops that differ from the compiler's own schedule, expected the same loops "
                            "around the same statements, because the kernel writes a result over one of its operands"));
  }
  return std::make_shared<const ScheduledKernel>(*std::move(scheduled));
}

}  // namespace

std::string ScheduleEntryText(const Kernel& kernel, const KernelSchedule& schedule) {
  return absl::StrCat("kernel ", HashText(KernelHash(kernel)), " ", kernel.name, "\n", ScheduleText(schedule));
}

absl::StatusOr<ScheduleTable> ScheduleTable::Parse(absl::string_view text) {
  ScheduleTable table;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  for (int64_t at = 0; at < std::ssize(lines);) {
    const std::vector<absl::string_view> words = absl::StrSplit(lines[at], ' ', absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') {
      ++at;
      continue;
    }
    uint64_t hash = 0;
    const bool is_hash = words.size() >= 2 && words[1].size() == 16 && absl::SimpleHexAtoi(words[1], &hash);
    if (words[0] != "kernel" || words.size() > 3 || !is_hash) {
      return absl::InvalidArgumentError(absl::StrCat("schedules: line ", at + 1, ": found ", Quoted(lines[at]),
                                                     ", expected kernel HASH NAME with a hash of 16 digits"));
    }
    const int64_t line = at + 1;
    std::string primitives(++at, '\n');  // Adds empty lines, so that the line in an error is that of the complete text.
    for (; at < std::ssize(lines) && !absl::StartsWith(lines[at], "kernel "); ++at) {
      absl::StrAppend(&primitives, absl::StartsWith(lines[at], "#") ? "" : lines[at], "\n");
    }
    auto schedule = ParseSchedule(primitives);
    if (!schedule.ok()) return Annotate(schedule.status(), "schedules");
    const auto [entry, fresh] = table.entries_.emplace(hash, Entry{*std::move(schedule), line});
    if (fresh) continue;
    return absl::InvalidArgumentError(absl::StrCat("schedules: line ", line, ": found kernel ", HashText(hash),
                                                   " again, expected each kernel once; the first is in line ",
                                                   entry->second.line));
  }
  return table;
}

absl::StatusOr<ScheduleTables> ScheduleTables::Read(const CompilePolicy& policy) {
  ScheduleTables tables;
  XLAD_ASSIGN_OR_RETURN(tables.given_, ScheduleTable::Parse(policy.kernel_schedules()));
  XLAD_ASSIGN_OR_RETURN(tables.tuned_, ScheduleTable::Parse(policy.tuned_schedules()));
  return tables;
}

absl::StatusOr<std::shared_ptr<const ScheduledKernel>> ScheduleTables::Find(const ScheduledKernel& usual,
                                                                            bool in_place) const {
  if (given_.entries().empty() && tuned_.entries().empty()) return nullptr;
  const uint64_t hash = KernelHash(usual.kernel);
  if (const auto given = given_.entries().find(hash); given != given_.entries().end()) {
    return Apply(usual, in_place, given->second);
  }
  const auto tuned = tuned_.entries().find(hash);
  if (tuned == tuned_.entries().end()) return nullptr;
  auto scheduled = Apply(usual, in_place, tuned->second);
  return scheduled.ok() ? *std::move(scheduled) : nullptr;
}

absl::Status ScheduleTables::CheckAllUsed(absl::Span<const KernelRequest> kernels) const {
  if (given_.entries().empty()) return absl::OkStatus();
  std::set<uint64_t> hashes;
  std::vector<std::string> known;
  for (const KernelRequest& request : kernels) {
    if (request.kernel == nullptr) continue;
    const uint64_t hash = KernelHash(request.kernel->kernel);
    if (hashes.insert(hash).second) known.push_back(absl::StrCat(HashText(hash), " ", request.kernel->kernel.name));
  }
  for (const auto& [hash, entry] : given_.entries()) {
    if (hashes.contains(hash)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "schedules: line ", entry.line, ": found kernel ", HashText(hash), ", expected one of the program's: ",
        known.empty() ? "it has none" : absl::StrJoin(known, ", "), " (xlad compile --emit schedules prints them)"));
  }
  return absl::OkStatus();
}

}  // namespace xlad::compiler
