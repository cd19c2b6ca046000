#include "storage/entry_folder.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"

namespace xlad::storage {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKeyDigits = 64;  // An entry starts with its hash in hexadecimal digits.
// Entries are in sub-folders that are named by the first digits of their keys. Because keys are hashes, all sub-folders
// have about the same size.
constexpr size_t kFolderDigits = 2;
constexpr int64_t kFolders = 256;
constexpr int kTemporaryBytes = 8;  // The number of random bytes in the name of a temporary file.
// A temporary file that has not been written for this time belongs to a process that has ended.
constexpr std::chrono::hours kTemporaryAge{1};

}  // namespace

std::string EntryFolder::PathOf(const std::string& key) const {
  return JoinPath(JoinPath(options_.path, key.substr(0, kFolderDigits)), key);
}

std::string EntryFolder::HashOf(const std::string& key, absl::string_view contents) const {
  return Sha256Hex(absl::StrCat(options_.version.size(), ":", options_.version, key, contents));
}

int64_t EntryFolder::max_entry_bytes() const { return options_.max_bytes / kFolders / 2; }

std::optional<std::string> EntryFolder::Read(const std::string& key) const {
  if (!IsSha256Hex(key)) return std::nullopt;
  const absl::StatusOr<std::string> bytes = files_.Read(PathOf(key));
  if (!bytes.ok() || bytes->size() < kKeyDigits) return std::nullopt;
  std::string contents = bytes->substr(kKeyDigits);
  if (HashOf(key, contents) != bytes->substr(0, kKeyDigits)) return std::nullopt;
  return contents;
}

absl::Status EntryFolder::WriteOne(const FolderEntry& entry) const {
  const std::string path = PathOf(entry.key);
  // A process id would not be unique, because containers may share the folder.
  const std::string temporary = absl::StrCat(path, ".", SystemRandom()->Hex(kTemporaryBytes), ".tmp");
  XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files_.Open(temporary, OpenMode::kCreate));
  const absl::Status status = [&]() -> absl::Status {
    XLAD_RETURN_IF_ERROR(file->Append(HashOf(entry.key, entry.contents)));
    XLAD_RETURN_IF_ERROR(file->Append(entry.contents));
    return files_.Rename(temporary, path);
  }();
  if (!status.ok()) files_.Remove(temporary).IgnoreError();
  return status;
}

absl::Status EntryFolder::Write(absl::Span<const FolderEntry> entries) const {
  std::set<std::string> folders;
  absl::Status status;
  for (const FolderEntry& entry : entries) {
    if (!IsSha256Hex(entry.key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cache ", options_.path, ": found the key \"", entry.key.substr(0, 80), "\", expected ",
                       kKeyDigits, " lower-case hexadecimal digits"));
    }
    if (std::ssize(entry.contents) > max_entry_bytes()) continue;
    const std::string folder = JoinPath(options_.path, entry.key.substr(0, kFolderDigits));
    folders.insert(folder);
    status = files_.MakeDirectories(folder);
    if (status.ok()) status = WriteOne(entry);
    if (!status.ok()) break;
  }
  // Entries are removed after an error, too, because the disk may be full.
  for (const std::string& folder : folders) RemoveLeastRecentlyUsed(folder, options_.max_bytes / kFolders);
  return status;
}

void EntryFolder::Touch(absl::Span<const std::string> keys) const {
  std::error_code error;  // An entry that is gone cannot be touched.
  for (const std::string& key : keys) {
    if (IsSha256Hex(key)) fs::last_write_time(PathOf(key), fs::file_time_type::clock::now(), error);
  }
}

void RemoveLeastRecentlyUsed(const std::string& folder, int64_t max_bytes) {
  struct Used {
    fs::path path;
    fs::file_time_type time;
    int64_t bytes;
  };
  std::vector<Used> files;
  int64_t total = 0;
  const fs::file_time_type abandoned = fs::file_time_type::clock::now() - kTemporaryAge;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!IsSha256Hex(name.substr(0, kKeyDigits))) continue;
    std::error_code gone;
    const Used file{at->path(), at->last_write_time(gone), static_cast<int64_t>(at->file_size(gone))};
    if (gone) continue;
    total += file.bytes;
    const bool is_temporary = name.size() > kKeyDigits;
    if (!is_temporary || file.time < abandoned) files.push_back(file);
  }
  std::sort(files.begin(), files.end(), [](const Used& a, const Used& b) { return a.time < b.time; });
  for (const Used& file : files) {
    if (total <= max_bytes) return;
    fs::remove(file.path, error);
    if (!error) total -= file.bytes;
  }
}

}  // namespace xlad::storage
