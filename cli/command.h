// The common parts of the subcommands of `xlad`: exit codes, errors, output, signals.
//
// A subcommand is one file with one Add function, which declares its flags on a CLI::App and sets `*action` to the
// function that runs after parsing. cli/main.cc has the table of subcommands.
#pragma once

#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/grpc_channel.h"
#include "base/status.h"
#include "cli/wrong_usage.h"
#include "proto/job.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {
class JoinFileKeeper;
}  // namespace xlad::service

namespace xlad::cli {

// Documented in docs/reference/commands.md.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // The input is invalid, or the job failed.
  kUsage = 2,        // A flag or argument is wrong.
  kUnavailable = 3,  // The coordinator cannot be reached, or a port or folder is in use.
  kMoved = 75,       // EX_TEMPFAIL: stopped by SIGTERM; the state is saved, and the training can be continued.
  kInterrupted = 130,
};

using Action = std::function<int()>;

// Prints "xlad: error: ..." on standard error and returns the exit code for the error.
int Fail(const absl::Status& status);

// Writes to `path`, or to standard output if it is empty or "-".
absl::Status WriteOutput(const std::string& path, const std::string& bytes);
// Reads a file, or standard input if `path` is "-".
absl::StatusOr<std::string> ReadInput(const std::string& path);

// Returns the folder for temporary files, which $TMPDIR names, or NotFound if it is not a folder.
absl::StatusOr<std::string> TemporaryFolder();

bool ErrorIsTerminal();
// Installs signal handlers once. The first SIGINT or SIGTERM sets the returned value to the signal's number; the second
// one ends the process at once with exit code 130.
std::atomic<int>* StopRequested();
// Has the effect of a first SIGTERM, but does not end a process that is already stopping. A local cluster sends it to
// its workers, because a batch system may have sent SIGTERM to all processes of the job before.
inline constexpr int kDrainSignal = SIGUSR1;
// Makes all files and folders that this process and its children create from now on unreadable for other users, because
// data, logs and checkpoints belong to the user who runs the cluster.
void KeepFilesPrivate();

// Declares --coordinator (default: the address of `xlad up`), --join, --tls-ca and --token-file. --join names a file
// that has the values of the other three. A coordinator that does not listen on loopback writes a join file for the
// user who started it. Commands of this user use that file if `own` is kYes, neither --join nor --tls-ca is set, and
// --coordinator is not set or has the address in the file.
enum class UseOwnJoinFile { kYes, kNo };
void AddEndpointFlags(CLI::App* app, Endpoint* endpoint, UseOwnJoinFile own = UseOwnJoinFile::kYes);
// Declares --format table|json, and --json.
void AddFormatFlag(CLI::App* app, std::string* format);

void AddUp(CLI::App& parent, Action* action);
void AddCoordinator(CLI::App& parent, Action* action);
void AddWorker(CLI::App& parent, Action* action);
void AddRun(CLI::App& parent, Action* action);
void AddSubmit(CLI::App& parent, Action* action);
void AddPs(CLI::App& parent, Action* action);
void AddLogs(CLI::App& parent, Action* action);
void AddEvents(CLI::App& parent, Action* action);
void AddWhy(CLI::App& parent, Action* action);
void AddStatus(CLI::App& parent, Action* action);
void AddNodes(CLI::App& parent, Action* action);
void AddTop(CLI::App& parent, Action* action);
void AddTrace(CLI::App& parent, Action* action);
void AddCancel(CLI::App& parent, Action* action);
void AddCkpt(CLI::App& parent, Action* action);
void AddResize(CLI::App& parent, Action* action);
void AddDrain(CLI::App& parent, Action* action);
void AddUndrain(CLI::App& parent, Action* action);
void AddBackup(CLI::App& parent, Action* action);
void AddRestore(CLI::App& parent, Action* action);
void AddPartition(CLI::App& parent, Action* action);
void AddExplain(CLI::App& parent, Action* action);
void AddVerify(CLI::App& parent, Action* action);
void AddCompile(CLI::App& parent, Action* action);
void AddTune(CLI::App& parent, Action* action);
void AddOpt(CLI::App& parent, Action* action);
void AddEval(CLI::App& parent, Action* action);
void AddBench(CLI::App& parent, Action* action);
void AddComm(CLI::App& parent, Action* action);
void AddSimulate(CLI::App& parent, Action* action);
void AddChaos(CLI::App& parent, Action* action);
void AddToken(CLI::App& parent, Action* action);
void AddVersion(CLI::App& parent, Action* action);
void AddConfig(CLI::App& parent, Action* action);

// Called when a coordinator has begun to listen at `address`, which is not a loopback address. Writes a join file for
// the commands of this user, and keeps it valid until the returned object ends. Returns null if the user has no folder
// for the file. If the file cannot be written, logs a warning and returns null: the coordinator does not need the file.
std::unique_ptr<service::JoinFileKeeper> KeepOwnJoinFile(const std::string& data_folder, const std::string& address);
// The name of the user who runs this process, as an owner of jobs.
std::string OwnUserName();

inline constexpr char kAdvertiseHelp[] =
    "host or interface by which other machines reach this one; default: that of --listen";
// Help of --http, which docs/reference/metrics.md describes.
inline constexpr char kHttpHelp[] = "HOST:PORT for metrics (/metrics), health (/livez, /readyz) and the dashboard (/)";
// Help of --cache. CacheFolder (base/cache_folder.h) interprets the flag's value.
inline constexpr char kCacheHelp[] =
    "folder in which executables are cached; off: no cache; default: that of XLAD_CACHE (docs/reference/commands.md)";

}  // namespace xlad::cli
