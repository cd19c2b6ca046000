// One job: the state that results from applying its events in order. Pure data: no clock, no I/O.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
  std::string uri;     // The URI of its index.
  std::string digest;  // The SHA-256 of its index.
  int64_t unix_ns = 0;
};

struct Job {
  JobId id;
  int64_t number = 0;        // Jobs are numbered in the order of their submission.
  int64_t ended_number = 0;  // Jobs that have ended are numbered in the order of their ends.
  std::string client_key;
  std::string owner;         // OwnerOfKey(client_key)
  std::string submitted_by;  // JobEvent.actor of its submission.
  std::string spec_digest;
  JobSpec spec;
  Mesh mesh;            // The mesh of the next attempts: that of the spec, or of the last resize.
  // The number of devices of the next attempts in the canonical mode: JobSpec.devices, or that of the last resize. 0 if
  // any number is allowed.
  int64_t devices = 0;
  JobState state = PENDING;
  std::string reason;  // Why the job is in its state; may be empty.
  int64_t submitted_unix_ns = 0;
  int64_t since_unix_ns = 0;  // When the job entered its state.

  std::string executable_digest;  // Empty until the program is built for `mesh`.
  // The executables for the other kinds of device, if the job runs on several kinds.
  std::vector<BuiltExecutable> others;
  double compile_ms = 0;
  bool cached = false;                  // Whether the executable was in the cache.
  bool is_quick = false;                // Whether the executable has quickly compiled code.
  std::string compiler;                 // JobBuilt.compiler
  std::string optimizing_error;         // Why its optimized code could not be built, or empty.
  std::vector<std::string> warnings;    // The build's warnings about the program.
  std::vector<std::string> batch_axes;  // The mesh axes that split only the batch.

  // The latest attempt, running or ended.
  int64_t attempt = 0;
  AttemptPlaced placed;
  Mesh placed_mesh;
  std::vector<SessionPlace> places;  // For sessions: the addresses of the attempt's workers.
  std::string placed_executable;
  bool placed_quick = false;    // Whether placed_executable has quickly compiled code.
  int64_t optimized_from = -1;  // If placed_quick: the first step on optimized code, or -1 if there is none yet.
  bool attempt_running = false;
  bool resized = false;  // Whether `mesh` or `devices` has changed since the placement.
  std::string lost_worker;       // The worker whose loss ended the latest attempt, or empty.
  std::string ending;            // Why the latest attempt ended; empty while an attempt runs.
  int64_t failures = 0;          // Attempts in a row that failed without a new checkpoint.
  // The error and its step if the program itself ended the latest attempt that failed.
  std::string program_error;
  int64_t program_error_step = -1;
  // When the latest attempt failed; -1 if no attempt has failed in this process of the coordinator.
  int64_t failed_ns = -1;
  // Whether the two latest attempts that failed ended with the same program error at the same step.
  bool program_error_repeated = false;

  // The first step of the next attempt, unless there is a later checkpoint.
  int64_t first_step = 0;
  std::string state_blob;               // If empty, the initial state of the spec.
  std::vector<Checkpoint> checkpoints;  // The checkpoints that are kept, oldest first.
  std::string checkpoint_error;         // Why the latest checkpoint could not be stored; empty if it was stored.
  int64_t checkpoint_error_step = -1;   // The step of the checkpoint that could not be stored.
  int32_t checkpoint_error_code = 0;    // The absl::StatusCode of the error, or 0 if it is not known.
  // The checkpoint of another job from which the job started. Its uri is empty if there is none.
  Checkpoint resumed;
  std::string damaged_uri;  // The checkpoint that the latest attempt found damaged, or empty.
  // The latest attempts in a row that found it damaged: their number, and the last finding of each of their workers.
  int64_t damaged_attempts = 0;
  std::vector<DamageFinding> findings;
  // The URIs of the job's own checkpoints that were dropped because they are damaged. Their files are kept.
  std::vector<std::string> damaged;
  std::string damage;  // How the checkpoint that was dropped last is damaged, or empty.

  // The number of finished steps. An event sets it to the first step of an attempt; metrics and messages of workers
  // advance it.
  int64_t step = 0;
  float loss = 0;
  bool has_loss = false;
  std::string final_state_blob;
  RunReport report;  // The report of the attempt that finished the job.
  // The number of events in the log that only describe checkpoints that were not stored or are no longer kept.
  int64_t surplus_events = 0;

  // Whether the attempt runs quickly compiled code, although the optimized code may have been built.
  bool RunsQuickCode() const { return attempt_running && placed_quick && optimized_from < 0; }
  // Whether the running attempt was placed with quickly compiled code, and executable_digest has its optimized code.
  bool HasNewCode() const {
    return attempt_running && placed_quick && !is_quick && !resized && !executable_digest.empty();
  }

  bool HasCheckpoint(absl::string_view uri) const;  // Whether it is one of those that are kept.

  AttemptId current() const { return {id, attempt, Generation(placed.generation())}; }
};

// The user at the beginning of a client key (service/access.h), or "" if the key names no user.
std::string OwnerOfKey(absl::string_view key);
// The user who submitted the job, for display: "alice". Empty if the log does not say.
std::string OwnerText(const Job& job);

// The step and the state from which the next attempt starts.
struct StartPoint {
  int64_t step = 0;
  // Used if checkpoint_uri is empty. If both are empty, the job starts from the state of its spec.
  std::string state_blob;
  std::string checkpoint_uri, checkpoint_digest;
};
StartPoint StartOf(const Job& job);

// Applies one event. An unknown event is a fatal error, because logs of newer schemas are refused when they are opened.
void Apply(const JobEvent& event, Job* job);

// Stores the loss of a step in the job. `metrics` has the values of losses and metrics in the order of the spec's
// results.
void NoteLoss(const StepMetrics& metrics, Job* job);
// Returns the first loss or metric of the step that is NaN or infinite ("loss = nan"), or an empty text if all are
// finite.
std::string NotFinite(const StepMetrics& metrics, const JobSpec& spec);

// Returns one line for display: "attempt 2 running".
std::string Describe(const JobEvent& event);
// Returns the event in the form that clients get.
JobLogResponse::Event ForClients(const JobEvent& event);

using xlad::HasEnded;
inline bool HasEnded(const Job& job) { return HasEnded(job.state); }

inline constexpr int64_t kMaxDevices = 1 << 20;  // The maximum number of devices of a mesh.
// The number of devices in the mesh, or -1 if it is more than kMaxDevices or an axis is empty.
int64_t DeviceCount(const Mesh& mesh);
// In the canonical mode the mesh of a job never changes, so its results are bitwise the same on any number of devices.
// A device runs one or more logical shards.
inline bool IsCanonical(const JobSpec& spec) { return spec.compile().reduction_mode() == CANONICAL; }
// The largest divisor of the mesh's number of logical shards that is at most `most`; 1 if `most` is less than 1.
int64_t LargestDivisor(const Mesh& mesh, int64_t most);
// The number of devices that the next attempt needs if the workers have `all` devices.
int64_t WantedDevices(const Job& job, int64_t all);
// A number of devices in a message: "1 device", "2 devices" or, with the adjective " more", "2 more devices".
inline std::string DeviceCountText(int64_t count, absl::string_view adjective = "") {
  return absl::StrCat(count, adjective, count == 1 ? " device" : " devices");
}
// The name of the job's mode of reduction: "run-to-run", "fast" or "canonical".
std::string ModeText(const JobSpec& spec);
inline int64_t ShardsPerDevice(const Peer& peer) { return std::max<int64_t>(1, peer.shards_per_device()); }
// The number of devices that an attempt uses on a worker.
inline int64_t DevicesOf(const Peer& peer) { return peer.devices_size() / ShardsPerDevice(peer); }
inline bool HasPeer(const Job& job, const std::string& worker_id) {
  for (const Peer& peer : job.placed.peers()) {
    if (peer.worker_id() == worker_id) return true;
  }
  return false;
}
// Says that the attempt runs quickly compiled code, and until when; empty if it does not.
std::string CodeText(const Job& job);

}  // namespace xlad::service
