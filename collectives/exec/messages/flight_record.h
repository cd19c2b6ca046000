// What a rank that exchanges messages does, in a control file (group/control.h) that `xlad comm why` can read while the
// ranks hang, and after they were killed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/schedule_run.h"

namespace xlad::collectives {

// Used by the thread of its rank.
class FlightRecord {
 public:
  // Rank 0 creates the file; the others open it. Null if there are more ranks than a control file has room for.
  static absl::StatusOr<std::unique_ptr<FlightRecord>> Join(const std::string& key, int rank, int ranks,
                                                            Rendezvous* rendezvous);
  // The file stays after an error; otherwise the last rank removes it.
  ~FlightRecord();

  // Keeps the text of an operation until Remove. Returns what Begin takes.
  uint64_t Add(const std::string& text);
  void Remove(uint64_t word);
  // The rank enters an operation, and has finished it.
  void Begin(uint64_t word);
  void End() { self().finished.store(sequence_, std::memory_order_release); }
  void Fail() { self().left.store(RankBlock::kLeftAfterError); }
  // The members of the record in which a run says for which rank it waits.
  ShownWait shown_wait() { return {&self().step, &self().waits_for}; }

 private:
  FlightRecord(std::unique_ptr<ControlFile> control, int rank)
      : control_(std::move(control)), rank_(rank), used_texts_(RankBlock::kTexts - 1) {}
  RankBlock& self() const { return control_->rank(rank_); }

  const std::unique_ptr<ControlFile> control_;
  const int rank_;
  uint64_t sequence_ = 0;
  std::vector<bool> used_texts_;  // If all others are in use, operations share the last text.
};

}  // namespace xlad::collectives
