// The batches of jobs whose data a client sends step by step. Each batch is stored in a file from its arrival until a
// checkpoint of a later step is committed, so that recovery replays the same bytes.
//
//   FOLDER/JOB/12.batch         the batch of step 12, a safetensors file, and its checksums (ReadWithTrailer)
//   FOLDER/JOB/12.safetensors   such a batch without checksums, of an earlier version
//   FOLDER/JOB/20.end           the job has 20 batches
//
// The sender is limited to the pace of the job: it is at most kAhead batches ahead of the newest batch that a worker
// has requested or that a checkpoint has made unnecessary. Batches may be larger than memory, because they are written
// and read in pieces. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "storage/object_writer.h"
#include "storage/range_reader.h"

namespace xlad::storage {

class BatchSpool {
 public:
  static constexpr int64_t kAhead = 8;

  struct Limits {
    int64_t batch_bytes = int64_t{64} << 30;  // The maximum size of one batch in bytes.
    int64_t reserve_bytes = 0;                // The space on the disk, in bytes, that is reserved for other uses.
  };

  // Opens the batches that are on the disk. `files` and `clock` must outlive the spool.
  static absl::StatusOr<std::unique_ptr<BatchSpool>> Open(FileSystem& files, const Clock& clock, std::string folder,
                                                          const Limits& limits);

  // Adds the job if it does not exist, and removes its batches before `first`, which it no longer needs.
  absl::Status Keep(const std::string& job, int64_t first);
  // Removes the job with its files. Calls that wait for the job return NotFound.
  void Remove(const std::string& job);
  // Waits for removals in progress. No batch is then removed from the disk until the result is destroyed. Later calls
  // of Keep remove the batches that are left of existing jobs; files of other jobs stay until the next start. The
  // result must not outlive the spool.
  std::shared_ptr<void> HoldRemovals();
  std::vector<std::string> Jobs() const;
  bool Has(const std::string& job) const;

  // --- The sender.
  // The number of the first batch that has not arrived. NotFound if the job does not exist.
  absl::StatusOr<int64_t> Next(const std::string& job);
  // Waits up to wait_ms until there is room for the next batch. Returns whether there is room.
  absl::StatusOr<bool> WaitForRoom(const std::string& job, int64_t wait_ms);
  // A batch that is arriving. Used by one thread.
  class Arrival {
   public:
    virtual ~Arrival() = default;  // Removes the temporary file, unless Finish succeeded.
    // InvalidArgument if the batch is too large, ResourceExhausted if the disk is nearly full.
    virtual absl::Status Append(absl::string_view bytes) = 0;
    // When it returns OK, the batch is on disk. Aborted if the job expects another batch or none, because another
    // sender has sent this batch or has ended the data in the meantime.
    virtual absl::Status Finish() = 0;
  };
  absl::StatusOr<std::unique_ptr<Arrival>> Begin(const std::string& job, int64_t batch);
  // Records that the job has `count` batches. Aborted if another number of batches has arrived or is recorded, because
  // there is another sender.
  absl::Status End(const std::string& job, int64_t count);

  // --- Workers.
  // Waits up to wait_ms for the batch. Unavailable if it has not arrived by then, OutOfRange if the data ended before
  // this batch, DataLoss if the batch was removed. The reader verifies what it reads, and returns DataLoss if the batch
  // is damaged.
  absl::StatusOr<std::shared_ptr<RangeReader>> Read(const std::string& job, int64_t batch, int64_t wait_ms);

  // If a worker waits for a batch that has not arrived, returns a sentence that says so, without a period. Otherwise
  // returns an empty string.
  std::string Why(const std::string& job) const;

 private:
  class FileArrival;
  struct Stream {
    int64_t first = 0;       // The first batch that the job may need.
    // The batches on the disk. Those before `first` are to be removed.
    std::set<int64_t> on_disk = {};
    int64_t next = 0;        // The first batch that has not arrived.
    int64_t end = -1;        // The total number of batches, or -1 if it is not known yet.
    int64_t wanted = -1;     // The newest batch that a worker has requested.
    int64_t message_ns = 0;  // The time at which the last message of the sender arrived.
  };

  BatchSpool(FileSystem& files, const Clock& clock, std::string folder, const Limits& limits)
      : files_(files), clock_(clock), folder_(std::move(folder)), limits_(limits) {}
  absl::Status OpenJob(const std::string& job);
  std::string FolderOf(const std::string& job) const { return JoinPath(folder_, job); }
  std::string PathOf(const std::string& job, int64_t batch, absl::string_view suffix) const;
  absl::Status RemoveBatch(const std::string& job, int64_t batch);
  absl::StatusOr<Stream*> Find(const std::string& job);  // Called with the lock held.
  absl::Status Add(const std::string& job, int64_t batch, ObjectWriter* writer);
  absl::Status RemoveUnneeded(const std::string& job, std::unique_lock<std::mutex>* lock);
  absl::Status WithoutLock(const std::string& job, const std::function<absl::Status()>& remove,
                           std::unique_lock<std::mutex>* lock);

  FileSystem& files_;
  const Clock& clock_;
  const std::string folder_;
  const Limits limits_;
  mutable std::mutex mutex_;  // Guards the members below.
  std::condition_variable changed_;
  std::map<std::string, Stream> streams_;  // By job.
  std::set<std::string> removing_;         // The jobs with a file that is being removed while mutex_ is not held.
  int64_t serial_ = 0;                     // The number of the next temporary file.
  int64_t holds_ = 0;                      // See HoldRemovals.
};

}  // namespace xlad::storage
