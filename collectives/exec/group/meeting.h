// The folder in which the ranks of a group that forms find each other.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace xlad::collectives {

// A rank has the folder open while it forms a group. The last one to close it removes it, no matter whether the group
// has formed; the locks of a process that is killed end with it.
class MeetingFolder {
 public:
  // Creates the folder, readable by this user only, if it does not exist.
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
  const int lock_;  // A file in the folder, on which every rank has a shared lock.
};

}  // namespace xlad::collectives
