// A cache on disk: a folder of small entries, named by keys.
//
// Several processes may share a folder. A key is a hash in 64 lower-case hexadecimal digits, such as SHA-256. An entry
// contains a hash of its key, its contents and a version, and Read checks it. An entry that is damaged, incomplete,
// renamed or of another version is therefore not found. Entries are not synced to disk, because a lost entry can be
// recomputed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/file_system.h"
#include "base/status.h"

namespace xlad::storage {

struct EntryFolderOptions {
  std::string path;     // The folder.
  std::string version;  // Entries that were written with another version are not found.
  int64_t max_bytes = int64_t{512} << 20;  // The limit on all entries together. One entry has at most 1/512 of it.
};

struct FolderEntry {
  std::string key, contents;
};

// Thread-safe.
class EntryFolder {
 public:
  EntryFolder(FileSystem* files, EntryFolderOptions options) : files_(*files), options_(std::move(options)) {}

  const EntryFolderOptions& options() const { return options_; }

  // Returns the contents that were written under this key, or nullopt if there is no valid entry.
  std::optional<std::string> Read(const std::string& key) const;

  // Writes the entries in order, and stops at the first error. Skips entries of more than max_entry_bytes(). After an
  // error or a crash, every entry is either complete or absent. Then removes the least recently used entries from each
  // sub-folder to which it has written, if the sub-folder exceeds its share of max_bytes. InvalidArgument if a key is
  // not a hash.
  absl::Status Write(absl::Span<const FolderEntry> entries) const;

  // The size of the largest entry that is written.
  int64_t max_entry_bytes() const;

  // Marks the entries with these keys as used now.
  void Touch(absl::Span<const std::string> keys) const;

 private:
  std::string PathOf(const std::string& key) const;
  std::string HashOf(const std::string& key, absl::string_view contents) const;
  absl::Status WriteOne(const FolderEntry& entry) const;

  FileSystem& files_;
  const EntryFolderOptions options_;
};

// Removes the entries of a folder that were written or touched least recently, until the others have at most
// `max_bytes`. An entry is a file whose name is a key. Temporary files, whose names begin with a key, count too, but
// are removed only if they have not been written for an hour. Other files and sub-folders stay. Other processes may use
// the folder at the same time; they do not find the removed entries.
void RemoveLeastRecentlyUsed(const std::string& folder, int64_t max_bytes);

}  // namespace xlad::storage
