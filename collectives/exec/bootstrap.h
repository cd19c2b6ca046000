// A key-value store through which the workers of a task find each other.
//
// Thread-safe. Each key is written once.
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
  // Returns the value, or NotFound if the key has not been written yet.
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
};

// The worker that runs a device, for connecting to it and for naming it in errors.
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

// The key of a device ("device/3") and its value.
std::string PeerKey(int device);
std::string EncodePeer(const PeerInfo& peer);
absl::StatusOr<PeerInfo> DecodePeer(absl::string_view text);

// In memory, with all values from a launch message.
std::unique_ptr<Bootstrap> MapBootstrap(std::map<std::string, std::string> values);
// One file per key in a folder that all workers share. The folder is created if it does not exist.
std::unique_ptr<Bootstrap> FileBootstrap(FileSystem& files, const std::string& folder);

}  // namespace xlad::collectives
