#include "service/build/folder_objects.h"

#include <iterator>
#include <utility>

namespace xlad::service {

std::optional<std::string> FolderObjects::Find(const std::string& key) {
  if (folder_ == nullptr) return std::nullopt;
  std::optional<std::string> object = folder_->Read(key);
  if (object.has_value()) {
    const std::lock_guard lock(mutex_);
    found_.push_back(key);
  }
  return object;
}

void FolderObjects::Add(const std::string& key, absl::string_view object) {
  if (folder_ == nullptr || std::ssize(object) > folder_->max_entry_bytes()) return;
  const std::lock_guard lock(mutex_);
  added_.push_back({key, std::string(object)});
}

std::vector<storage::FolderEntry> FolderObjects::TakeAdded() {
  const std::lock_guard lock(mutex_);
  return std::exchange(added_, {});
}

}  // namespace xlad::service
