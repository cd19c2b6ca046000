// Records what a rank that exchanges messages does, in a control file (group/control.h). `xlad comm why` can read it
// while the ranks hang, and after they were killed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/schedule_program.h"

namespace xlad::collectives {

// The record of one rank. Only the thread of the rank may use it.
class FlightRecord {
 public:
  // Rank 0 creates the file; the others open it. Returns null if there are more than kMaxGroupRanks ranks.
  static absl::StatusOr<std::unique_ptr<FlightRecord>> Join(const std::string& key, int rank, int ranks,
                                                            Rendezvous* rendezvous);
  // Unless Fail has been called, records that the rank leaves without an error, and removes the file if all other ranks
  // that joined have already left without an error.
  ~FlightRecord();

  // Keeps the text of an operation until Remove. Returns the argument of Begin and Remove for this operation: a hash of
  // the text and the text's index (EntryLine::operation).
  uint64_t Add(const std::string& text);
  void Remove(uint64_t word);
  // Begin records that the rank enters an operation, and End that it has finished it.
  void Begin(uint64_t word);
  void End() { self().finished.store(sequence_, std::memory_order_release); }
  // Records that the rank leaves after an error. All ranks then keep the file, including those that leave later.
  void Fail() { self().left.store(RankBlock::kLeftAfterError); }
  // The members of the record in which a run stores the operation that waits and the rank that it waits for.
  ShownWait shown_wait() { return {&self().step, &self().waits_for}; }

 private:
  FlightRecord(std::unique_ptr<ControlFile> control, int rank)
      : control_(std::move(control)), rank_(rank), used_texts_(RankBlock::kTexts - 1) {}
  RankBlock& self() const { return control_->rank(rank_); }

  const std::unique_ptr<ControlFile> control_;
  const int rank_;
  uint64_t sequence_ = 0;
  size_t last_text_ = 0;          // The text that was added last.
  std::vector<bool> used_texts_;  // If all other texts are in use, operations share the last one.
};

}  // namespace xlad::collectives
