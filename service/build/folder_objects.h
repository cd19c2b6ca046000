// The objects of earlier builds in a folder, for the compiler.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen/object_cache.h"
#include "storage/entry_folder.h"

namespace xlad::service {

// Reads objects from a folder. Objects that are added are kept in memory, because a build cannot write files. Objects
// that are too large for the folder are dropped.
class FolderObjects final : public compiler::ObjectCache {
 public:
  // If `folder` is null, no object is found or kept.
  explicit FolderObjects(const storage::EntryFolder* folder) : folder_(folder) {}

  std::optional<std::string> Find(const std::string& key) override;
  void Add(const std::string& key, absl::string_view object) override;

  // Returns the objects that were added, and forgets them.
  std::vector<storage::FolderEntry> TakeAdded();
  // The keys of the objects that were found.
  const std::vector<std::string>& found() const { return found_; }

 private:
  const storage::EntryFolder* const folder_;
  std::mutex mutex_;
  std::vector<storage::FolderEntry> added_;
  std::vector<std::string> found_;
};

}  // namespace xlad::service
