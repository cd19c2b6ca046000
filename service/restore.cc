#include "service/restore.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/file_system.h"
#include "service/log/job_log.h"

namespace xlad::service {
namespace {

// Whether `inner` is the folder `outer` or lies in it. Missing folders and links are allowed.
bool IsWithin(const std::string& inner, const std::string& outer) {
  std::error_code ignored;
  const auto folder = std::filesystem::weakly_canonical(std::filesystem::absolute(outer, ignored), ignored);
  const auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(inner, ignored), ignored);
  if (folder.empty()) return false;  // The path cannot be resolved.
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

absl::StatusOr<int64_t> RestoreBackup(const std::string& backup, const std::string& data_folder, int64_t unix_ns) {
  FileSystem& files = RealFileSystem();
  if (!files.Exists(JoinPath(backup, "jobs.sqlite"))) {
    return absl::NotFoundError(absl::StrCat("found no jobs.sqlite in ", backup, ", expected a folder that xlad backup "
                                            "has written"));
  }
  if (IsWithin(data_folder, backup)) {  // The copy would contain copies of itself until a path is too long.
    return absl::InvalidArgumentError(absl::StrCat("found the data folder ", data_folder, " in the backup ", backup,
                                                   ", expected a folder elsewhere"));
  }
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(data_folder));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> present, files.List(data_folder));
  if (!present.empty()) {
    return absl::AlreadyExistsError(absl::StrCat("found files in ", data_folder, ", expected a new or empty folder"));
  }
  chmod(data_folder.c_str(), 0700);
  std::error_code error;
  std::filesystem::copy(backup, data_folder, std::filesystem::copy_options::recursive, error);
  if (error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot copy ", backup, " to ", data_folder, ": ", error.message(), "; remove ", data_folder,
                     " before the next try"));
  }
  XLAD_ASSIGN_OR_RETURN(const auto log, OpenSqliteJobLog(JoinPath(data_folder, "jobs.sqlite")));
  int64_t term = 0;
  XLAD_RETURN_IF_ERROR(log->ReadEvents([&](const JobEvent& event) {
    if (event.has_term_started()) term = std::max(term, event.term_started().term());
    return absl::OkStatus();
  }));
  LogBatch batch;
  JobEvent& event = batch.events.emplace_back();
  term += kRestoredTermStep;
  event.set_unix_ns(unix_ns);
  event.set_term(term);
  event.mutable_term_started()->set_term(term);
  event.mutable_term_started()->set_reason("restored from a backup");
  XLAD_RETURN_IF_ERROR(log->Append(&batch));
  return term;
}

}  // namespace xlad::service
