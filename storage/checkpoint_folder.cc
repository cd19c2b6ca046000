#include "storage/checkpoint_folder.h"

#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "storage/checkpoint_index.h"
#include "storage/object_writer.h"

namespace xlad::storage {
namespace {

struct StepAndAttempt {
  int64_t step = 0;
  int64_t attempt = 0;
};

// Parses the name of a checkpoint's folder. Returns nullopt for other names.
std::optional<StepAndAttempt> ParseName(const std::string& name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  StepAndAttempt parsed;
  if (parts.size() != 4 || parts[0] != "step" || parts[2] != "attempt" || !absl::SimpleAtoi(parts[1], &parsed.step) ||
      !absl::SimpleAtoi(parts[3], &parsed.attempt)) {
    return std::nullopt;
  }
  return parsed;
}

// Adds the checkpoint, if the folder has one. Returns false if the checkpoint has been removed meanwhile.
bool AddCheckpoint(FileSystem& files, const std::string& folder, std::vector<FoundCheckpoint>* found) {
  if (!IsCheckpoint(files, folder)) return files.IsDirectory(folder);
  const std::string path = JoinPath(folder, kIndexFileName);
  const auto read = [&]() -> absl::StatusOr<v1::CheckpointIndex> {
    XLAD_ASSIGN_OR_RETURN(const std::string text, files.Read(path));
    return ParseIndex(text);
  };
  absl::StatusOr<v1::CheckpointIndex> index = read();
  if (!index.ok() && !IsCheckpoint(files, folder)) return false;
  if (!index.ok()) index = Annotate(index.status(), path);
  found->push_back({folder, std::move(index)});
  return true;
}

// Adds the checkpoints in the folder of one job. If the job runs, it may replace its only checkpoint after the names of
// the folders were read. No checkpoint is then found, so the names are read again. A checkpoint whose index has just
// been removed looks like one that was never committed, but a newer folder then appears in the next list.
absl::Status AddJob(FileSystem& files, const std::string& folder, std::vector<FoundCheckpoint>* found) {
  const size_t before = found->size();
  std::vector<std::string> previous;
  for (int pass = 0; pass < kMaxCheckpointPasses; ++pass) {
    XLAD_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(folder));
    std::erase_if(names, [](const std::string& name) { return !ParseName(name).has_value(); });
    bool lost_any = false;
    for (const std::string& name : names) {
      if (!AddCheckpoint(files, JoinPath(folder, name), found)) lost_any = true;
    }
    if (found->size() > before || (!lost_any && names == previous)) return absl::OkStatus();
    previous = std::move(names);
  }
  return ReplacedTooFast(folder);
}

}  // namespace

absl::Status ReplacedTooFast(const std::string& place) {
  return absl::AbortedError(
      absl::StrCat(place, ": the job replaces its checkpoints faster than they can be read; cancel it, keep more ",
                   "checkpoints, or save less often"));
}

bool IsCheckpoint(FileSystem& files, const std::string& folder) {
  return files.Exists(JoinPath(folder, kIndexFileName));
}

absl::Status WriteIndexFile(FileSystem& files, const std::string& folder, const v1::CheckpointIndex& index) {
  XLAD_ASSIGN_OR_RETURN(const std::string text, SerializeIndex(index));
  return files.WriteAtomically(JoinPath(folder, kIndexFileName), text);
}

absl::Status RemoveCheckpointFolder(FileSystem& files, const std::string& folder) {
  if (!files.IsDirectory(folder)) return absl::OkStatus();
  const std::string index = JoinPath(folder, kIndexFileName);
  if (files.Exists(index)) {
    XLAD_RETURN_IF_ERROR(files.Remove(index));
    XLAD_RETURN_IF_ERROR(files.SyncDirectory(folder));
  }
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
  absl::Status first_error;  // A file that can never be removed must not keep the others.
  for (const std::string& name : names) first_error.Update(files.Remove(JoinPath(folder, name)));
  XLAD_RETURN_IF_ERROR(first_error);
  XLAD_RETURN_IF_ERROR(files.RemoveDirectory(folder));
  return files.SyncDirectory(FolderOfPath(folder));
}

absl::StatusOr<std::vector<FoundCheckpoint>> ListCheckpoints(FileSystem& files, const std::string& path) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(path));
  std::vector<FoundCheckpoint> found;
  AddCheckpoint(files, path, &found);
  XLAD_RETURN_IF_ERROR(AddJob(files, path, &found));
  for (const std::string& name : names) {
    if (ParseName(name).has_value()) continue;
    const std::string folder = JoinPath(path, name);
    const absl::Status added = AddJob(files, folder, &found);
    if (absl::IsNotFound(added)) continue;  // It is a file, or has been removed meanwhile.
    if (!absl::IsAborted(added)) XLAD_RETURN_IF_ERROR(added);
    if (!added.ok()) found.push_back({folder, added});
  }
  return found;
}

absl::Status RemoveObsoleteFolders(FileSystem& files, const std::string& job_folder, const ObsoleteFolders& obsolete) {
  if (!files.IsDirectory(job_folder)) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(job_folder));
  absl::Status first_error;
  for (const std::string& name : names) {
    const std::optional<StepAndAttempt> parsed = ParseName(name);
    if (!parsed.has_value() || obsolete.keep.contains(name)) continue;
    if (parsed->step < obsolete.step || parsed->attempt < obsolete.attempt) {
      // The others are removed even if this one can never be: they would fill the disk.
      first_error.Update(RemoveCheckpointFolder(files, JoinPath(job_folder, name)));
    }
  }
  return first_error;
}

}  // namespace xlad::storage
