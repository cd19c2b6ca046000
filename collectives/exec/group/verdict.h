// Explains what each rank of a process group did last, and for which ranks the others wait. The source is the group's
// control file, so this works while the ranks hang, and after they have been killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/process/process_state.h"
#include "collectives/exec/group/control.h"

namespace xlad::collectives {

struct RankState {
  int64_t pid = 0;
  std::string host;
  ProcessState process = ProcessState::kGone;
  bool left = false;      // The rank left the group without an error.
  bool gave_up = false;   // The rank left the group after an error, such as the death of another rank.
  // How many operations the rank entered, on mapped memory and with messages, which are numbered together.
  RankPosition position;
  uint64_t entered = 0;   // The number of the last operation that the rank entered, or 0 if there is none.
  uint64_t finished = 0;  // The number of the last operation that the rank finished.
  std::string operation;  // The text of the operation that the rank entered last.
  int waits_for = -1;     // The rank for which this rank waits, or -1; see RankBlock::waits_for.
  int step = 0;           // The step of the schedule at which the rank waits.
};

struct Verdict {
  std::vector<RankState> ranks;
  // The ranks for which the others wait, directly or indirectly. While the group forms, these are the ranks that have
  // not joined it, and those whose process is stopped or gone. If no rank is in an operation, these are the ranks whose
  // process is stopped or gone.
  std::vector<int> culprits;
  std::string text;  // One sentence for each finding.
};

// `state_of` is StateOfProcess, except in tests. Ranks may write to the file at the same time.
Verdict ExplainGroup(const ControlFile& control,
                     const std::function<ProcessState(int64_t pid, uint64_t start_ticks)>& state_of = StateOfProcess);

}  // namespace xlad::collectives
