#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "base/containers.h"
#include "base/file_system.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/save_state.h"
#include "client/coordinator_client.h"
#include "proto/mesh.h"
#include "storage/checkpoint_folder.h"

namespace xlad::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  Endpoint endpoint;
  std::string what;  // A job's id, the path of a folder or file, or a URI.
  std::string format = "table";
  std::string to;
};

// A checkpoint with its index, or with the error of reading the index.
struct SourceCheckpoint {
  std::string uri;
  absl::StatusOr<CheckpointIndex> index;
};

// The checkpoints that the argument names. The client is null if no coordinator is needed.
struct Source {
  std::unique_ptr<client::CoordinatorClient> client;
  // Whether a checkpoint that was listed still exists. Null if the argument names one file or blob.
  std::function<bool(const std::string& uri)> exists;
  storage::Store store = storage::Store(RealFileSystem());
  std::vector<SourceCheckpoint> checkpoints;  // Oldest first.
};

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

absl::StatusOr<Source> OpenPath(const std::string& path) {
  Source source;
  if (!RealFileSystem().IsDirectory(path)) {
    const std::string uri = storage::FileUri(AbsolutePath(path));
    source.checkpoints.push_back({uri, source.store.ReadIndex(uri)});
    return source;
  }
  XLAD_ASSIGN_OR_RETURN(const auto found, storage::ListCheckpoints(RealFileSystem(), path));
  for (const auto& checkpoint : found) {
    source.checkpoints.push_back({storage::FileUri(AbsolutePath(checkpoint.folder)), checkpoint.index});
  }
  source.exists = [](const std::string& uri) {
    const absl::StatusOr<storage::Uri> folder = storage::ParseUri(uri);
    return !folder.ok() || storage::IsCheckpoint(RealFileSystem(), folder->rest);
  };
  if (!source.checkpoints.empty()) return source;
  return absl::NotFoundError(absl::StrCat("found no checkpoint in ", path,
                                          ", expected the folder of a checkpoint, of a job or of several jobs"));
}

// Returns the checkpoints that the job has now.
absl::StatusOr<std::vector<std::string>> UrisOf(client::CoordinatorClient& client, const std::string& job) {
  XLAD_ASSIGN_OR_RETURN(const JobStatus status, client.GetJob(job));
  if (!status.has_checkpoint()) return absl::NotFoundError(absl::StrCat("job ", job, " has no checkpoint"));
  std::vector<std::string> uris;
  for (const JobCheckpoint& checkpoint : status.checkpoints()) uris.push_back(checkpoint.uri());
  if (uris.empty()) uris = {status.checkpoint_uri()};  // An older coordinator lists only the newest one.
  return uris;
}

// Whether a checkpoint that was listed cannot be read because the running job has stored newer ones since then. The
// files of such a checkpoint are removed one after the other, so the error can be of any kind.
bool IsReplaced(const Source& source, const std::string& uri, const absl::Status& status) {
  return source.exists != nullptr && !status.ok() && !source.exists(uri);
}

// Reads the indexes of the checkpoints. If the job has replaced all of these, reads those of its later checkpoints.
absl::Status ReadIndexes(std::vector<std::string> uris, const std::string& job, Source* source) {
  for (int pass = 0; pass < storage::kMaxCheckpointPasses; ++pass) {
    for (const std::string& uri : uris) {
      SourceCheckpoint found{uri, source->store.ReadIndex(uri)};
      if (!IsReplaced(*source, uri, found.index.status())) source->checkpoints.push_back(std::move(found));
    }
    if (!source->checkpoints.empty()) return absl::OkStatus();
    XLAD_ASSIGN_OR_RETURN(uris, UrisOf(*source->client, job));
  }
  return storage::ReplacedTooFast(job);
}

absl::StatusOr<Source> Open(const Arguments& arguments) {
  const std::string& what = arguments.what;
  if (what.substr(0, 5) == "file:") return OpenPath(what.substr(5));
  if (what.substr(0, 5) != "xlad:") {
    if (RealFileSystem().Exists(what)) return OpenPath(what);
    if (absl::StrContains(what, '/')) {
      return absl::NotFoundError(
          absl::StrCat("found no file or folder ", what, ", expected a job, the folder of a checkpoint, or its URI"));
    }
  }
  Source source;
  XLAD_ASSIGN_OR_RETURN(source.client, client::CoordinatorClient::Connect(arguments.endpoint));
  source.store = StoreOf(*source.client);
  std::vector<std::string> uris;
  if (what.substr(0, 5) == "xlad:") {
    uris = {what};
  } else {
    XLAD_ASSIGN_OR_RETURN(uris, UrisOf(*source.client, what));
    source.exists = [client = source.client.get(), job = what](const std::string& uri) {
      const auto now = UrisOf(*client, job);
      return !now.ok() || Contains(*now, uri);
    };
  }
  XLAD_RETURN_IF_ERROR(ReadIndexes(uris, what, &source));
  return source;
}

int64_t BytesOf(const CheckpointIndex& index) {
  int64_t bytes = 0;
  for (const CheckpointShard& shard : index.shards()) bytes += shard.bytes();
  return bytes;
}

Json ToJson(const SourceCheckpoint& found) {
  Json json;
  json["uri"] = found.uri;
  if (!found.index.ok()) {
    json["error"] = std::string(found.index.status().message());
    return json;
  }
  const CheckpointIndex& index = *found.index;
  json["job"] = index.job_id();
  json["step"] = index.step();
  json["attempt"] = index.attempt();
  json["unix_ns"] = index.unix_ns();
  json["mesh"] = MeshText(index.mesh());
  json["tensors"] = index.tensors_size();
  json["shards"] = index.shards_size();
  json["bytes"] = BytesOf(index);
  return json;
}

void PrintRow(const Json& json) {
  if (json.contains("error")) {
    std::printf("%s  cannot be read: %s\n", json["uri"].get<std::string>().c_str(),
                json["error"].get<std::string>().c_str());
    return;
  }
  std::printf(
      "%s", absl::StrFormat("%-14s %10d %8d %7d %14d  %s\n", json["job"].get<std::string>(),
                            json["step"].get<int64_t>(), json["attempt"].get<int64_t>(), json["shards"].get<int64_t>(),
                            json["bytes"].get<int64_t>(), json["uri"].get<std::string>())
                .c_str());
}

int Print(const Json& rows, const std::string& format) {
  if (format == "json") {
    std::printf("%s\n", JsonText(rows, 2).c_str());
    return kOk;
  }
  std::printf("%-14s %10s %8s %7s %14s  %s\n", "JOB", "STEP", "ATTEMPT", "SHARDS", "BYTES", "URI");
  for (const Json& row : rows) PrintRow(row);
  return kOk;
}

int List(const Arguments& arguments) {
  const absl::StatusOr<Source> source = Open(arguments);
  if (!source.ok()) return Fail(source.status());
  Json rows = Json::array();
  for (const SourceCheckpoint& found : source->checkpoints) rows.push_back(ToJson(found));
  return Print(rows, arguments.format);
}

// Runs a command until it has not lost all checkpoints that it was reading. `once` returns the exit code, or nothing if
// the job has replaced all of them.
int Repeat(const Arguments& arguments, std::optional<int> (*once)(const Arguments&)) {
  for (int pass = 0; pass < storage::kMaxCheckpointPasses; ++pass) {
    if (const std::optional<int> code = once(arguments); code.has_value()) return *code;
  }
  return Fail(storage::ReplacedTooFast(arguments.what));
}

std::optional<int> VerifyOnce(const Arguments& arguments) {
  const absl::StatusOr<Source> source = Open(arguments);
  if (!source.ok()) return Fail(source.status());
  Json rows = Json::array();
  bool all_ok = true;
  for (const SourceCheckpoint& found : source->checkpoints) {
    Json row = ToJson(found);
    const bool is_too_fast = absl::IsAborted(found.index.status());  // This is a job, not a checkpoint.
    const absl::Status status = is_too_fast ? found.index.status() : source->store.VerifyCheckpoint(found.uri);
    if (!is_too_fast && IsReplaced(*source, found.uri, status)) continue;
    if (!status.ok()) row["error"] = std::string(status.message());
    row["ok"] = status.ok();
    all_ok = all_ok && status.ok();
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return std::nullopt;  // All of them have been replaced.
  Print(rows, arguments.format);
  if (all_ok) return kOk;
  return Fail(absl::DataLossError("found checkpoints that are damaged or could not be read, expected none"));
}

int Verify(const Arguments& arguments) { return Repeat(arguments, VerifyOnce); }

std::optional<int> ExportOnce(const Arguments& arguments) {
  const absl::StatusOr<Source> source = Open(arguments);
  if (!source.ok()) return Fail(source.status());
  const SourceCheckpoint& newest = source->checkpoints.back();
  if (!newest.index.ok()) return Fail(newest.index.status());
  std::string file = arguments.to;
  if (file.empty()) file = absl::StrCat(newest.index->job_id(), "-step-", newest.index->step(), ".safetensors");
  const absl::Status saved = SaveTensors(source->store, newest.uri, file);
  if (file != "-" && IsReplaced(*source, newest.uri, saved)) return std::nullopt;
  if (!saved.ok()) return Fail(saved);
  if (file == "-") return kOk;
  Json row = ToJson(newest);
  row["file"] = file;
  if (arguments.format == "json") return Print(row, arguments.format);
  std::printf("%s\n", file.c_str());
  return kOk;
}

int Export(const Arguments& arguments) { return Repeat(arguments, ExportOnce); }

// Adds to `app` the arguments that all subcommands have, and makes the subcommand call `run`.
CLI::App* Complete(CLI::App* app, int (*run)(const Arguments&), const std::shared_ptr<Arguments>& arguments,
                   Action* action) {
  app->add_option(
         "JOB", arguments->what,
         "a job of the coordinator, the URI of a checkpoint, or the folder of a checkpoint, of a job or of several "
         "jobs; a folder needs no coordinator")
      ->required();
  AddEndpointFlags(app, &arguments->endpoint);
  AddFormatFlag(app, &arguments->format);
  app->callback([=] { *action = [=] { return run(*arguments); }; });
  return app;
}

}  // namespace

void AddCkpt(CLI::App& parent, Action* action) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app = parent.add_subcommand("ckpt", "list, verify and export checkpoints");
  app->require_subcommand(1);
  app->footer(
      "Examples:\n"
      "  xlad ckpt ls job-1a2b3c4d\n"
      "  xlad ckpt verify /shared/checkpoints/job-1a2b3c4d --format json\n"
      "  xlad ckpt export job-1a2b3c4d --to state.safetensors");
  Complete(app->add_subcommand("ls", "list checkpoints, oldest first"), List, arguments, action);
  Complete(app->add_subcommand("verify", "read every byte and compare it with the checksums"), Verify, arguments,
           action);
  CLI::App* exported =
      Complete(app->add_subcommand("export", "write the newest checkpoint as safetensors"), Export, arguments, action);
  exported->add_option("--to", arguments->to, "the file, or - for standard output; default: JOB-step-N.safetensors")
      ->check(OutputFile());
}

}  // namespace xlad::cli
