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
  error_ = Annotate(failure, absl::StrCat("operation ", core_->sequence(), " (",
                                          OperationText(control_->rank(rank_), operation.word_), ") on rank ", rank_));
  control_->rank(rank_).left.store(RankBlock::kLeftAfterError, std::memory_order_release);
  waiter_->Wake();
  return error_;
}

absl::Status ProcessGroup::CheckWhileForming(int peer) {
  XLAD_RETURN_IF_ERROR(error_);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (control_->rank(rank).messages.failed.load() == 0) XLAD_RETURN_IF_ERROR(waiter_->CheckPeer(rank));
  }
  return waiter_->CheckPeer(peer);
}

absl::Status ProcessGroup::Barrier() { return Run(*barrier_, nullptr, nullptr); }

}  // namespace xlad::collectives
