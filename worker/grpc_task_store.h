// Blobs, state and data of a task from and to the coordinator.
#pragma once

#include <memory>
#include <string>

#include "proto/worker.pb.h"
#include "runtime/session_executor.h"
#include "runtime/task_io.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace xlad::worker {

// For one task. Tries again, with growing pauses, while the coordinator cannot be reached; its refusals are errors.
std::unique_ptr<runtime::TaskStore> MakeGrpcTaskStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                      const LaunchTask& launch);
// For one session; the same.
std::unique_ptr<runtime::SessionStore> MakeGrpcSessionStore(std::shared_ptr<grpc::Channel> channel, std::string token,
                                                            const LaunchTask& launch);

}  // namespace xlad::worker
