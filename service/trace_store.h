// Traces of jobs on disk: one file per job, to which records are appended.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

// How a device spent the time of one step. Collective time includes the wait for slower devices. Other time is time
// outside instructions. Compute time is the rest.
struct StepShare {
  int64_t step = 0;
  double compute_ms = 0, collective_ms = 0, other_ms = 0;
};

// Thread-safe. Tracing must not fail a job: records that cannot be written are dropped with a line in the log, and
// files are not synced.
class TraceStore {
 public:
  // The limit per job, which the last write may exceed. When it is reached, a final record marks the file as full, and
  // later records are dropped.
  static constexpr int64_t kMaxFileBytes = int64_t{64} << 20;
  // The limit for the last steps and the programs of all jobs in memory. The job with the newest record is kept even if
  // it alone exceeds the limit.
  static constexpr int64_t kMaxLiveBytes = int64_t{64} << 20;

  // `path_of` returns the path of a job's file. The folder of the file is made if it does not exist.
  explicit TraceStore(std::function<std::string(const std::string& job_id)> path_of,
                      int64_t max_file_bytes = kMaxFileBytes, int64_t max_live_bytes = kMaxLiveBytes)
      : path_of_(std::move(path_of)), max_file_bytes_(max_file_bytes), max_live_bytes_(max_live_bytes) {}

  // Keeps the record in memory until the next Flush. Does not access the disk.
  void Add(const std::string& job_id, const TraceRecord& record);
  // Returns the last recorded step of each device in the last recorded attempt. Steps and programs are lost when this
  // process restarts. If they exceed the limit on memory, those of the job with the oldest last record are removed. A
  // worker sends its program only once, so its later steps are ignored if the program is lost.
  std::map<int, StepShare> Shares(const std::string& job_id);
  // Writes the added records to the files.
  void Flush();
  // Calls Flush, then returns the contents of a job's file, or "" if it does not exist. DataLoss if the file cannot be
  // read.
  absl::StatusOr<std::string> Read(const std::string& job_id);

 private:
  void Append(const std::string& job_id, const std::string& bytes);

  const std::function<std::string(const std::string&)> path_of_;
  const int64_t max_file_bytes_;
  const int64_t max_live_bytes_;
  std::mutex writing_;  // Locked while files are used. Must be locked before mutex_.
  std::mutex mutex_;    // Guards all following members.
  std::map<std::string, std::string> added_;  // By job.
  enum class Time : uint8_t { kCompute, kCollective, kContainsOthers };
  struct Live {
    std::map<std::string, std::vector<Time>> programs;  // The kinds of the instructions, by worker.
    std::map<int, StepShare> shares;
    int64_t attempt = 0;
    int64_t bytes = 0;                      // The approximate size.
    std::list<std::string>::iterator used;  // In used_.
  };
  void NoteShares(const std::string& job_id, const TraceRecord& record);
  Live& FindLive(const std::string& job_id, int64_t attempt);
  static void NoteStep(const std::vector<Time>& program, const TracedStep& step, StepShare* share);
  std::map<std::string, Live> live_;  // By job.
  std::list<std::string> used_;       // The jobs of live_, the one with the newest record first.
  int64_t live_bytes_ = 0;
};

}  // namespace xlad::service
