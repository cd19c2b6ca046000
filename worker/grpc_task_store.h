// Reads blobs, state and data of tasks from the coordinator and writes their state to it.
#pragma once

#include <memory>
#include <string>

#include "base/net/grpc_channel.h"
#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/task_io.h"
#include "storage/host_cache.h"
#include "worker/peer_blobs.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace xlad::worker {

// The coordinator, the cache of this host, and the other workers of the attempt. Without a cache (null), everything is
// read from the coordinator.
struct BlobSource {
  std::shared_ptr<grpc::Channel> channel;
  std::shared_ptr<TokenFile> token = std::make_shared<TokenFile>("");
  std::shared_ptr<storage::HostCache> cache;
  std::shared_ptr<PeerBlobs> peers = nullptr;  // Null if there are none.
};

// The store of one task. Calls retry with exponential backoff while the coordinator cannot be reached; errors of the
// coordinator are returned.
std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(const BlobSource& source, const LaunchTask& launch);
// Reads a blob in the same way.
absl::StatusOr<std::string> ReadBlob(const BlobSource& source, const std::string& digest,
                                     collectives::AbortSignal* abort);

}  // namespace xlad::worker
