// A small key-value exchange by which the workers of a task find each other.
//
// Thread-safe. Keys are written once.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/status.h"

namespace xlad::collectives {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // The value, or NotFound where no one has put it yet.
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
};

// Where a device is, and who to blame when it is gone.
struct PeerInfo {
  std::string worker_id;
  uint64_t incarnation = 0;
  std::string host;
  int64_t pid = 0;
  std::string data_address;  // HOST:PORT
  // "worker w2, host node7, pid 4711"
  std::string ToString() const;
  friend bool operator==(const PeerInfo&, const PeerInfo&) = default;
};

// "device/3" and its value.
std::string PeerKey(int device);
std::string EncodePeer(const PeerInfo& peer);
absl::StatusOr<PeerInfo> DecodePeer(absl::string_view text);

// In memory: filled from a launch message.
std::unique_ptr<Bootstrap> MapBootstrap(std::map<std::string, std::string> values);
// A file for each key in a folder that all workers see; the folder is made where it is missing.
std::unique_ptr<Bootstrap> FileBootstrap(FileSystem& files, const std::string& folder);

}  // namespace xlad::collectives
