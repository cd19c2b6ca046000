// `xlad comm why`: which rank of a process group the others wait for. The other subcommands of `xlad comm` are in
// comm_schedules.cc.
#include "cli/comm.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file_system.h"
#include "base/json_text.h"
#include "collectives/exec/group/verdict.h"

namespace xlad::cli {
namespace {

struct WhyOptions {
  std::string group;  // A path, or a part of the name of a control file. If empty, the newest one is used.
  std::string format;
};

struct ControlPaths {
  std::string path;
  // The files of other groups that also match and have the same rank 0, for example parts of a split group.
  std::vector<std::string> others;
};

// The end of a control file's name, which is "-" and the process id of rank 0.
absl::string_view EndOfName(absl::string_view path) { return path.substr(std::min(path.rfind('-'), path.size())); }

// The file at the path `part` if it exists, otherwise the newest control file whose name contains `part`.
absl::StatusOr<ControlPaths> FindControlFile(const std::string& part) {
  if (!part.empty() && RealFileSystem().Exists(part) && !RealFileSystem().IsDirectory(part)) {
    return ControlPaths{part, {}};
  }
  XLAD_ASSIGN_OR_RETURN(const std::string folder, collectives::ControlFolder());
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, RealFileSystem().List(folder));
  std::string newest;
  int64_t newest_ns = -1;
  std::vector<std::string> paths;
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    struct stat info {};
    if (!absl::StrContains(name, part) || stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const int64_t changed_ns = int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec;
    if (changed_ns > newest_ns) newest = path;
    newest_ns = std::max(newest_ns, changed_ns);
    paths.push_back(path);
  }
  std::erase_if(paths, [&](const std::string& path) { return path == newest || EndOfName(path) != EndOfName(newest); });
  if (!newest.empty()) return ControlPaths{newest, paths};
  return absl::NotFoundError(absl::StrCat(folder, ": found no control file",
                                          part.empty() ? "" : absl::StrCat(" with \"", part, "\" in its name"),
                                          ", expected that of a group that runs, hangs or was killed"));
}

const char* ToText(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning:
      return "running";
    case ProcessState::kStopped:
      return "stopped";
    case ProcessState::kGone:
      return "gone";
  }
  return "";
}

void PrintTable(const ControlPaths& paths, const collectives::Verdict& verdict) {
  for (const std::string& other : paths.others) std::printf("another group with the same rank 0: %s\n", other.c_str());
  std::printf("%s\n%4s %8s %8s %9s %9s  %s\n", paths.path.c_str(), "rank", "pid", "process", "entered", "finished",
              "operation");
  for (size_t rank = 0; rank < verdict.ranks.size(); ++rank) {
    const collectives::RankState& state = verdict.ranks[rank];
    absl::PrintF("%4zu %8d %8s %9d %9d  %s\n", rank, state.pid, ToText(state.process), state.entered, state.finished,
                 state.operation);
  }
  std::printf("\n%s\n", verdict.text.c_str());
}

void PrintJson(const ControlPaths& paths, const collectives::Verdict& verdict) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const collectives::RankState& state : verdict.ranks) {
    ranks.push_back({{"pid", state.pid},
                     {"host", state.host},
                     {"process", ToText(state.process)},
                     {"left", state.left},
                     {"gave_up", state.gave_up},
                     {"entered", state.entered},
                     {"finished", state.finished},
                     {"operation", state.operation},
                     {"waits_for", state.waits_for},
                     {"step", state.step}});
  }
  const nlohmann::ordered_json json = {
      {"file", paths.path}, {"other_files", paths.others}, {"ranks", ranks}, {"culprits", verdict.culprits},
      {"verdict", verdict.text}};
  std::printf("%s\n", JsonText(json, 2).c_str());
}

int Why(const WhyOptions& options) {
  const absl::StatusOr<ControlPaths> paths = FindControlFile(options.group);
  if (!paths.ok()) return Fail(paths.status());
  const auto control = collectives::ControlFile::Open(paths->path, /*writable=*/false);
  if (!control.ok()) return Fail(control.status());
  const collectives::Verdict verdict = collectives::ExplainGroup(**control);
  if (options.format == "json") {
    PrintJson(*paths, verdict);
  } else {
    PrintTable(*paths, verdict);
  }
  return kOk;
}

}  // namespace

void AddComm(CLI::App& parent, Action* action) {
  CLI::App* comm = parent.add_subcommand("comm", "check, draw and simulate collectives; inspect those among processes");
  comm->footer(
      "Examples:\n  xlad comm check all_reduce --ranks 8 --algorithm ring\n"
      "  xlad comm schedule all_reduce --ranks 4 --algorithm ring --draw\n"
      "  xlad comm simulate all_reduce --topology v5e-4x4 --bytes 16M\n  xlad comm why");
  comm->require_subcommand(1);
  auto options = std::make_shared<WhyOptions>();
  CLI::App* why = comm->add_subcommand("why", "say which rank of a process group the others wait for");
  why->footer("Example:\n  xlad comm why\nReads the control file of the group, even after its processes were killed.");
  why->add_option("GROUP", options->group, "a control file, or a part of its name; without it the newest");
  AddFormatFlag(why, &options->format);
  why->callback([=] { *action = [=] { return Why(*options); }; });
  AddCommSchedules(comm, action);
}

}  // namespace xlad::cli
