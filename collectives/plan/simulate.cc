// A discrete-event simulation of schedules on a network.
#include "collectives/plan/simulate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/cost.h"
#include "collectives/plan/grid.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {
namespace {

// The simulation's form of an operation of a schedule.
struct Step {
  // kNeed waits until the next message or signal of the flow has arrived. kRelease frees its slot.
  enum Kind : uint8_t { kSend, kNeed, kRelease, kCopy } kind;
  int32_t flow;  // An index into flows_; unused by kCopy.
  double bytes;
};

// The steps of one channel of one rank, which run in order.
struct Lane {
  std::vector<Step> steps;
  size_t next = 0;
  bool waits = false;
};

// The messages from one rank to another on one channel, or the signals of one flag (without slots).
struct Flow {
  std::vector<int> route;
  bool has_slots = true;
  int64_t sent = 0;
  int64_t arrived = 0;
  int64_t needed = 0;
  int64_t released = 0;
  int waiting_sender = -1;  // The index of the lane that waits to send, or -1.
  int waiting_receiver = -1;
};

// The messages of a step of one channel in a ring over a grid. `send` and `receive` are indices into the operations.
struct GridStep {
  int64_t send = -1, receive = -1;
  absl::flat_hash_set<std::pair<ScheduleBuffer, int64_t>> received;  // The beginnings of the received regions.
};

// Returns the operations of a ring over a grid with one send and one receive for each step of a channel. In each step,
// a rank sends what it received in the step before, or sends to another peer. Only the sizes of the merged regions are
// meaningful.
std::vector<ScheduleOp> MergedSteps(const std::vector<ScheduleOp>& ops) {
  std::vector<ScheduleOp> merged;
  absl::flat_hash_map<int, GridStep> steps;  // By channel.
  for (const ScheduleOp& op : ops) {
    GridStep& step = steps[op.channel];
    if (op.kind == OpKind::kSend) {
      const bool is_next =
          step.send < 0 || merged[step.send].peer != op.peer || step.received.contains({op.src.buffer, op.src.begin});
      if (!is_next) {
        merged[step.send].src.count += op.src.count;
        continue;
      }
      step = {.send = std::ssize(merged)};
    } else if (op.kind == OpKind::kRecv || op.kind == OpKind::kRecvReduce) {
      step.received.insert({op.dst.buffer, op.dst.begin});
      if (step.receive >= 0) {
        merged[step.receive].dst.count += op.dst.count;
        continue;
      }
      step.receive = std::ssize(merged);
    }
    merged.push_back(op);
  }
  return merged;
}

absl::StatusOr<Schedule> SimulatedSchedule(const CollectivePlan& plan, const CollectiveSpec& spec, int rank,
                                           const SimulateOptions& options) {
  XLAD_ASSIGN_OR_RETURN(Schedule schedule, BuildSchedule(plan, spec, rank));
  const bool is_grid_ring = plan.algorithm == "ring_2d" || plan.algorithm == "ring_3d";
  if (options.moves_strided_data && is_grid_ring) schedule.ops = MergedSteps(schedule.ops);
  return schedule;
}

struct Event {
  double time;
  int64_t sequence;  // Makes the order of simultaneous events unique.
  int lane;          // The lane to resume, or negative if the event moves a message.
  int flow;
  int hop;
  double bytes;
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : sequence > other.sequence;
  }
};

class Simulation {
 public:
  // If `only_rank_zero` is set, only the schedule of rank 0 is added, and it represents those of all ranks.
  Simulation(const CollectiveSpec& spec, const Network& network, const SimulateOptions& options,
             bool only_rank_zero = false)
      : element_bytes_(static_cast<double>(tensor::ByteWidth(spec.type))),
        network_(network),
        options_(options),
        only_rank_zero_(only_rank_zero),
        free_at_(network.links().size()) {
    run_.busy_us.resize(network.links().size());
  }

  absl::Status Add(const Schedule& schedule) {
    for (const ScheduleOp& op : schedule.ops) XLAD_RETURN_IF_ERROR(AddOp(schedule.rank, op));
    return absl::OkStatus();
  }

  absl::StatusOr<SimulatedRun> Run() {
    for (int lane = 0; lane < std::ssize(lanes_); ++lane) Push(network_.launch_us(), lane, 0, 0, 0);
    run_.time_us = network_.launch_us();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.lane >= 0) {
        Advance(event.lane, event.time);
      } else {
        Forward(event);
      }
    }
    for (const Lane& lane : lanes_) {
      if (lane.next < lane.steps.size()) return absl::InternalError("the simulated ranks deadlock");
    }
    return run_;
  }

 private:
  using Key = std::array<int, 4>;  // The sender, the receiver, the channel or flag, and whether it is a signal.

  absl::StatusOr<int> FlowOf(int from, int to, int channel, bool is_signal) {
    if (only_rank_zero_) {
      to = DifferenceIn(network_.grid(), from, to);
      from = 0;
    }
    const auto [at, is_new] = flow_ids_.try_emplace({from, to, channel, is_signal}, std::ssize(flows_));
    if (is_new) {
      Flow& flow = flows_.emplace_back();
      flow.has_slots = !is_signal;
      if (from != to) {
        XLAD_ASSIGN_OR_RETURN(flow.route, network_.Route(from, to));
      }
      if (only_rank_zero_) {
        for (int& link : flow.route) link = network_.LinkOfRankZero(link);
      }
    }
    return at->second;
  }

  absl::Status AddOp(int rank, const ScheduleOp& op) {
    const auto [at, is_new] = lane_ids_.try_emplace({rank, op.channel}, std::ssize(lanes_));
    if (is_new) lanes_.emplace_back();
    std::vector<Step>& steps = lanes_[at->second].steps;
    const double bytes = static_cast<double>(op.dst.count) * element_bytes_;
    if (op.kind == OpKind::kSend || op.kind == OpKind::kSignal) {
      const bool is_signal = op.kind == OpKind::kSignal;
      XLAD_ASSIGN_OR_RETURN(const int flow, FlowOf(rank, op.peer, is_signal ? op.flag : op.channel, is_signal));
      steps.push_back({Step::kSend, flow, static_cast<double>(op.src.count) * element_bytes_});
      return absl::OkStatus();
    }
    std::vector<int> flows;
    if (op.kind == OpKind::kWait) {
      XLAD_ASSIGN_OR_RETURN(flows.emplace_back(), FlowOf(op.peer, rank, op.flag, true));
    } else if (op.kind == OpKind::kRecv || op.kind == OpKind::kRecvReduce) {
      XLAD_ASSIGN_OR_RETURN(flows.emplace_back(), FlowOf(op.peer, rank, op.channel, false));
    }
    for (const ReduceSource& source : op.sources) {
      if (source.peer < 0) continue;
      XLAD_ASSIGN_OR_RETURN(flows.emplace_back(), FlowOf(source.peer, rank, op.channel, false));
    }
    for (const int flow : flows) steps.push_back({Step::kNeed, flow, 0});
    if (flows.empty()) steps.push_back({Step::kCopy, -1, 2 * bytes});
    for (const int flow : flows) steps.push_back({Step::kRelease, flow, 0});
    return absl::OkStatus();
  }

  void Push(double time, int lane, int flow, int hop, double bytes) {
    events_.push({time, sequence_++, lane, flow, hop, bytes});
  }

  void Resume(int* lane, double time) {
    if (*lane < 0) return;
    Push(time, *lane, 0, 0, 0);
    *lane = -1;
  }

  // Runs steps of a lane from `time` until it waits.
  void Advance(int id, double time) {
    Lane& lane = lanes_[id];
    for (; lane.next < lane.steps.size(); ++lane.next) {
      const Step& step = lane.steps[lane.next];
      if (step.kind == Step::kCopy) {
        const double us = step.bytes / (options_.memory_gigabytes_per_s * 1e3);
        ++lane.next;
        return Push(time + us, id, 0, 0, 0);
      }
      Flow& flow = flows_[step.flow];
      if (step.kind == Step::kSend) {
        if (flow.has_slots && flow.sent - flow.released >= options_.slots) {
          flow.waiting_sender = id;
          return;
        }
        ++flow.sent;
        ++run_.messages;
        Push(time, -1, step.flow, 0, step.bytes);
        if (options_.message_us > 0) {
          ++lane.next;
          return Push(time + options_.message_us, id, 0, 0, 0);
        }
      } else if (step.kind == Step::kNeed) {
        if (flow.arrived == flow.needed) {
          flow.waiting_receiver = id;
          return;
        }
        ++flow.needed;
      } else {
        ++flow.released;
        Resume(&flow.waiting_sender, time);
      }
    }
    run_.time_us = std::max(run_.time_us, time);
  }

  // Called when the first byte of a message has reached its next link, or when its last byte has reached the receiver.
  void Forward(const Event& event) {
    Flow& flow = flows_[event.flow];
    if (event.hop == std::ssize(flow.route)) {
      ++flow.arrived;
      return Resume(&flow.waiting_receiver, event.time);
    }
    const int id = flow.route[event.hop];
    const NetworkLink& link = network_.links()[id];
    const double us = event.bytes / (link.gigabytes_per_s * 1e3);
    const double start = std::max(event.time, free_at_[id]);
    free_at_[id] = start + us;
    run_.busy_us[id] += us;
    run_.link_bytes += event.bytes;
    const bool is_last = event.hop + 1 == std::ssize(flow.route);
    Push(start + link.latency_us + (is_last ? us : 0), -1, event.flow, event.hop + 1, event.bytes);
  }

  const double element_bytes_;
  const Network& network_;
  const SimulateOptions options_;
  const bool only_rank_zero_;
  std::vector<Lane> lanes_;
  std::vector<Flow> flows_;
  absl::flat_hash_map<Key, int> flow_ids_;
  absl::flat_hash_map<std::pair<int, int>, int> lane_ids_;  // By rank and channel.
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t sequence_ = 0;
  std::vector<double> free_at_;  // By link.
  SimulatedRun run_;
};

absl::Status CheckRanks(const CollectiveSpec& spec, const Network& network) {
  if (network.ranks() >= spec.ranks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("found a topology of ", Counted(network.ranks(), "rank"), " for ",
                                                 spec.ToString(), ", expected at least ", spec.ranks));
}

absl::Status CheckSendsMessages(const Schedule& schedule) {
  for (const ScheduleOp& op : schedule.ops) {
    if (op.kind == OpKind::kSignal || op.kind == OpKind::kWait || !NeedsWindows(op, schedule.rank)) continue;
    return absl::InvalidArgumentError(absl::StrCat("found operation \"", Print(op), "\" of rank ", schedule.rank,
                                                   ", expected an algorithm that sends messages: the simulator has ",
                                                   "no windows"));
  }
  return absl::OkStatus();
}

struct Traffic {
  double sent = 0, received = 0;  // Elements.
};

// The elements that a rank must at least send and receive, whatever the algorithm is.
Traffic LeastTraffic(const CollectiveSpec& spec, int rank) {
  const double input = spec.input_elements(rank);
  const double output = spec.output_elements(rank);
  const bool is_root = rank == spec.root;
  Traffic least;
  switch (spec.kind) {
    case CollectiveKind::kAllReduce:
      return {input, output};
    case CollectiveKind::kAllGather:
      return {input, output - input};
    case CollectiveKind::kReduceScatter:
      return {input - output, output};
    case CollectiveKind::kAllToAll: {
      const int64_t n = spec.ranks;
      const double kept =
          spec.sizes.empty() ? input / static_cast<double>(n) : static_cast<double>(spec.sizes[rank * n + rank]);
      return {input - kept, output - kept};
    }
    case CollectiveKind::kBroadcast:
      return is_root ? Traffic{output, 0} : Traffic{0, output};
    case CollectiveKind::kReduce:
      return is_root ? Traffic{0, input} : Traffic{input, 0};
    case CollectiveKind::kGather:
      return is_root ? Traffic{0, output - input} : Traffic{input, 0};
    case CollectiveKind::kScatter:
      return is_root ? Traffic{input - output, 0} : Traffic{0, output};
    case CollectiveKind::kCollectivePermute:
    case CollectiveKind::kSendRecv:
      for (const RankPair& pair : spec.pairs) {
        if (pair.source == pair.target) continue;
        if (pair.source == rank) least.sent += input;
        if (pair.target == rank) least.received += output;
      }
      return least;
    case CollectiveKind::kBarrier:
      return least;
  }
  return least;
}

// Returns the number of channels of a ring in both directions together. While a message of one channel is on its way,
// the other channels of its direction use the links. More than four would make the simulation too long.
int RingChannels(const CollectiveSpec& spec, const Network& network) {
  const NetworkLink& link = network.links()[0];
  // The bytes that a rank sends in one direction in one step, in the messages of all channels.
  const double bytes = static_cast<double>(MovedBytes(spec)) / spec.ranks / 2;
  const double transfer_us = std::max(bytes / (link.gigabytes_per_s * 1e3), 1e-6);
  const int messages = std::min(4.0, 1 + std::ceil(link.latency_us / transfer_us));
  return 2 * messages;
}

}  // namespace

absl::StatusOr<SimulatedRun> Simulate(const CollectiveSpec& spec, const Network& network,
                                      const std::function<absl::StatusOr<Schedule>(int rank)>& schedule_of,
                                      const SimulateOptions& options) {
  XLAD_RETURN_IF_ERROR(CheckRanks(spec, network));
  Simulation simulation(spec, network, options);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    XLAD_ASSIGN_OR_RETURN(const Schedule schedule, schedule_of(rank));
    XLAD_RETURN_IF_ERROR(CheckSendsMessages(schedule));
    XLAD_RETURN_IF_ERROR(simulation.Add(schedule));
  }
  return simulation.Run();
}

absl::StatusOr<SimulatedRun> Simulate(const CollectivePlan& plan, const CollectiveSpec& spec, const Network& network,
                                      const SimulateOptions& options) {
  CollectiveSpec sent = spec;
  sent.type = MessageType(plan, spec);
  return Simulate(sent, network, [&](int rank) { return SimulatedSchedule(plan, spec, rank, options); }, options);
}

absl::StatusOr<SimulatedRun> SimulateRankZero(const CollectivePlan& plan, const CollectiveSpec& spec,
                                              const Network& network, const SimulateOptions& options) {
  XLAD_RETURN_IF_ERROR(CheckRanks(spec, network));
  if (!network.IsSymmetric() || spec.ranks != network.ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", spec.ToString(), " on a network of ", network.ranks(),
        " ranks, expected a spec for all ranks of a network on which all ranks have the same neighbors and links"));
  }
  XLAD_ASSIGN_OR_RETURN(const Schedule schedule, SimulatedSchedule(plan, spec, 0, options));
  XLAD_RETURN_IF_ERROR(CheckSendsMessages(schedule));
  CollectiveSpec sent = spec;
  sent.type = MessageType(plan, spec);
  Simulation simulation(sent, network, options, /*only_rank_zero=*/true);
  XLAD_RETURN_IF_ERROR(simulation.Add(schedule));
  XLAD_ASSIGN_OR_RETURN(SimulatedRun run, simulation.Run());
  run.messages *= spec.ranks;
  run.link_bytes *= spec.ranks;
  return run;
}

double BandwidthBoundUs(const CollectiveSpec& spec, const Network& network) {
  if (spec.ranks < 2) return 0;
  const auto us = [&](double elements, double gigabytes_per_s) {
    return elements == 0 ? 0 : elements * static_cast<double>(tensor::ByteWidth(spec.type)) / (gigabytes_per_s * 1e3);
  };
  double bound = 0, all_sent = 0, all_received = 0, all_rates = 0;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const Traffic least = LeastTraffic(spec, rank);
    const double rate = network.InjectionRate(rank);
    bound = std::max(bound, us(std::max(least.sent, least.received), rate));
    all_sent += least.sent;
    all_received += least.received;
    all_rates += rate;
  }
  // Each element is sent n - 1 times to reduce it, and its sum n - 1 times to distribute it.
  if (spec.kind == CollectiveKind::kAllReduce) {
    all_sent = 2.0 * (spec.ranks - 1) * static_cast<double>(spec.input_elements());
  }
  return std::max(bound, us(std::max(all_sent, all_received), all_rates));
}

absl::StatusOr<CollectivePlan> PlanFor(const CollectiveSpec& spec, const Network& network) {
  constexpr int kMaxRingRanks = 256;  // The simulation of a ring over more ranks takes seconds.
  // `direct` may be the only plan. It sends a message between every two ranks; with 1,024 ranks, its simulation takes
  // about 10 s.
  constexpr int kMaxDirectRanks = 1024;
  std::vector<CollectivePlan> candidates;
  const int dimensions = std::ssize(network.grid());
  if (dimensions == 2 || dimensions == 3) {
    for (const int chunks : {1, 2, 6}) {
      candidates.push_back({.algorithm = dimensions == 2 ? "ring_2d" : "ring_3d",
                            .chunks = chunks,
                            .channels = 2 * dimensions,
                            .grid = network.grid()});
    }
  }
  // Around a broken chip, the grid of the network has no plan.
  if (!network.HasAllChips() && spec.ranks == network.ranks()) {
    // The grid of a prime number of ranks is one ring. Halving and doubling sends few messages.
    const std::vector<int> own = GridOf({}, spec.ranks, 2);
    const bool is_long = spec.ranks > kMaxRingRanks && own[1] > 4 * own[0];
    candidates.push_back({.algorithm = is_long ? "halving_doubling" : "ring_2d"});
    if (spec.ranks <= kMaxRingRanks) {
      const int channels = RingChannels(spec, network);
      candidates.push_back({.algorithm = "ring", .channels = channels, .order = network.RingOrder()});
      if (!network.OnlyChipsAreBroken()) {
        candidates.push_back({.algorithm = "ring", .channels = channels, .order = network.SnakeOrder()});
      }
    }
  }
  for (const char* const name : {"ring", "halving_doubling", "swing", "pat", "direct"}) {
    // For more than 64 ranks, only swing and pat are simulated, which send few messages.
    if (spec.ranks > 64 && absl::string_view(name) != "swing" && absl::string_view(name) != "pat") continue;
    candidates.push_back({.algorithm = name});
  }
  const auto cannot_run = [&](const CollectivePlan& plan) { return !BuildSchedule(plan, spec, 0).ok(); };
  std::erase_if(candidates, cannot_run);
  if (candidates.empty()) {
    const bool sends_few = spec.kind == CollectiveKind::kCollectivePermute || spec.kind == CollectiveKind::kSendRecv;
    candidates = {{.algorithm = "binomial"}, {.algorithm = "recursive_doubling"}};
    if (sends_few || spec.ranks <= kMaxDirectRanks) candidates.push_back({.algorithm = "direct"});
    std::erase_if(candidates, cannot_run);
  }
  XLAD_RETURN_IF_ERROR(CheckRanks(spec, network));
  if (candidates.size() == 1) return candidates[0];
  absl::StatusOr<CollectivePlan> best = absl::InvalidArgumentError(
      absl::StrCat("found no algorithm for ", spec.ToString(), " on a network of ", network.ranks(), " ranks"));
  double best_us = 0;
  for (const CollectivePlan& plan : candidates) {
    const absl::StatusOr<SimulatedRun> run = Simulate(plan, spec, network);
    if (!run.ok()) return run.status();
    if (!best.ok() || run->time_us < best_us) {
      best = plan;
      best_us = run->time_us;
    }
  }
  return best;
}

}  // namespace xlad::collectives
