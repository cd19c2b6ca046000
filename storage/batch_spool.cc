#include "storage/batch_spool.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "storage/free_space.h"

namespace xlad::storage {
namespace {

constexpr char kBatch[] = ".batch";
constexpr char kBatchWithoutSums[] = ".safetensors";  // Earlier versions wrote this suffix.
constexpr char kEnd[] = ".end";

// Reads the number in "12.batch" or "12.end". Returns false for other names.
bool ParseName(absl::string_view name, absl::string_view suffix, int64_t* number) {
  return absl::ConsumeSuffix(&name, suffix) && absl::SimpleAtoi(name, number) && *number >= 0;
}

}  // namespace

class BatchSpool::FileArrival final : public BatchSpool::Arrival {
 public:
  FileArrival(BatchSpool* spool, std::string job, int64_t batch, std::unique_ptr<ObjectWriter> writer)
      : spool_(spool),
        job_(std::move(job)),
        batch_(batch),
        writer_(std::move(writer)),
        space_(spool_->files_, spool_->folder_, spool_->limits_.reserve_bytes) {}
  absl::Status Append(absl::string_view bytes) override {
    const int64_t limit = spool_->limits_.batch_bytes;
    if (std::ssize(bytes) > limit - writer_->bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("batch ", batch_, " of job ", job_, ": found more than ", limit,
                                                     " bytes, expected at most ", limit));
    }
    XLAD_RETURN_IF_ERROR(space_.Check(writer_->bytes()));
    return writer_->Append(bytes);
  }
  absl::Status Finish() override {
    XLAD_RETURN_IF_ERROR(writer_->Finish(/*with_trailer=*/true).status());
    return spool_->Add(job_, batch_, writer_.get());
  }

 private:
  BatchSpool* const spool_;
  const std::string job_;
  const int64_t batch_;
  const std::unique_ptr<ObjectWriter> writer_;
  FreeSpace space_;
};

absl::StatusOr<std::unique_ptr<BatchSpool>> BatchSpool::Open(FileSystem& files, const Clock& clock,
                                                             std::string folder, const Limits& limits) {
  XLAD_RETURN_IF_ERROR(files.MakeDirectories(folder));
  std::unique_ptr<BatchSpool> spool(new BatchSpool(files, clock, folder, limits));
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> jobs, files.List(folder));
  for (const std::string& job : jobs) XLAD_RETURN_IF_ERROR(spool->OpenJob(job));
  return spool;
}

// Batches are added and removed in order, so the batches on the disk are usually consecutive. There is a gap if Keep
// skipped batches and the process ended before the earlier ones were removed. The batches before the gap are then
// useless, and the next call of Keep removes them.
absl::Status BatchSpool::OpenJob(const std::string& job) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.List(FolderOf(job)));
  Stream stream;
  stream.message_ns = clock_.NowNs();
  std::set<int64_t> batches;
  for (const std::string& name : names) {
    int64_t number = 0;
    if (ParseName(name, kBatch, &number) || ParseName(name, kBatchWithoutSums, &number)) {
      batches.insert(number);
    } else if (ParseName(name, kEnd, &number)) {
      stream.end = number;
    } else {
      // A temporary file of a batch whose arrival was interrupted.
      XLAD_RETURN_IF_ERROR(files_.Remove(JoinPath(FolderOf(job), name)));
    }
  }
  if (!batches.empty()) {
    stream.first = *batches.rbegin();
    stream.next = stream.first + 1;
    while (batches.contains(stream.first - 1)) --stream.first;
  } else if (stream.end >= 0) {  // A checkpoint follows all batches, so the job needs none of them.
    stream.first = stream.next = stream.end;
  }
  stream.on_disk = std::move(batches);
  const std::lock_guard lock(mutex_);
  streams_[job] = std::move(stream);
  return absl::OkStatus();
}

std::string BatchSpool::PathOf(const std::string& job, int64_t batch, absl::string_view suffix) const {
  return JoinPath(FolderOf(job), absl::StrCat(batch, suffix));
}

absl::StatusOr<BatchSpool::Stream*> BatchSpool::Find(const std::string& job) {
  const auto found = streams_.find(job);
  if (found != streams_.end()) return &found->second;
  return absl::NotFoundError(absl::StrCat("no batches of job ", job, ": it has ended, or its data is not a stream"));
}

absl::Status BatchSpool::Keep(const std::string& job, int64_t first) {
  std::unique_lock lock(mutex_);
  // Another thread may still be removing a file of an earlier stream of this job.
  changed_.wait(lock, [&] { return streams_.contains(job) || !removing_.contains(job); });
  auto found = streams_.find(job);
  if (found == streams_.end()) {
    XLAD_RETURN_IF_ERROR(files_.MakeDirectories(FolderOf(job)));
    XLAD_RETURN_IF_ERROR(files_.SyncDirectory(folder_));
    Stream stream;
    stream.first = stream.next = first;
    stream.message_ns = clock_.NowNs();
    found = streams_.emplace(job, std::move(stream)).first;
  }
  Stream& stream = found->second;
  if (holds_ > 0) return absl::OkStatus();  // A later call removes the batches.
  stream.next = std::max(stream.next, first);
  stream.first = std::max(stream.first, first);
  changed_.notify_all();  // Readers may wait for a batch before `first`.
  if (removing_.contains(job)) return absl::OkStatus();  // The call that removes a batch also removes the next ones.
  return RemoveUnneeded(job, &lock);
}

// Releases the lock while it calls `remove`, which removes one file of the job: a removal may take long, and the
// streams of all jobs need the lock.
absl::Status BatchSpool::WithoutLock(const std::string& job, const std::function<absl::Status()>& remove,
                                     std::unique_lock<std::mutex>* lock) {
  removing_.insert(job);
  lock->unlock();
  const absl::Status status = remove();
  lock->lock();
  removing_.erase(job);
  changed_.notify_all();
  return status;
}

// If both files of the batch exist, the one that readers prefer is removed last.
absl::Status BatchSpool::RemoveBatch(const std::string& job, int64_t batch) {
  const std::string without_sums = PathOf(job, batch, kBatchWithoutSums);
  if (files_.Exists(without_sums)) XLAD_RETURN_IF_ERROR(files_.Remove(without_sums));
  return files_.Remove(PathOf(job, batch, kBatch));
}

absl::Status BatchSpool::RemoveUnneeded(const std::string& job, std::unique_lock<std::mutex>* lock) {
  while (holds_ == 0) {
    const auto before = streams_.find(job);
    if (before == streams_.end()) break;
    const Stream& stream = before->second;
    if (stream.on_disk.empty() || *stream.on_disk.begin() >= stream.first) break;
    const int64_t batch = *stream.on_disk.begin();
    const absl::Status removed = WithoutLock(job, [&] { return RemoveBatch(job, batch); }, lock);
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
    const auto after = streams_.find(job);  // The job may have ended meanwhile.
    if (after != streams_.end()) after->second.on_disk.erase(batch);
  }
  return absl::OkStatus();
}

void BatchSpool::Remove(const std::string& job) {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.erase(job) == 0) return;
    changed_.notify_all();
    if (holds_ > 0) return;  // The files are removed after the next start.
  }
  // Files that cannot be removed now are removed after the next start.
  const auto names = files_.List(FolderOf(job));
  if (!names.ok()) return;
  std::unique_lock lock(mutex_);
  const auto remove = [&](const std::function<absl::Status()>& of_one) {
    changed_.wait(lock, [&] { return !removing_.contains(job); });
    if (holds_ > 0 || streams_.contains(job)) return;
    WithoutLock(job, of_one, &lock).IgnoreError();
  };
  for (const std::string& name : *names) {
    remove([&] { return files_.Remove(JoinPath(FolderOf(job), name)); });
  }
  remove([&] { return files_.RemoveDirectory(FolderOf(job)); });
}

std::shared_ptr<void> BatchSpool::HoldRemovals() {
  std::unique_lock lock(mutex_);
  ++holds_;
  changed_.wait(lock, [&] { return removing_.empty(); });
  return std::shared_ptr<void>(nullptr, [this](void*) {
    const std::lock_guard released(mutex_);
    --holds_;
  });
}

bool BatchSpool::Has(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  return streams_.contains(job);
}

std::vector<std::string> BatchSpool::Jobs() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> jobs;
  for (const auto& [job, stream] : streams_) jobs.push_back(job);
  return jobs;
}

absl::StatusOr<int64_t> BatchSpool::Next(const std::string& job) {
  const std::lock_guard lock(mutex_);
  XLAD_ASSIGN_OR_RETURN(const Stream* stream, Find(job));
  return stream->next;
}

absl::StatusOr<bool> BatchSpool::WaitForRoom(const std::string& job, int64_t wait_ms) {
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    const auto found = streams_.find(job);
    if (found == streams_.end()) return true;
    const Stream& stream = found->second;
    return stream.next - kAhead <= std::max(stream.wanted, stream.first - 1);
  };
  const bool room = changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), has_room);
  XLAD_ASSIGN_OR_RETURN(Stream* const stream, Find(job));
  stream->message_ns = clock_.NowNs();
  return room;
}

absl::StatusOr<std::unique_ptr<BatchSpool::Arrival>> BatchSpool::Begin(const std::string& job, int64_t batch) {
  std::string temporary;
  {
    const std::lock_guard lock(mutex_);
    XLAD_ASSIGN_OR_RETURN(Stream* const stream, Find(job));
    stream->message_ns = clock_.NowNs();
    temporary = JoinPath(FolderOf(job), absl::StrCat(batch, "-", serial_++, ".tmp"));
  }
  XLAD_ASSIGN_OR_RETURN(auto writer, ObjectWriter::Create(files_, std::move(temporary)));
  return std::make_unique<FileArrival>(this, job, batch, std::move(writer));
}

absl::Status BatchSpool::Add(const std::string& job, int64_t batch, ObjectWriter* writer) {
  const std::lock_guard lock(mutex_);
  XLAD_ASSIGN_OR_RETURN(Stream* const stream, Find(job));
  if (stream->next != batch || stream->end >= 0) {
    return absl::AbortedError(absl::StrCat("found batch ", batch, " of job ", job, ", expected ",
                                           stream->end >= 0 ? "none, because the data has ended"
                                                            : absl::StrCat("batch ", stream->next)));
  }
  XLAD_RETURN_IF_ERROR(writer->Publish(PathOf(job, batch, kBatch)));
  stream->on_disk.insert(batch);
  ++stream->next;
  stream->message_ns = clock_.NowNs();
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status BatchSpool::End(const std::string& job, int64_t count) {
  const std::lock_guard lock(mutex_);
  XLAD_ASSIGN_OR_RETURN(Stream* const stream, Find(job));
  if (stream->end == count) return absl::OkStatus();
  if (stream->end >= 0 || stream->next != count) {
    return absl::AbortedError(absl::StrCat("found the end of the data of job ", job, " before batch ", count,
                                           ", expected it before batch ", stream->next,
                                           ": another client sends batches of this job, too"));
  }
  XLAD_RETURN_IF_ERROR(files_.WriteAtomically(JoinPath(FolderOf(job), absl::StrCat(stream->next, kEnd)), ""));
  stream->end = stream->next;
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<RangeReader>> BatchSpool::Read(const std::string& job, int64_t batch,
                                                              int64_t wait_ms) {
  {
    std::unique_lock lock(mutex_);
    XLAD_ASSIGN_OR_RETURN(Stream* const stream, Find(job));
    if (batch > stream->wanted) {
      stream->wanted = batch;
      changed_.notify_all();
    }
    changed_.wait_for(lock, std::chrono::milliseconds(wait_ms), [&] {
      const auto found = streams_.find(job);
      return found == streams_.end() || batch < found->second.next || found->second.end >= 0;
    });
    XLAD_ASSIGN_OR_RETURN(const Stream* const now, Find(job));
    if (batch < now->first) return absl::DataLossError(absl::StrCat("batch ", batch, " of job ", job, " was removed"));
    if (batch >= now->next && now->end >= 0) {
      return absl::OutOfRangeError(absl::StrCat("the client's data ended before batch ", now->end,
                                                ", expected a batch for step ", batch));
    }
    if (batch >= now->next) {
      return absl::UnavailableError(absl::StrCat("batch ", batch, " of job ", job, " has not arrived"));
    }
  }
  const std::string path = PathOf(job, batch, kBatch), without_sums = PathOf(job, batch, kBatchWithoutSums);
  if (!files_.Exists(path) && files_.Exists(without_sums)) return OpenFileReader(files_, without_sums);
  XLAD_ASSIGN_OR_RETURN(auto file, OpenFileReader(files_, path));
  return ReadWithTrailer(std::move(file), absl::StrCat("batch ", batch, " of job ", job));
}

std::string BatchSpool::Why(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(job);
  if (found == streams_.end()) return "";
  const Stream& stream = found->second;
  if (stream.wanted < stream.next || stream.end >= 0) return "";
  const int64_t seconds = (clock_.NowNs() - stream.message_ns) / kNsPerSecond;
  return absl::StrCat("it waits for batch ", stream.next,
                      ", which its client has not sent; the last message of the client came ", seconds, " s ago");
}

}  // namespace xlad::storage
