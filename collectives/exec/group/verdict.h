// What the ranks of a process group have done last, and which of them the others wait for, from the group's control
// file. Works while the ranks hang, and after they have been killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/exec/group/control.h"

namespace xlad::collectives {

enum class ProcessState { kRunning, kStopped, kGone };

struct RankState {
  int64_t pid = 0;
  std::string host;
  ProcessState process = ProcessState::kGone;
  bool left = false;      // It left the group in order.
  bool gave_up = false;   // It stopped after an error, such as the death of another rank.
  uint64_t entered = 0;   // The number of the last operation that it entered; 0 if none.
  uint64_t finished = 0;  // The number of the last operation that it finished.
  std::string operation;  // The text of the operation that it entered last.
  int waits_for = -1;     // The rank for which it has waited for at least a millisecond, or -1.
  int step = 0;           // The operation of the schedule at which it waits.
};

struct Verdict {
  std::vector<RankState> ranks;
  // The ranks for which the others wait, directly or not. If no rank is in an operation: those that are stopped or
  // dead.
  std::vector<int> culprits;
  std::string text;  // One sentence for each finding.
};

// `state_of` tells the state of a process of this host. The file may change meanwhile.
Verdict ExplainGroup(const ControlFile& control, const std::function<ProcessState(int64_t pid)>& state_of);

// The state of a process of this host, by /proc.
ProcessState StateOfProcess(int64_t pid);

}  // namespace xlad::collectives
