// Reads blobs, state and data of tasks from the coordinator and writes their state to it.
#pragma once

#include <memory>
#include <string>

#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/task_io.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace xlad::worker {

// The store of one task. Calls retry with exponential backoff while the coordinator cannot be reached; errors of the
// coordinator are returned.
std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                      const LaunchTask& launch);
// Reads a blob in the same way.
absl::StatusOr<std::string> ReadBlob(std::shared_ptr<grpc::Channel> channel, const std::string& token,
                                     const std::string& digest, collectives::AbortSignal* abort);

}  // namespace xlad::worker
