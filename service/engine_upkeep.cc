// The engine's maintenance of its folder: removes unneeded files, makes backups.
#include <filesystem>

#include "absl/strings/match.h"
#include "base/hash.h"
#include "base/log.h"
#include "service/engine.h"
#include "service/restore.h"
#include "storage/checkpoint_folder.h"
#include "storage/uri.h"

namespace xlad::service {
namespace {

// Creates the folder `to` with the files of the folder `from`. The files never change, so `to` gets hard links to them,
// or copies if links cannot be made, as on another disk. Files that are still being written are left out.
absl::Status LinkFiles(const std::string& from, const std::string& to, BackupResponse* response) {
  FileSystem& files = RealFileSystem();
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(to));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(from));
  for (const std::string& name : names) {
    const std::string source = JoinPath(from, name), copy = JoinPath(to, name);
    if (absl::StrContains(name, ".tmp")) continue;
    std::error_code error;
    std::filesystem::create_hard_link(source, copy, error);
    if (error) std::filesystem::copy_file(source, copy, error);
    if (error && files.Exists(source)) {
      return absl::ResourceExhaustedError(absl::StrCat("cannot copy ", source, " to ", copy, ": ", error.message()));
    }
    if (error) continue;  // The file was removed after it was listed.
    // All other files are checksums, damaged blobs or batches.
    if (IsSha256Hex(name)) response->set_blobs(response->blobs() + 1);
    response->set_bytes(response->bytes() + files.Size(copy).value_or(0));
  }
  return absl::OkStatus();
}

}  // namespace

void Engine::RemoveCheckpoint(const DropCheckpoint& request) {
  const auto uri = storage::ParseUri(request.uri);
  if (!uri.ok()) return;
  if (uri->scheme == storage::Uri::Scheme::kBlob) {
    const std::lock_guard lock(collecting_);
    collector_->Drop(request.uri);
    return;
  }
  const absl::Status removed = storage::RemoveCheckpointFolder(RealFileSystem(), uri->rest);
  if (!removed.ok()) LogWarn("an old checkpoint cannot be removed", {{"error", std::string(removed.message())}});
}

void Engine::RemoveDroppedBlobs() {
  const std::lock_guard lock(collecting_);
  if (!collector_->is_due()) return;
  const absl::Status collected = collector_->CollectDropped([this] { return StateInUse(); });
  if (!collected.ok()) LogWarn("old blobs cannot be removed", {{"error", std::string(collected.message())}});
}

absl::StatusOr<StoredState> Engine::StateInUse() {
  return Ask<StoredState>(
      [](CoordinatorCore& coordinator) -> absl::StatusOr<StoredState> { return coordinator.StateInUse(); });
}

// Removes the folders of jobs that are no longer in the log.
absl::Status Engine::RemoveFolders() {
  const std::string root = JoinPath(options_.data_folder, "jobs");
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> folders, RealFileSystem().List(root));
  // The state is read after the folders were listed, so the folder of a newer job is not in the list.
  XLAD_ASSIGN_OR_RETURN(const StoredState state, StateInUse());
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (!state.jobs.contains(folder)) std::filesystem::remove_all(JoinPath(root, folder), ignored);
  }
  return absl::OkStatus();
}

void Engine::RemoveUnneededData(const CleanUp& request) {
  const auto warn = [](const char* what, const absl::Status& status) {
    if (!status.ok()) LogWarn(what, {{"error", std::string(status.message())}});
  };
  if (const auto log = ReadableLog(); log.ok()) {
    absl::StatusOr<LogCompaction> plan = PlanCompaction(log->get(), request.trimmed);
    if (plan.ok() && !plan->empty()) {
      warn("the job log cannot be compacted", (*log)->Compact(*plan));
    } else {
      warn("the job log cannot be compacted", plan.status());
    }
  }
  warn("folders of removed jobs cannot be removed", RemoveFolders());
  const std::lock_guard lock(collecting_);
  warn("old blobs cannot be removed", collector_->CollectDropped([this] { return StateInUse(); }));
  const absl::StatusOr<int64_t> removed = collector_->CollectAll([this] { return StateInUse(); });
  warn("blobs that no job needs cannot be removed", removed.status());
  if (removed.ok() && *removed > 0) LogInfo("removed blobs that no job needs", {{"blobs", absl::StrCat(*removed)}});
}

absl::StatusOr<std::shared_ptr<void>> Engine::HoldBlobs(const JobSpec& spec, const ResolvedResume& resume) {
  std::vector<std::string> blobs = {spec.program_blob()};
  for (const std::string& digest : {spec.state_blob(), spec.data_blob()}) {
    if (!digest.empty()) blobs.push_back(digest);
  }
  for (const std::string& uri : {spec.state_uri(), spec.data_uri(), resume.uri}) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> named, BlobsNamedBy(*blobs_, uri));
    blobs.insert(blobs.end(), named.begin(), named.end());
  }
  std::shared_ptr<void> hold = blobs_->Hold(blobs);
  for (const std::string& digest : blobs) {
    if (blobs_->Has(digest)) continue;
    return absl::FailedPreconditionError(absl::StrCat("found no blob ", digest, ", expected it to be uploaded"));
  }
  return hold;
}

absl::StatusOr<BackupResponse> Engine::Backup(const std::string& folder) {
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<JobLog> log, ReadableLog());
  FileSystem& files = RealFileSystem();
  const std::string blobs = JoinPath(folder, "blobs"), batches = JoinPath(folder, "batches");
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(folder));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> present, files.List(folder));
  if (!present.empty()) {
    return absl::AlreadyExistsError(absl::StrCat("found files in ", folder, ", expected a new or empty folder"));
  }
  BackupResponse response;
  const std::lock_guard lock(collecting_);
  const std::shared_ptr<void> hold = spool_->HoldRemovals();
  // The log is copied first. Every blob and batch that it needs exists by then, because they are stored before they are
  // recorded.
  const absl::Status copied = [&]() -> absl::Status {
    XLAD_RETURN_IF_ERROR(log->BackUp(JoinPath(folder, kPartialLog)));
    XLAD_RETURN_IF_ERROR(LinkFiles(JoinPath(options_.data_folder, "blobs"), blobs, &response));
    for (const std::string& job : spool_->Jobs()) {
      const std::string from = JoinPath(JoinPath(options_.data_folder, "batches"), job);
      XLAD_RETURN_IF_ERROR(LinkFiles(from, JoinPath(batches, job), &response));
    }
    return CompleteFolder(folder);
  }();
  if (copied.ok()) return response;
  // After a failure, the folder is emptied, so that the next try can use it and its files do not fill the disk.
  for (const std::string& name : files.List(folder).value_or(std::vector<std::string>())) {
    std::error_code ignored;
    std::filesystem::remove_all(JoinPath(folder, name), ignored);
  }
  return copied;
}

}  // namespace xlad::service
