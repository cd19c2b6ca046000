// Records what a rank that exchanges messages does, in a control file (group/control.h). `xlad comm why` can read it
// while the ranks hang, and after they were killed.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// The record of one rank. Only the thread of the rank may use it.
class FlightRecord {
 public:
  // The record of rank `rank` in the control file of a ProcessGroup, which the ranks of that group use as well. `texts`
  // are those of the rank (ProcessGroup::texts).
  FlightRecord(std::shared_ptr<ControlFile> control, std::shared_ptr<OperationTexts> texts, int rank)
      : control_(std::move(control)), texts_(std::move(texts)), rank_(rank) {}
  // Rank 0 creates the file; the others open it. Returns null if there are more than kMaxGroupRanks ranks.
  static absl::StatusOr<std::unique_ptr<FlightRecord>> Join(const std::string& key, int rank, int ranks,
                                                            Rendezvous* rendezvous);
  // If Join made the record and Fail has not been called: records that the rank leaves without an error, and removes
  // the file if all other ranks that joined have already left without an error.
  ~FlightRecord();

  // Keeps the text of an operation until Remove. Returns the argument of Begin and Remove for this operation: a hash of
  // the text and the text's index (EntryLine::operation).
  uint64_t Add(const std::string& text) { return texts_->Add(text); }
  void Remove(uint64_t word) { texts_->Remove(word); }
  // Begin records that the rank enters an operation, and End that it has finished it.
  void Begin(uint64_t word);
  void End() { self().messages.finished.store(sequence_, std::memory_order_release); }
  // Records that the rank leaves after an error. All ranks then keep the file, including those that leave later.
  void Fail();
  // The members of the record in which a run stores the operation that waits and the rank that it waits for.
  ShownWait shown_wait() { return {&self().step, &self().waits_for}; }

 private:
  RankBlock& self() const { return control_->rank(rank_); }

  const std::shared_ptr<ControlFile> control_;
  const std::shared_ptr<OperationTexts> texts_;
  const int rank_;
  bool owns_file_ = false;
  uint64_t sequence_ = 0;
};

}  // namespace xlad::collectives
