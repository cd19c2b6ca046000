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
// the folders were read. No checkpoint is then found, so the names are read again.
absl::Status AddJob(FileSystem& files, const std::string& folder, std::vector<FoundCheckpoint>* found) {
  constexpr int kMaxLists = 10;
  const size_t before = found->size();
  bool lost_any = false;
  for (int i = 0; i < kMaxLists; ++i) {
    XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(folder));
    bool has_folders = false;
    for (const std::string& name : names) {
      if (!ParseName(name).has_value()) continue;
      has_folders = true;
      if (!AddCheckpoint(files, JoinPath(folder, name), found)) lost_any = true;
    }
    if (!has_folders || found->size() > before) return absl::OkStatus();
  }
  if (!lost_any) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(folder, " was listed ", kMaxLists, " times, and each time all checkpoints in ",
                                         "it were replaced before they could be read"));
}

}  // namespace

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
  for (const std::string& name : names) XLAD_RETURN_IF_ERROR(files.Remove(JoinPath(folder, name)));
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
    const absl::Status added = AddJob(files, JoinPath(path, name), &found);
    if (!absl::IsNotFound(added)) XLAD_RETURN_IF_ERROR(added);  // It is a file, or has been removed meanwhile.
  }
  return found;
}

absl::Status RemoveObsoleteFolders(FileSystem& files, const std::string& job_folder, const ObsoleteFolders& obsolete) {
  if (!files.IsDirectory(job_folder)) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(job_folder));
  for (const std::string& name : names) {
    const std::optional<StepAndAttempt> parsed = ParseName(name);
    const std::string folder = JoinPath(job_folder, name);
    if (!parsed.has_value() || obsolete.keep.contains(name)) continue;
    if (parsed->step < obsolete.step || parsed->attempt < obsolete.attempt) {
      XLAD_RETURN_IF_ERROR(RemoveCheckpointFolder(files, folder));
    }
  }
  return absl::OkStatus();
}

}  // namespace xlad::storage
