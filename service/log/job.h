// One job: the state that results from applying its events in order. Pure data: no clock, no I/O.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "proto/job_log.pb.h"
#include "proto/job_state.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

using Mesh = google::protobuf::RepeatedPtrField<MeshAxis>;

// A committed checkpoint: the state before `step`.
struct Checkpoint {
  int64_t step = 0;
  std::string uri;     // The place of its index.
  std::string digest;  // The SHA-256 of its index.
  int64_t unix_ns = 0;
};

struct Job {
  JobId id;
  int64_t number = 0;  // Jobs are numbered in the order of their submission.
  std::string client_key;
  std::string spec_digest;
  JobSpec spec;
  Mesh mesh;           // The mesh of the attempts from now on: that of the spec, or of the last resize.
  int64_t devices = 0;  // The same for JobSpec.devices.
  JobState state = PENDING;
  std::string reason;
  int64_t submitted_unix_ns = 0;
  int64_t since_unix_ns = 0;  // When it entered its state.
  int64_t last_sequence = 0;  // The number of its latest event that has been read from the log.

  std::string executable_digest;  // Empty until the program is built for `mesh`.
  std::vector<BuiltExecutable> others;  // The executables for the other kinds of device if it runs on several.
  double compile_ms = 0;
  bool cached = false;  // The executable was in the cache.
  std::vector<std::string> batch_axes;  // The mesh axes that split nothing but the batch.

  // The latest attempt, running or ended.
  int64_t attempt = 0;
  AttemptPlaced placed;
  Mesh placed_mesh;
  std::vector<SessionPlace> places;  // For sessions: where the attempt's workers serve.
  std::string placed_executable;
  bool attempt_running = false;
  bool resized = false;          // `mesh` has changed since the placement.
  std::string lost_worker;
  std::string ending;            // Why the latest attempt ended; empty while one runs.
  int64_t failures = 0;          // Attempts in a row that failed without a new checkpoint.
  std::string program_error;     // How the program ended the latest attempt that it ended itself; the step.
  int64_t program_error_step = -1;
  int64_t failed_ns = -1;        // When the latest attempt failed, in this process of the coordinator.
  bool program_error_repeated = false;  // The two latest attempts ended with the same program error at the same step.

  // The start of the next attempt, unless there is a later checkpoint.
  int64_t first_step = 0;
  std::string state_blob;  // Empty: the initial state of the spec.
  std::vector<Checkpoint> checkpoints;  // Those that are kept, oldest first.
  std::string checkpoint_error;         // Why the latest could not be stored; empty after one that could.
  Checkpoint resumed;                   // The checkpoint of another job that the job started from; no uri: none.

  int64_t step = 0;  // The number of steps known to be finished. Derived from metrics, not from events.
  float loss = 0;
  bool has_loss = false;
  std::string final_state_blob;
  RunReport report;            // What the attempt that finished has done.
  int64_t surplus_events = 0;  // The events of the log that only describe checkpoints that are not kept any more.

  AttemptId current() const { return {id, attempt, Generation(placed.generation())}; }
};

// The step and the state from which the next attempt starts.
struct StartPoint {
  int64_t step = 0;
  std::string state_blob;                        // If checkpoint_uri is empty; may be empty as well.
  std::string checkpoint_uri, checkpoint_digest;
};
StartPoint StartOf(const Job& job);

// Applies one event. An unknown event is a fatal error: readers of the log refuse newer schemas before.
void Apply(const JobEvent& event, Job* job);

// Stores the loss of a step in the job. `metrics` has the values of losses and metrics in the order of the spec's
// results.
void NoteLoss(const StepMetrics& metrics, Job* job);
// Returns the name of the first loss or metric of the step that is NaN or infinite, or empty if all are finite.
std::string NotFinite(const StepMetrics& metrics, const JobSpec& spec);

// Returns one line for display: "attempt 2 running".
std::string Describe(const JobEvent& event);
// Returns the event as clients see it.
JobLogResponse::Event ForClients(const JobEvent& event);

using xlad::HasEnded;
inline bool HasEnded(const Job& job) { return HasEnded(job.state); }
// The number of devices in the mesh, or -1 if it is more than kMaxDevices or an axis is empty.
inline constexpr int64_t kMaxDevices = 1 << 20;
int64_t DeviceCount(const Mesh& mesh);
// In the mode canonical, the mesh of a job stays, and so do its bits; a device runs one or more logical shards.
inline bool IsCanonical(const JobSpec& spec) { return spec.compile().reduction_mode() == CANONICAL; }
// The largest number of devices up to `most`, at least 1, that divides the logical shards of the mesh.
int64_t LargestDivisor(const Mesh& mesh, int64_t most);
// The number of devices that the next attempt needs if the workers have `all`.
int64_t WantedDevices(const Job& job, int64_t all);
// "run-to-run", "fast" or "canonical".
std::string ModeText(const JobSpec& spec);
inline int64_t ShardsPerDevice(const Peer& peer) { return std::max<int64_t>(1, peer.shards_per_device()); }
// The number of devices of a worker that an attempt has.
inline int64_t DevicesOf(const Peer& peer) { return peer.devices_size() / ShardsPerDevice(peer); }
inline bool HasPeer(const Job& job, const std::string& worker_id) {
  for (const Peer& peer : job.placed.peers()) {
    if (peer.worker_id() == worker_id) return true;
  }
  return false;
}
// "dp=2,tp=4"
std::string MeshText(const Mesh& mesh);

}  // namespace xlad::service
