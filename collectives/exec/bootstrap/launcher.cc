#include "collectives/exec/bootstrap/launcher.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/process/process_state.h"
#include "collectives/exec/bootstrap/host_list.h"

namespace xlad::collectives {
namespace {

using Names = std::vector<const char*>;  // Alternative names of one variable: the first one that is set is used.

// How close a launcher is to the process, closest first. If two launchers disagree, the closer one is used, because the
// other one started it.
enum Level {
  kByHand,    // XLAD_RANK is set by xlad itself or by the user.
  kAgent,     // torchrun, which may itself be started by mpirun or in an allocation.
  kMpi,       // mpirun, which may itself be started in an allocation.
  kBatch,     // A batch system that starts the tasks of an allocation.
  kPod,       // A container of Kubernetes.
  kInherited  // RANK and WORLD_SIZE, set by an unknown program. They must agree with the chosen launcher.
};

struct Launcher {
  const char* name;
  Level level;
  Names rank, ranks, local_rank, local_ranks;
  Names key;                   // Variables whose values together identify the launch. They may be unset.
  const char* needs = "";      // Another variable. If it is unset, this launcher has not set the variables above.
  bool key_is_unique = false;  // True if the first variable of `key` is different in any two launches on a machine.
  // Reads the values that are not numbers, and may refuse the launch. Null if there are no such values.
  absl::Status (*complete)(const GetVariable& get, Launch* launch) = nullptr;
};

std::optional<std::string> First(const GetVariable& get, const Names& names) {
  for (const char* name : names) {
    if (std::optional<std::string> value = get(name); value.has_value() && !value->empty()) return value;
  }
  return std::nullopt;
}

// Returns the first of `names` that is set, or the first name if none is set. Used in messages.
std::string NameOf(const GetVariable& get, const Names& names) {
  for (const char* name : names) {
    if (get(name).has_value()) return name;
  }
  return names.front();
}

absl::StatusOr<int> Number(const GetVariable& get, const Names& names) {
  const std::optional<std::string> text = First(get, names);
  int value = 0;
  if (text.has_value() && absl::SimpleAtoi(*text, &value)) return value;
  const std::string name = NameOf(get, names);
  const char* const advice =
      absl::StartsWith(name, "XLAD_") ? "set it for each process" : "the variable is set by the launcher";
  return absl::InvalidArgumentError(
      absl::StrCat("found ", name, "=", text.has_value() ? *text : "(not set)", ", expected a number; ", advice));
}

// The process that started this one, with its start time, because process ids are reused.
std::string ParentText() {
  const pid_t parent = getppid();
  const uint64_t start = StartOfProcess(parent);
  return start == 0 ? absl::StrCat(parent) : absl::StrCat(parent, "-", start);
}

// Reads the host of mpirun: "494403584.0;tcp://10.0.0.1,192.168.0.1:41001;tcp6://..." contains its addresses.
absl::Status CompleteOpenMpi(const GetVariable& get, Launch* launch) {
  const std::string uri = get("OMPI_MCA_orte_hnp_uri").value_or("");
  const size_t at = uri.find("tcp://");
  if (at == std::string::npos) return absl::OkStatus();
  const std::string addresses = uri.substr(at + 6);
  launch->first_host = addresses.substr(0, addresses.find_first_of(",:;"));
  return absl::OkStatus();
}

absl::Status CompleteTorch(const GetVariable& get, Launch* launch) {
  launch->first_host = get("MASTER_ADDR").value_or("");
  return absl::OkStatus();
}

absl::Status CompleteSlurm(const GetVariable& get, Launch* launch) {
  constexpr char kBatchStep[] = "4294967291";  // The id of a batch script's step, which older versions do not set.
  const std::optional<std::string> job = get("SLURM_JOB_ID");
  const std::string step = get("SLURM_STEP_ID").value_or(kBatchStep);
  if (job.has_value() && step == kBatchStep && launch->ranks > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("found the batch script of Slurm job ", *job, " with ", launch->ranks,
                     " tasks, of which this is the only process; start the tasks with srun, or unset SLURM_PROCID"));
  }
  if (const auto hosts = First(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"})) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandHostList(*hosts));
    launch->first_host = names.front();
  }
  if (const auto tasks = First(get, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"})) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<int> counts, ExpandCounts(*tasks));
    int node = 0;
    if (absl::SimpleAtoi(get("SLURM_NODEID").value_or("0"), &node) && node >= 0 && node < std::ssize(counts)) {
      launch->local_ranks = counts[node];
    }
  }
  if (job.has_value()) {
    launch->name = absl::StrCat("slurm-", *job, step == "0" || step == kBatchStep ? "" : "." + step, "-", launch->rank);
  }
  return absl::OkStatus();
}

absl::Status CompleteFlux(const GetVariable& get, Launch* launch) {
  if (get("FLUX_JOB_NNODES") == "1") launch->local_ranks = launch->ranks;
  return absl::OkStatus();
}

// Each pod has a network of its own, like a host. Its host name is unique, and the same after a restart.
void SetPod(std::string name, Launch* launch) {
  launch->name = std::move(name);
  launch->local_rank = 0;
  launch->local_ranks = 1;
}

absl::Status CompletePod(const GetVariable& get, Launch* launch) {
  SetPod(get("HOSTNAME").value_or(""), launch);
  return absl::OkStatus();
}

const std::vector<Launcher>& Launchers() {
  static const auto* const launchers = new std::vector<Launcher>{
#include "collectives/exec/bootstrap/launchers.inc"
  };
  return *launchers;
}

std::string KeyOf(const Launcher& launcher, const GetVariable& get) {
  std::string key;
  for (const char* name : launcher.key) {
    if (const std::optional<std::string> value = get(name)) absl::StrAppend(&key, *value, "-");
  }
  if (!launcher.key_is_unique || key.empty()) absl::StrAppend(&key, ParentText());
  for (char& c : key) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return key;
}

absl::Status CheckRank(const Launch& launch, const std::string& rank, const std::string& ranks) {
  if (launch.ranks >= 1 && launch.rank >= 0 && launch.rank < launch.ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found ", rank, "=", launch.rank, " and ", ranks, "=", launch.ranks,
                                                 ", expected 0 <= rank < number of ranks"));
}

absl::StatusOr<Launch> Read(const Launcher& launcher, const GetVariable& get) {
  Launch launch;
  launch.launcher = launcher.name;
  XLAD_ASSIGN_OR_RETURN(launch.rank, Number(get, launcher.rank));
  XLAD_ASSIGN_OR_RETURN(launch.ranks, Number(get, launcher.ranks));
  XLAD_RETURN_IF_ERROR(CheckRank(launch, NameOf(get, launcher.rank), NameOf(get, launcher.ranks)));
  if (First(get, launcher.local_rank)) {
    XLAD_ASSIGN_OR_RETURN(launch.local_rank, Number(get, launcher.local_rank));
  }
  if (First(get, launcher.local_ranks)) {
    XLAD_ASSIGN_OR_RETURN(launch.local_ranks, Number(get, launcher.local_ranks));
  }
  launch.key = KeyOf(launcher, get);
  if (launcher.complete != nullptr) XLAD_RETURN_IF_ERROR(launcher.complete(get, &launch));
  return launch;
}

// Reads the launch of a pod of a StatefulSet, whose host name ends with its number. All pods have host names, so the
// number counts as a rank only if XLAD_RANKS is set.
absl::StatusOr<std::optional<Launch>> ReadStatefulSet(const GetVariable& get) {
  if (!get("KUBERNETES_SERVICE_HOST") || !get("XLAD_RANKS") || get("XLAD_RANK") || get("JOB_COMPLETION_INDEX")) {
    return std::optional<Launch>();
  }
  Launch launch;
  launch.launcher = "a StatefulSet of Kubernetes";
  SetPod(get("HOSTNAME").value_or(""), &launch);
  const size_t dash = launch.name.rfind('-');
  if (dash == std::string::npos || !absl::SimpleAtoi(launch.name.substr(dash + 1), &launch.rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found XLAD_RANKS in a pod with HOSTNAME=", launch.name,
                     " and without XLAD_RANK and JOB_COMPLETION_INDEX, expected the host name of a pod of a "
                     "StatefulSet, such as worker-3; set XLAD_RANK, or unset XLAD_RANKS"));
  }
  XLAD_ASSIGN_OR_RETURN(launch.ranks, Number(get, {"XLAD_RANKS"}));
  XLAD_RETURN_IF_ERROR(CheckRank(launch, "the rank in HOSTNAME", "XLAD_RANKS"));
  launch.key = absl::StrCat(launch.name.substr(0, dash), "-", ParentText());
  return std::optional<Launch>(std::move(launch));
}

// Reads the position of this host in a slice of TPUs. Google's virtual machines and pods have the same variables.
absl::StatusOr<std::optional<Launch>> ReadTpuSlice(const GetVariable& get) {
  const std::optional<std::string> hosts = get("TPU_WORKER_HOSTNAMES");
  if (!get("TPU_WORKER_ID") || !hosts.has_value() || hosts->empty()) return std::optional<Launch>();
  Launch launch;
  launch.launcher = "the slice of TPUs";
  XLAD_ASSIGN_OR_RETURN(launch.rank, Number(get, {"TPU_WORKER_ID"}));
  const std::vector<std::string> names = absl::StrSplit(*hosts, ',');
  launch.ranks = static_cast<int>(names.size());
  XLAD_RETURN_IF_ERROR(CheckRank(launch, "TPU_WORKER_ID", "the number of hosts in TPU_WORKER_HOSTNAMES"));
  launch.first_host = names.front();
  launch.local_rank = 0;
  launch.local_ranks = 1;
  launch.key = ParentText();
  return std::optional<Launch>(std::move(launch));
}

struct Found {
  Level level;
  Launch launch;
};

// Returns the launches that the launchers' variables describe, in the order of the table.
absl::StatusOr<std::vector<Found>> ReadAll(const GetVariable& get) {
  std::vector<Found> found;
  for (const Launcher& launcher : Launchers()) {
    if (!First(get, launcher.rank) || (*launcher.needs != 0 && !get(launcher.needs))) continue;
    if (launcher.level == kInherited && get("TORCHELASTIC_RUN_ID")) continue;  // torchrun's row has read the variables.
    absl::StatusOr<Launch> launch = Read(launcher, get);
    // An outer launcher may have set only some variables. For example, Slurm's variables may be incomplete in mpirun.
    const bool is_outer = !found.empty() && found.front().level < launcher.level;
    if (!launch.ok() && is_outer) continue;
    XLAD_RETURN_IF_ERROR(launch.status());
    if (launcher.level == kByHand) return std::vector<Found>{{launcher.level, *std::move(launch)}};
    found.push_back({launcher.level, *std::move(launch)});
  }
  for (const auto read : {ReadStatefulSet, ReadTpuSlice}) {
    absl::StatusOr<std::optional<Launch>> launch = read(get);
    if (!launch.ok() && !found.empty()) continue;
    XLAD_RETURN_IF_ERROR(launch.status());
    if (launch->has_value()) found.push_back({kPod, **std::move(launch)});
  }
  return found;
}

absl::Status Ambiguous(const Launch& a, const Launch& b) {
  return absl::InvalidArgumentError(
      absl::StrCat("found rank ", a.rank, " of ", a.ranks, " by ", a.launcher, " and rank ", b.rank, " of ", b.ranks,
                   " by ", b.launcher,
                   ", expected one launcher; set XLAD_RANK and XLAD_RANKS, or unset the variables "
                   "of one of them (docs/reference/launchers.md)"));
}

}  // namespace

absl::StatusOr<std::optional<Launch>> DetectLaunch(const GetVariable& get) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Found> found, ReadAll(get));
  const Found* chosen = nullptr;
  for (const Found& one : found) {
    if (chosen == nullptr || one.level < chosen->level) chosen = &one;
  }
  if (chosen == nullptr) return std::optional<Launch>();
  Launch launch = chosen->launch;
  for (const Found& other : found) {
    const bool agrees = other.launch.rank == launch.rank && other.launch.ranks == launch.ranks;
    const bool is_outer = other.level > chosen->level && other.level != kInherited;
    if (!agrees && !is_outer) return Ambiguous(launch, other.launch);
    if (!agrees) continue;
    // Another launcher with the same rank and number of ranks may have set more variables. For example, srun --mpi=pmi2
    // sets Slurm's variables in addition to those of MPI.
    if (!launch.local_rank) launch.local_rank = other.launch.local_rank;
    if (!launch.local_ranks) launch.local_ranks = other.launch.local_ranks;
    if (launch.first_host.empty()) launch.first_host = other.launch.first_host;
    if (launch.name.empty()) launch.name = other.launch.name;
  }
  return std::optional<Launch>(std::move(launch));
}

absl::StatusOr<std::optional<Launch>> DetectLaunch() {
  return DetectLaunch([](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

absl::Status CheckOneHost(const Launch& launch) {
  if (!launch.local_ranks.has_value() || *launch.local_ranks == launch.ranks) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("found ", *launch.local_ranks, " of ", launch.ranks,
                                               " ranks on this host, expected all; start all ranks on one host, or "
                                               "let them meet in a folder that all hosts see (--transport tcp --meet "
                                               "FOLDER --listen ADDRESS)"));
}

}  // namespace xlad::collectives
