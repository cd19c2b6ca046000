#include "runtime/local_task.h"

#include "absl/strings/str_cat.h"
#include "storage/uri.h"

namespace xlad::runtime {

absl::Status MemoryStore::Add(const std::string& digest, const std::string& bytes) {
  if (bytes.empty()) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(sources_[storage::BlobUri(digest)],
                        storage::OpenSafetensors({storage::MakeMemoryReader(bytes)}, {digest}));
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryStore::ReadBlob(const std::string&, collectives::AbortSignal*) { return executable_; }

absl::StatusOr<std::shared_ptr<storage::TensorSource>> MemoryStore::OpenTensors(const std::string& uri,
                                                                                collectives::AbortSignal*) {
  const auto found = sources_.find(uri);
  if (found != sources_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("found ", uri, ", expected state or data of the job directory"));
}

absl::StatusOr<CheckpointShard> MemoryStore::WriteShard(int64_t, const std::string& name,
                                                        const storage::SerializedShard&, collectives::AbortSignal*) {
  return absl::UnimplementedError(absl::StrCat("cannot write ", name, ": a task in memory cannot save state"));
}

void StepWaiter::OnStep(const StepMetrics& metrics) {
  const std::lock_guard lock(mutex_);
  reported_ = metrics.step() + 1;
  changed_.notify_all();
}

void StepWaiter::OnFinished(const RunReport&) {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void StepWaiter::OnFailed(int64_t, const collectives::Failure& failure) {
  const std::lock_guard lock(mutex_);
  status_ = failure.status;
  changed_.notify_all();
}

absl::Status StepWaiter::WaitForSteps(int64_t steps) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return reported_ >= steps || !status_.ok(); });
  return status_;
}

absl::Status StepWaiter::WaitForEnd() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ || !status_.ok(); });
  return status_;
}

}  // namespace xlad::runtime
