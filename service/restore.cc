#include "service/restore.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "service/log/jobs.h"

namespace xlad::service {
namespace {

constexpr char kLog[] = "jobs.sqlite";

// Whether `inner` is the folder `outer` or lies in it. Missing folders and links are allowed.
bool IsWithin(const std::string& inner, const std::string& outer) {
  std::error_code ignored;
  const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(outer, ignored), ignored);
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(inner, ignored), ignored);
  if (folder.empty()) return false;  // The path cannot be resolved.
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// Makes all files and folders in the folder durable.
absl::Status SyncAll(const std::string& folder) {
  FileSystem& files = RealFileSystem();
  std::error_code error;
  for (auto at = std::filesystem::recursive_directory_iterator(folder, error);
       !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    const std::string path = at->path().string();
    if (at->is_directory()) {
      XLAD_RETURN_IF_ERROR(files.SyncDirectory(path));
    } else if (at->is_regular_file()) {
      XLAD_ASSIGN_OR_RETURN(const auto file, files.Open(path, OpenMode::kRead));
      XLAD_RETURN_IF_ERROR(file->Sync());
    }
  }
  if (error) return absl::InternalError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  return files.SyncDirectory(folder);
}

absl::Status CopyError(const std::string& from, const std::string& to, const std::error_code& error) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot copy ", from, " to ", to, ": ", error.message(),
                                                   "; remove the cause, then run the same command again"));
}

// Copies the backup. The log gets the name kPartialLog, which exists before anything else does.
absl::Status CopyBackup(const std::string& backup, const std::string& data_folder) {
  FileSystem& files = RealFileSystem();
  const std::string partial = JoinPath(data_folder, kPartialLog);
  XLAD_RETURN_IF_ERROR(files.WriteAtomically(partial, ""));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(backup));
  std::error_code error;
  for (const std::string& name : names) {
    if (name == kLog) continue;
    const std::string from = JoinPath(backup, name), to = JoinPath(data_folder, name);
    std::filesystem::copy(from, to, std::filesystem::copy_options::recursive, error);
    if (error) return CopyError(from, to, error);
  }
  const std::string log = JoinPath(backup, kLog);
  std::filesystem::copy_file(log, partial, std::filesystem::copy_options::overwrite_existing, error);
  return error ? CopyError(log, partial, error) : absl::OkStatus();
}

// Begins the term of the restored coordinator, and returns it. Workers ignore messages of lower terms, and may know the
// terms and attempts of a coordinator that was restored from the same backup before. Therefore the time is added: fewer
// terms or attempts begin than milliseconds pass.
absl::StatusOr<int64_t> BeginTerm(const std::string& path, int64_t unix_ns) {
  XLAD_ASSIGN_OR_RETURN(const auto log, OpenSqliteJobLog(path));
  Jobs jobs;
  XLAD_RETURN_IF_ERROR(log->ReadEvents([&](const JobEvent& event) {
    jobs.Apply(event);
    return absl::OkStatus();
  }));
  const int64_t step = kRestoredTermStep + unix_ns / kNsPerMs;
  const int64_t term = jobs.term().value() + step;
  LogBatch batch;
  batch.events.resize(2);
  for (JobEvent& event : batch.events) {
    event.set_unix_ns(unix_ns);
    event.set_term(term);
  }
  batch.events[0].mutable_term_started()->set_term(term);
  batch.events[0].mutable_term_started()->set_reason("restored from a backup");
  batch.events[1].mutable_removed()->set_generation(jobs.generation().value() + step);
  XLAD_RETURN_IF_ERROR(log->Append(&batch));
  return term;
}

}  // namespace

absl::Status CheckComplete(const std::string& folder) {
  FileSystem& files = RealFileSystem();
  if (files.Exists(JoinPath(folder, kLog)) || !files.Exists(JoinPath(folder, kPartialLog))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("found ", kPartialLog, " and no ", kLog, " in ", folder, ": the backup or restore that writes this ",
                   "folder has not ended or was killed; run xlad backup or xlad restore again"));
}

absl::Status CheckLogExists(const std::string& data_folder) {
  FileSystem& files = RealFileSystem();
  const std::string log = JoinPath(data_folder, kLog), blobs = JoinPath(data_folder, "blobs");
  const auto bytes = files.Size(log);
  const auto names = files.List(blobs);
  for (const absl::Status& read : {bytes.status(), names.status()}) {
    if (!read.ok() && !absl::IsNotFound(read)) return read;  // The files may exist.
  }
  if (bytes.value_or(0) > 0 || !names.ok() || names->empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(log, " is ", bytes.ok() ? "empty" : "missing", ", but ", blobs,
                                          " has the files of jobs; restore the folder from a backup, or start with "
                                          "another --data folder"));
}

absl::Status CompleteFolder(const std::string& folder) {
  FileSystem& files = RealFileSystem();
  XLAD_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(folder));
  XLAD_RETURN_IF_ERROR(SyncAll(folder));
  // The log is renamed after the files that belong to it, such as the copy of a log of an older schema.
  std::sort(names.begin(), names.end(), std::greater<>());
  for (const std::string& name : names) {
    if (!absl::StartsWith(name, kPartialLog)) continue;
    const std::string target = absl::StrCat(kLog, absl::StripPrefix(name, kPartialLog));
    XLAD_RETURN_IF_ERROR(files.Rename(JoinPath(folder, name), JoinPath(folder, target)));
  }
  return files.SyncDirectory(folder);
}

absl::StatusOr<int64_t> RestoreBackup(const std::string& backup, const std::string& data_folder, int64_t unix_ns) {
  FileSystem& files = RealFileSystem();
  XLAD_RETURN_IF_ERROR(CheckComplete(backup));
  if (!files.Exists(JoinPath(backup, kLog))) {
    return absl::NotFoundError(absl::StrCat("found no ", kLog, " in ", backup, ", expected a folder that xlad backup ",
                                            "has written"));
  }
  if (IsWithin(data_folder, backup)) {  // The copy would contain copies of itself until a path is too long.
    return absl::InvalidArgumentError(absl::StrCat("found the data folder ", data_folder, " in the backup ", backup,
                                                   ", expected a folder elsewhere"));
  }
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(data_folder));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> present, files.List(data_folder));
  if (!present.empty() && CheckComplete(data_folder).ok()) {
    return absl::AlreadyExistsError(absl::StrCat("found files in ", data_folder, ", expected a new or empty folder"));
  }
  // The marker of an incomplete folder is removed last.
  for (const std::string& name : present) {
    std::error_code error;
    if (name != kPartialLog) std::filesystem::remove_all(JoinPath(data_folder, name), error);
    if (error) return absl::InternalError(absl::StrCat("cannot remove ", name, ": ", error.message()));
  }
  chmod(data_folder.c_str(), 0700);
  XLAD_RETURN_IF_ERROR(CopyBackup(backup, data_folder));
  XLAD_ASSIGN_OR_RETURN(const int64_t term, BeginTerm(JoinPath(data_folder, kPartialLog), unix_ns));
  XLAD_RETURN_IF_ERROR(CompleteFolder(data_folder));
  return term;
}

}  // namespace xlad::service
