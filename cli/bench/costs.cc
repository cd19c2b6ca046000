#include "cli/bench/costs.h"

#include <cstdio>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/cache_folder.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/process/build_id.h"
#include "base/process/child_process.h"
#include "collectives/exec/group/calibrate.h"
#include "collectives/exec/messages/calibrate.h"
#include "collectives/plan/calibration.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveKind;
using collectives::CollectiveSpec;
using collectives::MessageGroup;

// The name of the CPU in /proc/cpuinfo (": Intel(R) ...") or, on Arm, its part number; "" if there is neither.
std::string CpuName() {
  const absl::StatusOr<std::string> text = RealFileSystem().Read("/proc/cpuinfo");
  if (!text.ok()) return "";
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (absl::ConsumePrefix(&line, "model name") || absl::ConsumePrefix(&line, "CPU part")) return std::string(line);
  }
  return "";
}

// The properties of the machine and of the run on which the parameters depend.
std::string MachineKey(const std::string& transport, int ranks) {
  return absl::StrCat("# ", transport, ", ", ranks, " ranks, ", std::thread::hardware_concurrency(), " cores, CPU",
                      CpuName(), ", xlad ", XLAD_VERSION, " ", BuildId(OwnExecutablePath()), "\n");
}

// Copies `bytes` bytes of rank 0 to all ranks.
template <typename Group>
absl::Status FromRankZero(Group* group, void* data, int64_t bytes) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kBroadcast;
  spec.type = tensor::ElementType::kU8;
  spec.counts = {bytes};
  spec.ranks = group->ranks();
  XLAD_ASSIGN_OR_RETURN(const auto operation, group->Prepare(spec));
  return group->Run(*operation, data, data);
}

// Returns the text of the parameters that rank 0 has stored, or "" if there are none, on all ranks.
template <typename Group>
absl::StatusOr<std::string> StoredText(const CostSource& source, Group* group) {
  std::string text;
  if (group->rank() == 0 && !source.refresh) {
    const std::string path = CostsPath(source.transport, group->ranks());
    const absl::StatusOr<std::string> found = path.empty() ? absl::NotFoundError("") : RealFileSystem().Read(path);
    // If the file is damaged or was written by another version, the parameters are measured again.
    if (found.ok() && collectives::ParseCosts(*found).ok()) text = *found;
  }
  int64_t bytes = std::ssize(text);
  XLAD_RETURN_IF_ERROR(FromRankZero(group, &bytes, sizeof bytes));
  text.resize(bytes);
  if (bytes > 0) XLAD_RETURN_IF_ERROR(FromRankZero(group, text.data(), bytes));
  return text;
}

void Store(const CostSource& source, int ranks, const collectives::CostModel& costs) {
  const std::string path = CostsPath(source.transport, ranks);
  if (path.empty()) return;
  const std::string text = MachineKey(source.transport, ranks) + collectives::PrintCosts(costs);
  absl::Status stored = RealFileSystem().MakeDirectories(FolderOfPath(path));
  if (stored.ok()) stored = RealFileSystem().WriteAtomically(path, text);
  if (!stored.ok()) {
    std::fprintf(stderr, "xlad: warning: the calibration cannot be stored, and the next run will measure again: %s\n",
                 stored.ToString().c_str());
  }
}

// The parameters that rank 0 has stored, otherwise those that all ranks measure now.
template <typename Group>
absl::StatusOr<collectives::CostModel> FindCosts(const CostSource& source, Group* group) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, StoredText(source, group));
  if (!text.empty()) return collectives::ParseCosts(text);
  XLAD_ASSIGN_OR_RETURN(const collectives::CostModel costs,
                        collectives::Calibrate(group, RealClock(), source.budget_ms));
  if (group->rank() == 0) Store(source, group->ranks(), costs);
  return costs;
}

}  // namespace

std::string CostsPath(const std::string& transport, int ranks) {
  const std::string folder = CacheFolder("", UserCacheFolder());
  if (folder.empty()) return "";
  return JoinPath(folder, absl::StrCat("collectives/", transport, "-", ranks, "-",
                                       absl::Hex(Hash64(MachineKey(transport, ranks)), absl::kZeroPad16)));
}

absl::StatusOr<collectives::CostModel> MachineCosts(const CostSource& source, collectives::ProcessGroup* group) {
  return FindCosts(source, group);
}

absl::Status UseMachineCosts(const CostSource& source, MessageGroup* group) {
  if (group->ranks() == 1) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const collectives::CostModel costs, FindCosts(source, group));
  group->UseCosts(costs);
  return absl::OkStatus();
}

std::string ExplainChoice(int64_t bytes, const PlanChoice& choice) {
  std::string out = absl::StrCat("# ", bytes, " bytes: ", choice.plan.ToString(), ", ", choice.why, "\n");
  for (const collectives::PlanCost& candidate : choice.candidates) {
    const bool is_chosen = candidate.plan == choice.plan;
    absl::StrAppendFormat(&out, "#   %-44s predicted %12.2f us%s\n", candidate.plan.ToString(), candidate.predicted_us,
                          is_chosen ? "  (chosen)" : "");
  }
  return out;
}

}  // namespace xlad::cli
