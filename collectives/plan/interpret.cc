// Execution of schedules on numbers.
#include "collectives/plan/interpret.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>

#include "absl/strings/str_cat.h"
#include "collectives/plan/expected.h"

namespace xlad::collectives {
namespace {

using Numbers = std::vector<uint64_t>;
using LinkKey = std::array<int, 3>;

uint64_t Value(uint64_t rank, uint64_t element) {
  return ((rank + 1) * 0x9e3779b97f4a7c15ull) ^ ((element + 1) * 0xff51afd7ed558ccdull);
}

struct Transfer {
  Region from;
  bool is_copy = false;
  Numbers copy;
};

// The operations of one rank, or of one channel of it, in order.
struct Thread {
  int rank = 0;
  std::vector<const ScheduleOp*> ops;
  size_t next = 0;
};

class Interpreter {
 public:
  Interpreter(const CollectiveSpec& spec, absl::Span<const Schedule> schedules, const InterpretOptions& options,
              Random* random)
      : spec_(spec), schedules_(schedules), options_(options), random_(random) {
    for (int rank = 0; rank < spec.ranks; ++rank) {
      offsets_.push_back(options.in_place ? InPlaceOffsetsOf(spec, rank) : InPlaceOffsets());
      const int64_t in = spec.input_elements(rank), out = spec.output_elements(rank);
      const InPlaceOffsets& offset = offsets_.back();
      const int64_t first = options.in_place ? std::max(in + offset.output, out + offset.input) : in;
      Numbers input(first + 1, 0xdead);  // One more element, so that no buffer is null.
      for (int64_t i = 0; i < in; ++i) input[i + offset.output] = Value(rank, i);
      memories_.push_back(
          {input, Numbers(options.in_place ? 1 : out + 1, 0xdead), Numbers(schedules[rank].scratch + 1, 0xdead)});
      std::map<int, size_t> by_channel;
      for (const ScheduleOp& op : schedules[rank].ops) {
        const auto [at, is_new] = by_channel.emplace(options.list_order ? 0 : op.channel, threads_.size());
        if (is_new) threads_.push_back({rank, {}, 0});
        threads_[at->second].ops.push_back(&op);
      }
    }
  }

  absl::Status Run() {
    while (true) {
      std::vector<size_t> ready;
      bool done = true;
      for (size_t t = 0; t < threads_.size(); ++t) {
        if (threads_[t].next == threads_[t].ops.size()) continue;
        done = false;
        if (CanRun(threads_[t])) ready.push_back(t);
      }
      if (done) return CheckOutputs();
      if (ready.empty()) return Deadlock();
      Thread& thread = threads_[ready[random_->Below(ready.size())]];
      const ScheduleOp& op = *thread.ops[thread.next];
      const absl::Status status = RunOp(thread.rank, op);
      if (!status.ok()) return Annotate(status, absl::StrCat("rank ", thread.rank, ", \"", Print(op), "\""));
      ++thread.next;
    }
  }

 private:
  absl::Status Deadlock() const {
    std::string waiting;
    for (const Thread& thread : threads_) {
      if (thread.next == thread.ops.size()) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", "rank ", thread.rank, " at \"",
                      Print(*thread.ops[thread.next]), "\"");
    }
    return absl::InternalError(absl::StrCat("the ranks deadlock: found ", waiting, ", expected one that can run"));
  }

  // Returns the first element of a region, or null if the region is not inside its buffer.
  uint64_t* At(int rank, const Region& region) {
    const int owner = region.rank == kOwnRank ? rank : region.rank;
    if (owner < 0 || owner >= spec_.ranks) return nullptr;
    const int buffer = static_cast<int>(region.buffer);
    const int64_t sizes[] = {spec_.input_elements(owner), spec_.output_elements(owner), schedules_[owner].scratch};
    if (buffer > 2 || region.begin < 0 || region.count < 0 || region.end() > sizes[buffer]) return nullptr;
    if (!options_.in_place || buffer == 2) return memories_[owner][buffer].data() + region.begin;
    return memories_[owner][0].data() + region.begin + (buffer == 0 ? offsets_[owner].output : offsets_[owner].input);
  }

  static std::vector<ReduceSource> Sources(const ScheduleOp& op) {
    if (op.kind == OpKind::kRecv) return {{op.peer, {}}};
    if (op.kind == OpKind::kRecvReduce) return {{op.peer, {}}, {-1, op.src}};
    if (op.kind == OpKind::kCopy) return {{-1, op.src}};
    return HasSources(op.kind) ? op.sources : std::vector<ReduceSource>();
  }

  bool CanRun(const Thread& thread) {
    const ScheduleOp& op = *thread.ops[thread.next];
    const int rank = thread.rank;
    if (op.kind == OpKind::kSignal) return true;
    if (op.kind == OpKind::kWait) return signals_[{op.peer, rank, op.flag}] > 0;
    if (op.kind == OpKind::kSend) return std::ssize(links_[{rank, op.peer, op.channel}]) < options_.slots;
    if (op.kind == OpKind::kCopy && At(rank, op.src) == At(rank, op.dst) && op.more_dsts.empty()) return true;
    std::map<int, size_t> needed;
    for (const ReduceSource& source : Sources(op)) {
      if (source.peer >= 0 && links_[{source.peer, rank, op.channel}].size() < ++needed[source.peer]) return false;
    }
    if (IsInFlight(rank, op.dst)) return false;
    return std::none_of(op.more_dsts.begin(), op.more_dsts.end(),
                        [&](const Region& dst) { return IsInFlight(rank, dst); });
  }

  // Whether a message of this rank that has not been received contains elements of `dst` in this rank's memory.
  bool IsInFlight(int rank, const Region& dst) {
    const uint64_t* const begin = At(rank, dst);
    if (begin == nullptr || (dst.rank != kOwnRank && dst.rank != rank)) return false;
    for (const auto& [key, messages] : links_) {
      if (key[0] != rank) continue;
      for (const Transfer& message : messages) {
        const uint64_t* const from = At(rank, message.from);
        if (!message.is_copy && from < begin + dst.count && begin < from + message.from.count) return true;
      }
    }
    return false;
  }

  absl::Status RunOp(int rank, const ScheduleOp& op) {
    if (op.kind == OpKind::kSignal) {
      ++signals_[{rank, op.peer, op.flag}];
      return absl::OkStatus();
    }
    if (op.kind == OpKind::kWait) {
      --signals_[{op.peer, rank, op.flag}];
      return absl::OkStatus();
    }
    if (op.kind == OpKind::kSend) {
      const uint64_t* const from = At(rank, op.src);
      if (from == nullptr) return absl::InternalError("sends elements outside of a buffer");
      Transfer message{op.src, random_->Below(2) == 0, {}};
      if (message.is_copy) message.copy.assign(from, from + op.src.count);
      links_[{rank, op.peer, op.channel}].push_back(std::move(message));
      return absl::OkStatus();
    }
    Numbers result(op.dst.count, 0);
    for (const ReduceSource& source : Sources(op)) XLAD_RETURN_IF_ERROR(AddSource(rank, op, source, &result));
    XLAD_RETURN_IF_ERROR(WriteTo(rank, op.dst, result));
    for (const Region& dst : op.more_dsts) XLAD_RETURN_IF_ERROR(WriteTo(rank, dst, result));
    return absl::OkStatus();
  }

  absl::Status AddSource(int rank, const ScheduleOp& op, const ReduceSource& source, Numbers* result) {
    Transfer message{source.region, false, {}};
    int owner = rank;
    if (source.peer >= 0) {
      std::deque<Transfer>& messages = links_[{source.peer, rank, op.channel}];
      message = std::move(messages.front());
      messages.pop_front();
      owner = source.peer;
    }
    const uint64_t* const from = message.is_copy ? message.copy.data() : At(owner, message.from);
    if (from == nullptr && message.from.count > 0) return absl::InternalError("reads elements outside of a buffer");
    if (message.from.count != std::ssize(*result)) {
      return absl::InternalError(
          absl::StrCat("found a source of size ", message.from.count, ", expected size ", result->size()));
    }
    for (size_t i = 0; i < result->size(); ++i) (*result)[i] += from[i];
    return absl::OkStatus();
  }

  absl::Status WriteTo(int rank, const Region& dst, const Numbers& values) {
    uint64_t* const to = At(rank, dst);
    if (to == nullptr) return absl::InternalError("writes elements outside of a buffer");
    if (dst.buffer == ScheduleBuffer::kInput) return absl::InternalError("writes to an input");
    if (dst.count != std::ssize(values)) {
      return absl::InternalError(
          absl::StrCat("found a destination of size ", dst.count, ", expected size ", values.size()));
    }
    std::copy(values.begin(), values.end(), to);
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() {
    for (const auto& [key, messages] : links_) {
      if (messages.empty()) continue;
      return absl::InternalError(absl::StrCat("messages of rank ", key[0], " to rank ", key[1], " on channel ", key[2],
                                              " that are not received: found ", messages.size(), ", expected none"));
    }
    for (const auto& [key, count] : signals_) {
      if (count == 0) continue;
      return absl::InternalError(absl::StrCat("signals ", key[2], " of rank ", key[0], " to rank ", key[1],
                                              " that are not waited for: found ", count, ", expected none"));
    }
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      for (const ExpectedOutput& expected : ExpectedOutputOf(spec_, rank)) {
        const uint64_t* const at =
            At(rank, {ScheduleBuffer::kOutput, expected.begin, expected.end - expected.begin, kOwnRank});
        for (int64_t p = expected.begin; p < expected.end; ++p) {
          const uint64_t found = at[p - expected.begin], sum = Sum(expected, p);
          if (found == sum) continue;
          return absl::InternalError(
              absl::StrCat("rank ", rank, ", output element ", p, ": found ", found, ", expected ", sum));
        }
      }
    }
    return absl::OkStatus();
  }

  uint64_t Sum(const ExpectedOutput& expected, int64_t p) const {
    if (expected.source == ExpectedOutput::kZero) return 0;
    if (expected.source >= 0) return Value(expected.source, p + expected.shift);
    uint64_t sum = 0;
    for (int rank = 0; rank < spec_.ranks; ++rank) sum += Value(rank, p + expected.shift);
    return sum;
  }

  const CollectiveSpec& spec_;
  const absl::Span<const Schedule> schedules_;
  const InterpretOptions options_;
  Random* const random_;
  std::vector<InPlaceOffsets> offsets_;
  std::vector<std::array<Numbers, 3>> memories_;
  std::vector<Thread> threads_;
  std::map<LinkKey, std::deque<Transfer>> links_;
  std::map<LinkKey, int64_t> signals_;
};

}  // namespace

absl::Status Interpret(const CollectiveSpec& spec, absl::Span<const Schedule> schedules,
                       const InterpretOptions& options, Random* random) {
  return Interpreter(spec, schedules, options, random).Run();
}

}  // namespace xlad::collectives
