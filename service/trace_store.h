// Traces of jobs on disk: one file per job, to which records are added.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"
#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

// What one step of a device was spent on. Compute is everything that is neither a collective nor outside instructions;
// in a collective a device also waits for those that are slower.
struct StepShare {
  int64_t step = 0;
  double compute_ms = 0, collective_ms = 0, other_ms = 0;
};

// Thread-safe. A trace is not worth a job: what cannot be written is dropped with a line in the log, and nothing is
// synced.
class TraceStore {
 public:
  static constexpr int64_t kMaxFileBytes = int64_t{64} << 20;  // Per job; a last record says that there was more.

  // `path_of` names the file of a job. Its folder is made if it does not exist.
  explicit TraceStore(std::function<std::string(const std::string& job_id)> path_of,
                      int64_t max_file_bytes = kMaxFileBytes)
      : path_of_(std::move(path_of)), max_file_bytes_(max_file_bytes) {}

  // Keeps the record in memory until the next Flush. Does not block for long.
  void Add(const std::string& job_id, const TraceRecord& record);
  // By device: its last recorded step since this process started. Known for the jobs that were traced last.
  std::map<int, StepShare> Shares(const std::string& job_id);
  // Writes what has been added.
  void Flush();
  // The file of a job, with everything that was added, or "" if nothing was. DataLoss if it cannot be read.
  absl::StatusOr<std::string> Read(const std::string& job_id);

 private:
  void Append(const std::string& job_id, const std::string& bytes);

  const std::function<std::string(const std::string&)> path_of_;
  const int64_t max_file_bytes_;
  std::mutex writing_;  // Held while files are used; taken before mutex_.
  std::mutex mutex_;    // Guards what follows.
  std::map<std::string, std::string> added_;  // By job.
  struct Live {
    std::map<std::string, TracedProgram> programs;  // By worker.
    std::map<int, StepShare> shares;
    int64_t attempt = 0;
  };
  static constexpr size_t kMaxLive = 64;
  void NoteShares(const std::string& job_id, const TraceRecord& record);
  std::map<std::string, Live> live_;  // By job.
};

}  // namespace xlad::service
