// The folder in which the ranks of a group find each other while the group forms.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

// A rank has the folder open while it forms a group. The last rank that closes the folder removes it, whether or not
// the group has formed. A killed process loses its locks, so it does not keep the folder.
class MeetingFolder {
 public:
  // Creates the folder, readable by this user only, if it does not exist. Errors are those of MakeOwnFolder, for a
  // private folder, and of PathError.
  static absl::StatusOr<std::unique_ptr<MeetingFolder>> Open(const std::string& path);
  ~MeetingFolder();
  MeetingFolder(const MeetingFolder&) = delete;
  MeetingFolder& operator=(const MeetingFolder&) = delete;

  const std::string& path() const { return path_; }

  // Removes the folder if no rank has it open.
  static void RemoveIfUnused(const std::string& path);

 private:
  MeetingFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // The descriptor of a file in the folder on which every rank has a shared lock.
};

}  // namespace xlad::collectives
