#include "observe/alignment.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/containers.h"
#include "observe/clock_fit.h"

namespace xlad::observe {
namespace {

constexpr int64_t kClusterNs = 5'000'000'000;  // Steps that begin within this time are moved together.
constexpr int64_t kSlackNs = 1'000;  // If causes contradict each other, the least slack is found to this accuracy.

// The time of an event on one worker.
struct Moment {
  int worker = 0;
  int64_t unix_ns = 0;
};
// A cause and its effect: every event in `before` precedes every event in `after`. A message is sent before it arrives,
// and a joining collective begins on each rank before it ends on any rank.
struct Cause {
  std::vector<Moment> before, after;
};

using Indices = std::vector<size_t>;  // Indices into Traces::steps.

// The groups of steps that are moved together. A group has consecutive steps of all workers.
std::vector<Indices> ClustersOf(const Traces& traces) {
  std::vector<Indices> clusters;
  int64_t begin_ns = 0;
  std::pair<int64_t, int64_t> last{-1, -1};
  for (size_t s = 0; s < traces.steps.size(); ++s) {
    const AlignedStep& step = traces.steps[s];
    const std::pair<int64_t, int64_t> place{traces.workers[step.worker].attempt, step.step.step()};
    const bool is_new = clusters.empty() || (place != last && (place.first != last.first ||
                                                                 step.begin_unix_ns - begin_ns > kClusterNs));
    if (is_new) {
      clusters.emplace_back();
      begin_ns = step.begin_unix_ns;
    }
    last = place;
    clusters.back().push_back(s);
  }
  return clusters;
}

// The number of the collective's group that contains device `device` of the mesh, or -1 if there is none.
int GroupOf(const TracedCollective& collective, int device) {
  for (int g = 0; g < collective.groups_size(); ++g) {
    const auto& devices = collective.groups(g).devices();
    if (Contains(devices, device)) return g;
  }
  return -1;
}

// Identifies an execution of a collective on all ranks: the step, the collective, the number of its earlier executions
// in the step, and the first device of its group.
using Execution = std::tuple<int64_t, int, int, int>;

// Adds the beginnings and ends of the joining collectives of a step (TracedCollective.joins).
void AddCollectives(const TracedWorker& worker, const AlignedStep& at, std::map<Execution, Cause>* causes) {
  std::map<int, int> count;
  for (int s = 0; s < at.step.instruction_size(); ++s) {
    const int number = at.step.instruction(s);
    if (number < 0 || number >= worker.program.instructions_size()) continue;
    const int index = worker.program.instructions(number).collective() - 1;
    if (index < 0 || index >= worker.program.collectives_size()) continue;
    const int execution = count[index]++;
    const TracedCollective& collective = worker.program.collectives(index);
    const int group = GroupOf(collective, at.step.device());
    if (!collective.joins() || group < 0) continue;
    Cause& cause = (*causes)[{at.step.step(), index, execution, collective.groups(group).devices(0)}];
    const int64_t begin_ns = at.step.span_begin_ns(s);
    cause.before.push_back({at.worker, at.UnixNs(begin_ns)});
    cause.after.push_back({at.worker, at.UnixNs(begin_ns + at.step.span_ns(s))});
  }
}

std::vector<Cause> CausesIn(const Traces& traces, const Indices& steps) {
  std::map<Execution, Cause> collectives;
  std::map<uint64_t, Cause> messages;
  for (const size_t s : steps) {
    const AlignedStep& at = traces.steps[s];
    AddCollectives(traces.workers[at.worker], at, &collectives);
    for (int m = 0; m < at.step.message_key_size(); ++m) {
      Cause& cause = messages[at.step.message_key(m)];
      (at.step.message_sent(m) ? cause.before : cause.after).push_back({at.worker, at.UnixNs(at.step.message_ns(m))});
    }
  }
  std::vector<Cause> causes;
  const auto take = [&](Cause& cause) {
    if (!cause.before.empty() && !cause.after.empty()) causes.push_back(std::move(cause));
  };
  for (auto& [key, cause] : collectives) take(cause);
  for (auto& [key, cause] : messages) take(cause);
  return causes;
}

// By how much a worker is moved, and the worker whose event requires this, or -1 if the worker is not moved.
struct Move {
  int64_t ns = 0;
  int required_by = -1;
};
using Moves = std::map<int, Move>;  // By worker.

// Whether some workers require each other's moves.
bool HasCycle(const Moves& moves) {
  std::map<int, int> visited_from;
  for (const auto& [first, move] : moves) {
    int worker = first;
    while (worker >= 0 && visited_from.emplace(worker, first).second) worker = moves.at(worker).required_by;
    if (worker >= 0 && visited_from[worker] == first) return true;
  }
  return false;
}

// The longest-path relaxation of difference constraints (Bellman and Ford): each worker is moved by the least time that
// puts all of its effects at most `slack_ns` before their causes. Nullopt if the constraints contradict each other,
// which is the case if workers require each other's moves, or if there are more rounds than workers.
std::optional<Moves> MovesWithin(int64_t slack_ns, const std::vector<Cause>& causes) {
  Moves moves;
  for (size_t round = 0; round <= moves.size(); ++round) {
    bool changed = false;
    for (const Cause& cause : causes) {
      Move latest{std::numeric_limits<int64_t>::min(), -1};
      for (const Moment& moment : cause.before) {
        const int64_t ns = moment.unix_ns + moves[moment.worker].ns;
        if (ns > latest.ns) latest = {ns, moment.worker};
      }
      for (const Moment& moment : cause.after) {
        Move& move = moves[moment.worker];
        if (moment.unix_ns + move.ns >= latest.ns - slack_ns) continue;
        move = {latest.ns - slack_ns - moment.unix_ns, latest.required_by};
        changed = true;
      }
    }
    if (!changed) return moves;
    if (HasCycle(moves)) return std::nullopt;
  }
  return std::nullopt;
}

int64_t WorstViolationOf(const std::vector<Cause>& causes) {
  int64_t worst_ns = 0;
  for (const Cause& cause : causes) {
    for (const Moment& before : cause.before) {
      for (const Moment& after : cause.after) worst_ns = std::max(worst_ns, before.unix_ns - after.unix_ns);
    }
  }
  return worst_ns;
}

// The moves that put all effects after their causes. Clocks whose rates differ within a cluster can make that
// impossible. The moves are then those of the least slack, which is found to kSlackNs by bisection.
Moves MovesFor(const std::vector<Cause>& causes) {
  std::optional<Moves> best = MovesWithin(0, causes);
  // With the worst violation as the slack, no moves are needed.
  int64_t low_ns = 0, high_ns = best.has_value() ? 0 : WorstViolationOf(causes);
  while (high_ns - low_ns > kSlackNs) {
    const int64_t slack_ns = low_ns + (high_ns - low_ns) / 2;
    std::optional<Moves> moves = MovesWithin(slack_ns, causes);
    (moves.has_value() ? high_ns : low_ns) = slack_ns;
    if (moves.has_value()) best = std::move(moves);
  }
  return best.value_or(Moves());
}

void SortSteps(Traces* traces) {
  const auto place = [&](const AlignedStep& at) {
    return std::make_tuple(traces->workers[at.worker].attempt, at.step.step(), at.step.device());
  };
  std::stable_sort(traces->steps.begin(), traces->steps.end(),
                   [&](const AlignedStep& a, const AlignedStep& b) { return place(a) < place(b); });
}

// Whether the columns of the spans have equal lengths, and those of the messages too.
bool HasEqualColumns(const TracedStep& step) {
  return step.span_begin_ns_size() == step.instruction_size() && step.span_ns_size() == step.instruction_size() &&
         step.message_ns_size() == step.message_key_size() && step.message_sent_size() == step.message_key_size();
}

// Removes a record with its length from the beginning of a file, and returns the record. The result has no data if the
// file has no more complete records. Protobuf's streams are limited to 2 GiB, but a file is not.
absl::string_view NextRecord(absl::string_view* file) {
  constexpr size_t kMaxLengthBytes = 10;  // A varint is not longer.
  google::protobuf::io::CodedInputStream input(reinterpret_cast<const uint8_t*>(file->data()),
                                               static_cast<int>(std::min(file->size(), kMaxLengthBytes)));
  uint32_t size = 0;
  const bool has_size = input.ReadVarint32(&size);
  const auto begin = static_cast<size_t>(input.CurrentPosition());
  if (!has_size || size > static_cast<uint32_t>(std::numeric_limits<int>::max()) || size > file->size() - begin) {
    return {};
  }
  const absl::string_view record = file->substr(begin, size);
  file->remove_prefix(begin + size);
  return record;
}

}  // namespace

Traces ReadTraces(absl::string_view file) {
  Traces traces;
  std::map<std::tuple<int64_t, std::string, int64_t>, int> index_of;
  for (absl::string_view bytes = NextRecord(&file); bytes.data() != nullptr; bytes = NextRecord(&file)) {
    TraceRecord record;
    if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) break;
    traces.full = traces.full || record.full();
    if (record.worker_id().empty()) continue;
    const auto [entry, fresh] = index_of.emplace(
        std::make_tuple(record.attempt(), record.worker_id(), record.pid()), static_cast<int>(traces.workers.size()));
    if (fresh) traces.workers.push_back({record.attempt(), record.worker_id(), record.host(), record.pid(), {}, {}});
    TracedWorker& worker = traces.workers[entry->second];
    TaskTrace& trace = *record.mutable_trace();
    if (trace.has_program()) worker.program = std::move(*trace.mutable_program());
    worker.clock.insert(worker.clock.end(), trace.clock().begin(), trace.clock().end());
    for (TracedStep& step : *trace.mutable_steps()) {
      if (HasEqualColumns(step)) traces.steps.push_back({entry->second, std::move(step), 0, 1});
    }
  }
  SortSteps(&traces);
  return traces;
}

void Align(Traces* traces) {
  std::vector<ClockFit> fits;
  for (const TracedWorker& worker : traces->workers) fits.emplace_back(worker.clock);
  for (AlignedStep& at : traces->steps) {
    const ClockFit::Line line = fits[at.worker].At(at.step.begin_ns());
    at.begin_unix_ns = at.step.begin_ns() + line.offset_ns;
    at.rate = 1 + line.slope;
  }
  for (const Indices& cluster : ClustersOf(*traces)) {
    const Moves moves = MovesFor(CausesIn(*traces, cluster));
    if (moves.empty()) continue;
    // Only the differences between workers matter. The mean of the least and the greatest move is subtracted from every
    // move, so that the cluster stays near the time that the samples determine.
    int64_t least = std::numeric_limits<int64_t>::max(), most = 0;
    for (const auto& [worker, move] : moves) {
      least = std::min(least, move.ns);
      most = std::max(most, move.ns);
    }
    const int64_t shared = (least + most) / 2;
    for (const size_t s : cluster) {
      const auto found = moves.find(traces->steps[s].worker);
      if (found != moves.end()) traces->steps[s].begin_unix_ns += found->second.ns - shared;
    }
  }
}

int64_t WorstViolationNs(const Traces& traces) {
  std::map<int64_t, Indices> by_attempt;
  for (size_t s = 0; s < traces.steps.size(); ++s) {
    by_attempt[traces.workers[traces.steps[s].worker].attempt].push_back(s);
  }
  int64_t worst = 0;
  for (const auto& [attempt, steps] : by_attempt) worst = std::max(worst, WorstViolationOf(CausesIn(traces, steps)));
  return worst;
}

}  // namespace xlad::observe
