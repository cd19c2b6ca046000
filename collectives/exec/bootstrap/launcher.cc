#include "collectives/exec/bootstrap/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"

namespace xlad::collectives {
namespace {

using Get = std::function<std::optional<std::string>(const std::string&)>;

struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* local_ranks;       // The number of ranks on this host; null if the launcher does not say.
  std::vector<const char*> key;  // Variables that together differ between launches; may be unset.
};

const Launcher kLaunchers[] = {
    {"xlad", "XLAD_RANK", "XLAD_RANKS", nullptr, {"XLAD_LAUNCH"}},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", {"PMIX_NAMESPACE"}},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {}},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

// The process that started this one, with its start time, because process ids are reused.
std::string ParentText() {
  const pid_t parent = getppid();
  const absl::StatusOr<std::string> stat = RealFileSystem().Read(absl::StrCat("/proc/", parent, "/stat"));
  if (!stat.ok()) return absl::StrCat(parent);
  // The fields are counted after the command, which may contain spaces but ends with the last parenthesis.
  const std::vector<std::string> fields = absl::StrSplit(stat->substr(stat->rfind(')') + 1), ' ', absl::SkipEmpty());
  constexpr size_t kStartTime = 19;
  return absl::StrCat(parent, "-", fields.size() > kStartTime ? fields[kStartTime] : "");
}

absl::StatusOr<int> Number(const Get& get, const char* name) {
  const std::optional<std::string> text = get(name);
  int value = 0;
  if (text.has_value() && absl::SimpleAtoi(*text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrCat("found ", name, "=", text.has_value() ? *text : "(not set)",
                                                 ", expected a number; the variable is set by the launcher"));
}

absl::StatusOr<Launch> Read(const Launcher& launcher, const Get& get) {
  Launch launch;
  launch.launcher = launcher.name;
  XLAD_ASSIGN_OR_RETURN(launch.rank, Number(get, launcher.rank));
  XLAD_ASSIGN_OR_RETURN(launch.ranks, Number(get, launcher.ranks));
  if (launch.ranks < 1 || launch.rank < 0 || launch.rank >= launch.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("found ", launcher.rank, "=", launch.rank, " and ", launcher.ranks,
                                                   "=", launch.ranks, ", expected a rank below the number of ranks"));
  }
  const std::optional<std::string> local = launcher.local_ranks == nullptr ? std::nullopt : get(launcher.local_ranks);
  if (local.has_value() && *local != absl::StrCat(launch.ranks)) {
    return absl::UnimplementedError(absl::StrCat("found ", *local, " of ", launch.ranks,
                                                 " ranks on this host, expected all: process groups are formed "
                                                 "through shared memory; start all ranks on one host"));
  }
  for (const char* name : launcher.key) {
    if (const std::optional<std::string> value = get(name)) absl::StrAppend(&launch.key, *value, "-");
  }
  const bool unique = launcher.key.size() == 1 && !launch.key.empty();
  if (!unique) absl::StrAppend(&launch.key, ParentText());
  for (char& c : launch.key) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return launch;
}

}  // namespace

absl::StatusOr<std::optional<Launch>> DetectLaunch(const Get& get) {
  for (const Launcher& launcher : kLaunchers) {
    if (!get(launcher.rank).has_value()) continue;
    XLAD_ASSIGN_OR_RETURN(Launch launch, Read(launcher, get));
    return std::optional<Launch>(std::move(launch));
  }
  return std::optional<Launch>();
}

absl::StatusOr<std::optional<Launch>> DetectLaunch() {
  return DetectLaunch([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace xlad::collectives
