// The effects of handling an event: records for the log, and actions that are carried out when the records are durable.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/executable.pb.h"
#include "proto/trace.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/compaction.h"
#include "service/log/job_log.h"
#include "storage/checkpoint_folder.h"
#include "tensor/shape.h"

namespace xlad::service {

struct SendMessage {
  ConnectionId connection;
  CoordinatorMessage message;
  // The serialized part of the message that is the same for several connections, or null if there is none. It is sent
  // before `message`, and the receiver parses both as one message, which merges them.
  std::shared_ptr<const std::string> common;
};
struct CloseConnection {
  ConnectionId connection;
};
// Builds the job's program for these targets (at least one) and this mesh. The result is reported by
// CoordinatorCore::OnBuilt.
struct StartBuild {
  JobId job;
  std::vector<Target> targets;
  google::protobuf::RepeatedPtrField<MeshAxis> mesh;
  bool quick = false;  // Whether kernels that are not in the cache are compiled quickly (BuildRequest.quick).
};
// Builds the program of a quickly compiled executable again, with optimized code, for the same target and mesh. The
// result is reported by CoordinatorCore::OnOptimized. Builds for which jobs wait come first.
struct StartOptimizing {
  JobId job;
  std::string executable_digest;
  google::protobuf::RepeatedPtrField<MeshAxis> mesh;
};
// Ends the job's builds that are running or queued. Their results are not used.
struct StopBuild {
  JobId job;
};
// Reads the parts of a built executable that placement needs. The result is reported by OnPlanLoaded.
struct LoadPlan {
  std::string executable_digest;
};
// Stores the index of a checkpoint whose shards are all written. The result is reported by OnIndexStored.
struct StoreIndex {
  AttemptId attempt;
  std::string uri;  // The storage that the job's policy names.
  CheckpointIndex index;
};
// Removes a checkpoint that is no longer needed.
struct DropCheckpoint {
  std::string uri;
};
// Removes the listed checkpoints that are still in the blob store. The log says that they were dropped, but the
// process that dropped them may have ended before it removed them.
struct DropCheckpointsAgain {
  std::set<std::string> uris;
};
// Removes the checkpoints and uncommitted shards that `obsolete` selects in the folder of a job's checkpoints.
struct RemoveOldCheckpoints {
  std::string folder;
  storage::ObsoleteFolders obsolete;
};
// Deletes what is no longer needed: events of the log, blobs, and the folders of removed jobs.
struct CleanUp {
  std::vector<TrimmedJob> trimmed;
};
// Adds a record to the trace of the job.
struct KeepTrace {
  JobId job;
  TraceRecord record;
};
// Notifies the calls that watch the job that its status has changed.
struct JobChanged {
  JobId job;
};
using Action = std::variant<SendMessage, CloseConnection, StartBuild, StartOptimizing, StopBuild, LoadPlan, StoreIndex,
                            DropCheckpoint, DropCheckpointsAgain, RemoveOldCheckpoints, CleanUp, KeepTrace, JobChanged>;
using Actions = std::vector<Action>;

struct Effects {
  LogBatch batch;
  Actions actions;
};

}  // namespace xlad::service
