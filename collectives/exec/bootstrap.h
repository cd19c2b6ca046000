// A key-value store through which the workers of a task, or the ranks of a launch, find each other.
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
  // AlreadyExists if the key has been written.
  virtual absl::Status Put(const std::string& key, const std::string& value) = 0;
  // Returns the value, or NotFound if the key has not been written yet.
  virtual absl::StatusOr<std::string> Get(const std::string& key) = 0;
};

// The worker that runs a device: how to connect to it, and how errors name it.
struct PeerInfo {
  std::string worker_id;
  uint64_t incarnation = 0;  // Distinguishes the processes that have had this worker id.
  std::string host;
  int64_t pid = 0;
  std::string data_address;  // HOST:PORT
  // "worker w2, host node7, pid 4711"
  std::string ToString() const;
  friend bool operator==(const PeerInfo&, const PeerInfo&) = default;
};

// Returns the key of a device ("device/3"). The value is the PeerInfo of its worker as text.
std::string PeerKey(int device);
std::string EncodePeer(const PeerInfo& peer);
// InvalidArgument if the text is not one that EncodePeer returns.
absl::StatusOr<PeerInfo> DecodePeer(absl::string_view text);

// Returns a store in memory whose initial contents are `values`.
std::unique_ptr<Bootstrap> MapBootstrap(std::map<std::string, std::string> values);
// Returns a store with one file per key in a folder that all ranks share. The first Put creates the folder if it does
// not exist. `files` must outlive the store.
std::unique_ptr<Bootstrap> FileBootstrap(FileSystem& files, const std::string& folder);

}  // namespace xlad::collectives
