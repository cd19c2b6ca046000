#include "collectives/exec/group/verdict.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace xlad::collectives {
namespace {

// Returns the position of a rank that may be running. It is exact if the rank waits.
RankPosition ReadPosition(const RankBlock& block) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (const auto position = PositionOf(block)) return *position;
  }
  const uint64_t mapped = EnteredOnMemory(block), failed = block.messages.failed.load();
  return {mapped, block.messages.entered.load(), failed != 0 && mapped >= failed};
}

RankState ReadRank(const RankBlock& block, const std::function<ProcessState(int64_t, uint64_t)>& state_of) {
  RankState state;
  state.pid = block.pid;
  state.host = std::string(block.host, strnlen(block.host, sizeof block.host));
  state.process = state_of(block.pid, block.start_ticks);
  state.left = block.left.load() == RankBlock::kLeftInOrder;
  state.gave_up = block.left.load() == RankBlock::kLeftAfterError || block.messages.failed.load() != 0;
  state.finished = block.finished.load() + block.messages.finished.load();
  state.position = ReadPosition(block);
  state.entered = state.position.all();
  if (state.entered > 0) state.operation = LastOperation(block, state.position);
  state.waits_for = block.waits_for.load();
  state.step = static_cast<int>(block.step.load());
  return state;
}

// Returns a text such as "ranks 0, 1 and 2" or "rank 3".
std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ", ranks.back());
}

std::string Describe(const RankState& state, int rank) {
  return absl::StrCat("rank ", rank, " (host ", state.host, ", pid ", state.pid, ")");
}

// Returns a text such as "before its first operation", "after operation 3" or "in operation 4 (all_reduce(sum) ...)".
std::string Where(const RankState& state) {
  if (state.entered == 0) return "before its first operation";
  if (state.entered <= state.finished) return absl::StrCat("after operation ", state.finished);
  return absl::StrCat("in operation ", state.entered, " (", state.operation, ")");
}

void AddSentence(std::string text, std::string* to) { absl::StrAppend(to, to->empty() ? "" : "\n", text, "."); }

// Returns why other ranks wait for `rank`, or an empty text if `rank` itself waits, has finished `operation`, or has
// stopped after an error.
std::string Finding(const Verdict& verdict, int rank, uint64_t operation) {
  const RankState& state = verdict.ranks[rank];
  const std::string who = Describe(state, rank);
  if (state.gave_up) return "";
  if (state.left) return absl::StrCat(who, " has left the group after operation ", state.finished);
  if (state.process == ProcessState::kGone) return absl::StrCat(who, " has died ", Where(state));
  if (state.process == ProcessState::kStopped) {
    return absl::StrCat(who, " is stopped by a signal or a debugger ", Where(state));
  }
  // A rank that exchanges messages may wait for another rank in an earlier operation.
  const bool waits = state.finished < state.entered && state.waits_for >= 0;
  if (state.entered < operation && !waits) {
    return absl::StrCat(who, " never entered operation ", operation, "; it is ", Where(state));
  }
  return state.waits_for < 0 && state.finished < operation ? absl::StrCat(who, " is still computing ", Where(state))
                                                           : "";
}

void AddSides(absl::string_view what, const std::map<std::string, std::vector<int>>& ranks_in, Verdict* verdict) {
  std::vector<std::string> sides;
  for (const auto& [text, same] : ranks_in) sides.push_back(absl::StrCat(Ranks(same), " in ", text));
  AddSentence(absl::StrCat(what, ": ", absl::StrJoin(sides, "; ")), &verdict->text);
}

// Adds which ranks run operations on mapped memory and with messages in different orders. Returns false if none do.
bool AddDifferentOrders(const ControlFile& control, Verdict* verdict) {
  std::map<std::string, std::vector<int>> ranks_in;
  for (int rank = 0; rank < control.ranks(); ++rank) {
    const RankPosition& position = verdict->ranks[rank].position;
    const auto other = std::find_if(verdict->ranks.begin(), verdict->ranks.end(), [&](const RankState& state) {
      return !AreInOneOrder(position, state.position);
    });
    if (other == verdict->ranks.end()) continue;
    ranks_in[OperationAhead(control.rank(rank), position, other->position)].push_back(rank);
  }
  if (ranks_in.empty()) return false;
  AddSides("The ranks disagree on the order of operations", ranks_in, verdict);
  return true;
}

// Adds which ranks run different operations, given the number of the first operation that a rank has not finished.
// Ranks that have entered the same number of operations should have entered the same ones, except after an error of
// messages. Among the others, only the numbers of operations on mapped memory and with messages show a difference.
void AddDisagreement(const ControlFile& control, uint64_t operation, Verdict* verdict) {
  if (AddDifferentOrders(control, verdict) || operation == 0) return;
  std::map<std::string, std::vector<int>> ranks_in;
  for (int rank = 0; rank < control.ranks(); ++rank) {
    const RankState& state = verdict->ranks[rank];
    if (state.entered == operation && !state.position.continued) ranks_in[state.operation].push_back(rank);
  }
  if (ranks_in.size() < 2) return;
  AddSides(absl::StrCat("The ranks disagree on operation ", operation), ranks_in, verdict);
}

// Explains a group that has not formed: which ranks have not joined it, and which of the others have died or are
// stopped. Returns false if all ranks have joined. A rank without a process id has not written its part of the file.
// The others wait for it before they run anything.
bool ExplainForming(Verdict* verdict) {
  std::vector<int> missing;
  for (int rank = 0; rank < std::ssize(verdict->ranks); ++rank) {
    if (verdict->ranks[rank].pid == 0) missing.push_back(rank);
  }
  if (missing.empty()) return false;
  verdict->culprits = missing;
  AddSentence(absl::StrCat(Ranks(missing), missing.size() == 1 ? " has" : " have", " not joined the group"),
              &verdict->text);
  for (int rank = 0; rank < std::ssize(verdict->ranks); ++rank) {
    const RankState& state = verdict->ranks[rank];
    if (state.pid == 0 || state.left || state.process == ProcessState::kRunning) continue;
    const std::string finding = Finding(*verdict, rank, 0);
    if (finding.empty()) continue;
    verdict->culprits.push_back(rank);
    AddSentence(finding, &verdict->text);
  }
  std::sort(verdict->culprits.begin(), verdict->culprits.end());
  return true;
}

}  // namespace

Verdict ExplainGroup(const ControlFile& control,
                     const std::function<ProcessState(int64_t pid, uint64_t start_ticks)>& state_of) {
  Verdict verdict;
  for (int rank = 0; rank < control.ranks(); ++rank) verdict.ranks.push_back(ReadRank(control.rank(rank), state_of));
  if (ExplainForming(&verdict)) return verdict;
  uint64_t last = 0, unfinished = 0;
  for (const RankState& state : verdict.ranks) {
    last = std::max(last, state.entered);
    const bool is_first = unfinished == 0 || state.entered < unfinished;
    if (state.finished < state.entered && is_first) unfinished = state.entered;
  }
  // Ranks that need not wait for the others, such as roots, may be in later operations, or have finished them. The
  // cause is in the first operation that a rank has not finished.
  if (unfinished > 0) last = unfinished;
  std::vector<int> inside;
  for (int rank = 0; rank < control.ranks(); ++rank) {
    const RankState& state = verdict.ranks[rank];
    if (state.finished < state.entered) inside.push_back(rank);
  }
  AddDisagreement(control, last, &verdict);
  for (int rank = 0; rank < control.ranks(); ++rank) {
    const RankState& state = verdict.ranks[rank];
    // Between operations, ranks may wait for a connection to a rank that has stopped or died.
    const bool is_usual = state.left || state.process == ProcessState::kRunning;
    if (inside.empty() && is_usual) continue;
    const std::string finding = Finding(verdict, rank, last);
    if (finding.empty() || (state.left && state.finished >= last)) continue;
    verdict.culprits.push_back(rank);
    AddSentence(finding, &verdict.text);
  }
  for (const int rank : inside) {
    const RankState& state = verdict.ranks[rank];
    if (state.process == ProcessState::kGone || state.waits_for < 0) continue;
    AddSentence(absl::StrCat("rank ", rank, " waits in operation ", state.entered, " (", state.operation, ") at step ",
                             state.step, " for rank ", state.waits_for),
                &verdict.text);
  }
  if (verdict.text.empty()) {
    AddSentence(absl::StrCat("No rank waits; ", last, " operations were entered"), &verdict.text);
  }
  return verdict;
}

}  // namespace xlad::collectives
