// Runs operations. process_group_form.cc forms groups and prepares operations.
#include "collectives/exec/group/process_group.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {

absl::Status ProcessGroup::Disagreement(int peer) {
  return waiter_->Disagreement(OperationText(control_->rank(rank_), running_->word_), peer,
                               OperationText(control_->rank(peer), core_->entry(peer).operation));
}

absl::Status ProcessGroup::Fail(const GroupOperation& operation, const absl::Status& status) {
  // Unregistered buffers are refused before the operation is entered, so the group can still be used after this error.
  if (absl::IsInvalidArgument(status) && core_->step() < 0) return status;
  absl::Status failure = status;
  if (core_->step() >= 0) {
    failure = Annotate(
        failure, absl::StrCat("step ", core_->step(), " \"", Print(operation.schedule_.ops[core_->step()]), "\""));
  }
  Stop(Annotate(failure, absl::StrCat("operation ", core_->sequence(), " (",
                                      OperationText(control_->rank(rank_), operation.word_), ") on rank ", rank_)));
  return error_;
}

void ProcessGroup::Stop(const absl::Status& error) {
  if (!error_.ok()) return;
  error_ = error;
  control_->rank(rank_).left.store(RankBlock::kLeftAfterError, std::memory_order_release);
  waiter_->Wake();
}

absl::Status ProcessGroup::CheckWhileForming(int peer) {
  XLAD_RETURN_IF_ERROR(error_);
  // The peer may have stopped because of another rank, whose error is then found below.
  const absl::Status peer_status = waiter_->CheckPeer(peer);
  for (int rank = 0; rank < ranks_; ++rank) {
    const std::atomic<uint64_t>& failed = control_->rank(rank).messages.failed;
    if (failed.load() != 0) continue;
    const absl::Status status = waiter_->CheckPeer(rank);
    // The rank may have failed and left meanwhile. It sets `failed` before it leaves.
    const bool has_failed_and_left = absl::IsUnavailable(status) && failed.load() != 0;
    if (!status.ok() && !has_failed_and_left) return status;
  }
  return peer_status;
}

absl::Status ProcessGroup::Barrier() { return Run(*barrier_, nullptr, nullptr); }

}  // namespace xlad::collectives
