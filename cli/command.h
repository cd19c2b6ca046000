// What every subcommand of `xlad` shares: exit codes, errors, output, signals.
//
// A subcommand is one file with one Add function that declares its flags on a CLI::App and sets `*action` to what runs
// after parsing. cli/main.cc has the table.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/grpc_channel.h"
#include "base/status.h"
#include "proto/job.pb.h"

namespace xlad::cli {

// Documented in docs/reference/exit-codes.md.
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,       // Bad input, or the job failed.
  kUsage = 2,        // A flag or argument is wrong.
  kUnavailable = 3,  // The coordinator cannot be reached, or a port or folder is in use.
  kInterrupted = 130,
};

using Action = std::function<int()>;

// "xlad: error: ..." on standard error; returns the exit code that the error has.
int Fail(const absl::Status& status);

// Writes to `path`, or to standard output where it is empty or "-".
absl::Status WriteOutput(const std::string& path, const std::string& bytes);
// A file, or standard input for "-".
absl::StatusOr<std::string> ReadInput(const std::string& path);

bool ErrorIsTerminal();
// Installs handlers once: the first SIGINT or SIGTERM makes the value 1, a second one exits at once with 130.
std::atomic<int>* StopRequested();
// The signal that came, 0 where none did.
int StopSignal();

// --coordinator (where `xlad up` listens), --tls-ca, --token-file.
void AddEndpointFlags(CLI::App* app, Endpoint* endpoint);
// --format table|json, and --json.
void AddFormatFlag(CLI::App* app, std::string* format);

// For numbers of flags: a whole number from `least`.
CLI::Validator AtLeast(int64_t least);
// For paths that are written at the end of long work: that their folder is there and may be written.
CLI::Validator OutputFile();

std::string MeshText(const google::protobuf::RepeatedPtrField<MeshAxis>& mesh);  // "dp=4,tp=2" or "single"

void AddUp(CLI::App& parent, Action* action);
void AddCoordinator(CLI::App& parent, Action* action);
void AddWorker(CLI::App& parent, Action* action);
void AddRun(CLI::App& parent, Action* action);
void AddSubmit(CLI::App& parent, Action* action);
void AddPs(CLI::App& parent, Action* action);
void AddLogs(CLI::App& parent, Action* action);
void AddCancel(CLI::App& parent, Action* action);
void AddPartition(CLI::App& parent, Action* action);
void AddExplain(CLI::App& parent, Action* action);
void AddVerify(CLI::App& parent, Action* action);
void AddCompile(CLI::App& parent, Action* action);
void AddOpt(CLI::App& parent, Action* action);
void AddEval(CLI::App& parent, Action* action);
void AddBench(CLI::App& parent, Action* action);
void AddVersion(CLI::App& parent, Action* action);

// Help of --cache; service::CacheFolder reads it.
inline constexpr char kCacheHelp[] =
    "folder for executables, so that nothing is compiled twice; off: none; without it XLAD_CACHE says";

}  // namespace xlad::cli
