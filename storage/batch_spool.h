// The batches of jobs whose data a client feeds step by step: each is a file from its arrival until a checkpoint of a
// later step is committed, so that recovery replays the same bytes.
//
//   FOLDER/JOB/12.safetensors   the batch of step 12
//   FOLDER/JOB/20.end           the job has 20 batches
//
// The sender is slowed down to the pace of the job: it is at most kAhead batches ahead of the newest batch that a
// worker has asked for. Batches may be larger than memory: they are written and read in pieces. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "storage/object_writer.h"
#include "storage/range_reader.h"

namespace xlad::storage {

class BatchSpool {
 public:
  static constexpr int64_t kAhead = 8;

  struct Limits {
    int64_t batch_bytes = int64_t{64} << 30;  // The largest size of one batch.
    int64_t reserve_bytes = 0;                // The space on the disk that is kept for others.
  };

  // Opens what is on the disk. `files` and `clock` must outlive the spool.
  static absl::StatusOr<std::unique_ptr<BatchSpool>> Open(FileSystem& files, const Clock& clock, std::string folder,
                                                          const Limits& limits);

  // Adds the job, unless it exists, and removes its batches before `first`: the job does not need them any more.
  absl::Status Keep(const std::string& job, int64_t first);
  // Removes the job with its files; calls that wait for it return NotFound.
  void Remove(const std::string& job);
  // Until the result is destroyed, which must be before the spool is, no batch is removed from the disk.
  std::shared_ptr<void> HoldRemovals();
  std::vector<std::string> Jobs() const;
  bool Has(const std::string& job) const;

  // --- The sender.
  // The first batch that is not here. NotFound if the job is not here.
  absl::StatusOr<int64_t> Next(const std::string& job);
  // Waits up to wait_ms until there is room for the next batch; returns whether there is.
  absl::StatusOr<bool> WaitForRoom(const std::string& job, int64_t wait_ms);
  // A batch that arrives. Used by one thread.
  class Arrival {
   public:
    virtual ~Arrival() = default;  // Removes what was written, unless Finish succeeded.
    // InvalidArgument if the batch is too large, ResourceExhausted if the disk is nearly full.
    virtual absl::Status Append(absl::string_view bytes) = 0;
    // When it returns OK, the batch is on disk. Aborted if another sender has sent the batch meanwhile.
    virtual absl::Status Finish() = 0;
  };
  absl::StatusOr<std::unique_ptr<Arrival>> Begin(const std::string& job, int64_t batch);
  // Records that the job has `count` batches. Aborted if another sender has sent more meanwhile.
  absl::Status End(const std::string& job, int64_t count);

  // --- Workers.
  // Waits up to wait_ms for the batch: then Unavailable. OutOfRange if the sender has ended before it, DataLoss if the
  // batch was removed.
  absl::StatusOr<std::shared_ptr<RangeReader>> Read(const std::string& job, int64_t batch, int64_t wait_ms);

  // If a worker waits for a batch that is not here: what it waits for, as a sentence without a period. Otherwise empty.
  std::string Why(const std::string& job) const;

 private:
  class FileArrival;
  struct Stream {
    int64_t first = 0;       // The first batch that is here.
    int64_t next = 0;        // The first batch that is not.
    int64_t end = -1;        // The number of all batches, if it is known; otherwise -1.
    int64_t wanted = -1;     // The newest batch that a worker has asked for.
    int64_t message_ns = 0;  // When the last message of the sender came.
  };

  BatchSpool(FileSystem& files, const Clock& clock, std::string folder, const Limits& limits)
      : files_(files), clock_(clock), folder_(std::move(folder)), limits_(limits) {}
  absl::Status OpenJob(const std::string& job);
  std::string FolderOf(const std::string& job) const { return JoinPath(folder_, job); }
  std::string PathOf(const std::string& job, int64_t batch) const;
  absl::StatusOr<Stream*> Find(const std::string& job);  // Called with the lock held.
  absl::Status Add(const std::string& job, int64_t batch, ObjectWriter* writer);

  FileSystem& files_;
  const Clock& clock_;
  const std::string folder_;
  const Limits limits_;
  mutable std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  std::map<std::string, Stream> streams_;  // By job.
  int64_t serial_ = 0;                     // The number of the next temporary file.
  int64_t holds_ = 0;                      // See HoldRemovals.
};

}  // namespace xlad::storage
