// The checker against execution: schedules that it accepts compute the right results in any order of events and do not
// deadlock, and most of those that it refuses do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <tuple>

#include "base/random.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/check.h"
#include "tensor/indices.h"

namespace xlad::collectives {
namespace {

using Numbers = std::vector<uint64_t>;

// Runs schedules on numbers. Each step runs one operation of a random rank. Senders hand out their own memory, which is
// read when the message is received, or a copy, at random. Sums wrap, so that they do not depend on the order of
// additions but do on a missing or repeated one.
class RandomExecution {
 public:
  RandomExecution(const CollectiveSpec& spec, const std::vector<Schedule>& schedules, int slots, bool in_place,
                  Random* random)
      : spec_(spec), schedules_(schedules), slots_(slots), in_place_(in_place), random_(random) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      Numbers input(spec.input_elements());
      for (const int64_t i : tensor::Indices(input)) input[i] = Value(rank, i);
      buffers_.push_back({input, Numbers(spec.output_elements(), 0xdead), Numbers(schedules[rank].scratch, 0xdead)});
    }
    next_.resize(spec.ranks);
  }

  static uint64_t Value(uint64_t rank, uint64_t element) {
    return ((rank + 1) * 0x9e3779b97f4a7c15ull) ^ ((element + 1) * 0xff51afd7ed558ccdull);
  }

  // "" if all outputs are right, otherwise the error.
  std::string Run() {
    while (true) {
      std::vector<int> ready;
      bool done = true;
      for (int rank = 0; rank < spec_.ranks; ++rank) {
        if (next_[rank] == schedules_[rank].ops.size()) continue;
        done = false;
        if (CanRun(rank)) ready.push_back(rank);
      }
      if (done) return CheckOutputs();
      if (ready.empty()) return "deadlock";
      const std::string error = RunOp(ready[random_->Below(ready.size())]);
      if (!error.empty()) return error;
    }
  }

 private:
  struct Message {
    Region from;
    bool is_copy = false;
    Numbers copy;
  };
  using LinkKey = std::tuple<int, int, int>;

  Numbers& At(int rank, ScheduleBuffer buffer) {
    if (in_place_ && buffer == ScheduleBuffer::kOutput) buffer = ScheduleBuffer::kInput;
    return buffers_[rank][static_cast<int>(buffer)];
  }
  bool Inside(int rank, const Region& r) {
    return r.begin >= 0 && r.count > 0 && r.end() <= std::ssize(At(rank, r.buffer));
  }
  Numbers Read(int rank, const Region& r) {
    const Numbers& all = At(rank, r.buffer);
    return {all.begin() + r.begin, all.begin() + r.end()};
  }
  bool Overlap(const Region& a, const Region& b) const {
    const bool same = a.buffer == b.buffer ||
                      (in_place_ && a.buffer != ScheduleBuffer::kScratch && b.buffer != ScheduleBuffer::kScratch);
    return same && a.begin < b.end() && b.begin < a.end();
  }

  static std::vector<ReduceSource> Sources(const ScheduleOp& op) {
    if (op.kind == OpKind::kRecv) return {{op.peer, {}}};
    if (op.kind == OpKind::kRecvReduce) return {{op.peer, {}}, {-1, op.src}};
    if (op.kind == OpKind::kCopy) return {{-1, op.src}};
    return op.kind == OpKind::kReduceMany ? op.sources : std::vector<ReduceSource>();
  }

  bool CanRun(int rank) {
    const ScheduleOp& op = schedules_[rank].ops[next_[rank]];
    if (op.kind == OpKind::kSend) {
      return std::ssize(links_[LinkKey(rank, op.peer, op.channel)]) < slots_;
    }
    if (in_place_ && op.kind == OpKind::kCopy && op.src.begin == op.dst.begin &&
        op.src.buffer != ScheduleBuffer::kScratch && op.dst.buffer != ScheduleBuffer::kScratch) {
      return true;  // The same memory.
    }
    std::map<int, size_t> needed;
    for (const ReduceSource& source : Sources(op)) {
      if (source.peer >= 0 && links_[LinkKey(source.peer, rank, op.channel)].size() < ++needed[source.peer])
        return false;
    }
    for (const auto& [key, messages] : links_) {
      if (std::get<0>(key) != rank) continue;
      for (const Message& message : messages) {
        if (!message.is_copy && Overlap(message.from, op.dst)) return false;
      }
    }
    return true;
  }

  std::string RunOp(int rank) {
    const ScheduleOp& op = schedules_[rank].ops[next_[rank]++];
    if (op.kind == OpKind::kSend) {
      if (!Inside(rank, op.src)) return "send outside of a buffer";
      Message message{op.src, random_->Below(2) == 0, {}};
      if (message.is_copy) message.copy = Read(rank, op.src);
      links_[LinkKey(rank, op.peer, op.channel)].push_back(std::move(message));
      return "";
    }
    if (!Inside(rank, op.dst)) return "write outside of a buffer";
    Numbers sum(op.dst.count, 0);
    for (const ReduceSource& source : Sources(op)) {
      if (source.peer < 0 && !Inside(rank, source.region)) return "read outside of a buffer";
      Numbers operand;
      if (source.peer < 0) {
        operand = Read(rank, source.region);
      } else {
        std::deque<Message>& messages = links_[LinkKey(source.peer, rank, op.channel)];
        const Message& message = messages.front();
        operand = message.is_copy ? message.copy : Read(source.peer, message.from);
        messages.pop_front();
      }
      if (operand.size() != sum.size()) return "sizes differ";
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += operand[i];
    }
    std::copy(sum.begin(), sum.end(), At(rank, op.dst.buffer).begin() + op.dst.begin);
    return "";
  }

  uint64_t Expected(int rank, int64_t p) const {
    const int64_t in = spec_.input_elements(), out = spec_.output_elements(), n = spec_.ranks;
    uint64_t sum = 0;
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
      case CollectiveKind::kReduceScatter:
        for (int64_t from = 0; from < n; ++from) {
          sum += Value(from, spec_.kind == CollectiveKind::kAllReduce ? p : rank * out + p);
        }
        return sum;
      case CollectiveKind::kAllGather:
        return Value(p / in, p % in);
      case CollectiveKind::kAllToAll:
        return Value(p / (in / n), rank * (in / n) + p % (in / n));
      default:
        return Value(0, p);
    }
  }

  std::string CheckOutputs() {
    for (const auto& [key, messages] : links_) {
      if (!messages.empty()) return "message left over";
    }
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      for (int64_t p = 0; p < spec_.output_elements(); ++p) {
        if (At(rank, ScheduleBuffer::kOutput)[p] != Expected(rank, p)) return "wrong value";
      }
    }
    return "";
  }

  const CollectiveSpec& spec_;
  const std::vector<Schedule>& schedules_;
  const int slots_;
  const bool in_place_;
  Random* const random_;
  std::vector<std::array<Numbers, 3>> buffers_;
  std::vector<size_t> next_;
  std::map<LinkKey, std::deque<Message>> links_;
};

CollectiveSpec RandomSpec(Random* random) {
  static constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                              CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                                              CollectiveKind::kBroadcast};
  CollectiveSpec spec;
  spec.kind = kKinds[random->Below(5)];
  spec.ranks = 2 + random->Below(6);
  spec.reduction = Reduces(spec.kind) ? Reduction::kSum : Reduction::kNone;
  spec.counts.assign(1, 1 + random->Below(20));
  if (InputHasParts(spec.kind)) spec.counts[0] *= spec.ranks;
  return spec;
}

std::vector<Schedule> RandomSchedules(const CollectiveSpec& spec, Random* random) {
  std::vector<const Algorithm*> candidates;
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.applies(spec)) candidates.push_back(&algorithm);
  }
  CollectivePlan plan;
  plan.algorithm = std::string(candidates[random->Below(candidates.size())]->name);
  plan.chunks = 1 + random->Below(3);
  plan.channels = 1 + random->Below(2);
  return *BuildSchedules(plan, spec);
}

// Changes a field that the operation uses, or removes the operation.
void Mutate(const CollectiveSpec& spec, Random* random, std::vector<Schedule>* schedules) {
  Schedule& schedule = (*schedules)[random->Below(schedules->size())];
  if (schedule.ops.empty()) return;
  const size_t index = random->Below(schedule.ops.size());
  ScheduleOp& op = schedule.ops[index];
  const int64_t shift = random->Below(2) == 0 ? 1 : -1;
  const auto other_rank = [&]() -> int { return random->Below(spec.ranks); };
  switch (random->Below(7)) {
    case 0:
      schedule.ops.erase(schedule.ops.begin() + index);
      return;
    case 1:
      std::swap(op, schedule.ops[random->Below(schedule.ops.size())]);
      return;
    case 2:
      (op.kind == OpKind::kSend ? op.src : op.dst).begin += shift;
      return;
    case 3:
      (op.kind == OpKind::kSend ? op.src : op.dst).count += shift;
      return;
    case 4:
      if (op.peer >= 0) op.peer = other_rank();
      return;
    case 5:
      (op.kind == OpKind::kSend ? op.src : op.dst).buffer = static_cast<ScheduleBuffer>(random->Below(3));
      return;
    default:
      if (op.sources.size() > 1) op.sources.erase(op.sources.begin() + random->Below(op.sources.size()));
  }
}

TEST(RunSchedules, AnyOrderOfEventsComputesTheRightResult) {
  const std::unique_ptr<Random> random = SeededRandom(1);
  for (int round = 0; round < 1500; ++round) {
    const CollectiveSpec spec = RandomSpec(random.get());
    const std::vector<Schedule> schedules = RandomSchedules(spec, random.get());
    const int slots = 1 + random->Below(3);
    ASSERT_EQ(RandomExecution(spec, schedules, slots, false, random.get()).Run(), "") << spec.ToString();
    if (!schedules[0].in_place) continue;
    ASSERT_EQ(RandomExecution(spec, schedules, slots, true, random.get()).Run(), "") << spec.ToString() << " in place";
  }
}

TEST(RunSchedules, AcceptedMutantsComputeTheRightResult) {
  const std::unique_ptr<Random> random = SeededRandom(2);
  int accepted = 0, refused = 0, refused_but_right = 0;
  for (int round = 0; round < 20000; ++round) {
    const CollectiveSpec spec = RandomSpec(random.get());
    std::vector<Schedule> schedules = RandomSchedules(spec, random.get());
    const uint64_t hash = HashSchedules(schedules);
    Mutate(spec, random.get(), &schedules);
    if (HashSchedules(schedules) == hash) continue;
    if (!CheckSchedules(spec, schedules).ok()) {
      ++refused;
      if (round % 10 == 0)
        refused_but_right += RandomExecution(spec, schedules, 1, false, random.get()).Run().empty() * 10;
      continue;
    }
    ++accepted;
    for (int order = 0; order < 3; ++order) {
      ASSERT_EQ(RandomExecution(spec, schedules, 1, false, random.get()).Run(), "") << spec.ToString();
      if (!schedules[0].in_place) continue;
      ASSERT_EQ(RandomExecution(spec, schedules, 1, true, random.get()).Run(), "") << spec.ToString();
    }
  }
  // The accepted mutants are swaps of independent operations. Some refused ones compute the right numbers: they differ
  // in the order of additions on one rank, or are wrong only in place.
  EXPECT_GT(refused, 4 * accepted) << refused << " refused, " << accepted << " accepted";
  EXPECT_LT(refused_but_right, refused / 5);
}

}  // namespace
}  // namespace xlad::collectives
