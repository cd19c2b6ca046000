// CheckAssignment: abstract interpretation over the values that each byte range of memory holds.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/containers.h"
#include "compiler/buffers/buffer_assignment.h"

namespace xlad::compiler {
namespace {

// The contents of memory: for each (allocation, offset), the end of a range and the values that the range holds. It
// holds several values if the source and destination of a copy share memory. Ranges are disjoint.
struct Range {
  int64_t end;
  std::vector<int> values;
  friend bool operator==(const Range&, const Range&) = default;
};
using Memory = std::map<std::pair<int32_t, int64_t>, Range>;

class Checker {
 public:
  Checker(const LinearProgram& program, const BufferAssignment& assignment)
      : program_(program), assignment_(assignment) {}

  absl::Status Run() {
    Memory memory;
    for (int v = 0; v < std::ssize(program_.values); ++v) {
      const BufferValue::Kind kind = program_.values[v].kind;
      const BufferSlice& place = slice(v);
      if (place.bytes() != program_.values[v].bytes ||
          place.offset() + place.bytes() > assignment_.allocations[place.allocation()].bytes()) {
        return absl::InternalError(absl::StrCat(Name(v), ": found a slice of ", place.bytes(), " bytes at offset ",
                                                place.offset(), " of allocation ", place.allocation(), ", expected ",
                                                program_.values[v].bytes, " bytes inside the allocation, which has ",
                                                assignment_.allocations[place.allocation()].bytes()));
      }
      if (kind == BufferValue::Kind::kParameter || kind == BufferValue::Kind::kConstant) Write(v, &memory);
    }
    XLAD_RETURN_IF_ERROR(RunOps(program_.ops, &memory));
    for (int v : program_.results) XLAD_RETURN_IF_ERROR(Read(v, memory, nullptr));
    return absl::OkStatus();
  }

 private:
  const BufferSlice& slice(int v) const { return assignment_.slices[v]; }
  std::string Name(int v) const { return absl::StrCat("value ", v, " (%", program_.values[v].name, ")"); }

  absl::Status RunOps(const std::vector<LinearOp>& ops, Memory* memory) {
    const size_t outer_first = std::exchange(first_, running_.size());
    for (const LinearOp& op : ops) XLAD_RETURN_IF_ERROR(RunOp(op, memory));
    const bool all_ended = running_.size() == first_;
    first_ = outer_first;
    if (all_ended) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("found no end of the collective %", running_.back()->instruction->name(),
                                            ", expected one in the list of operations that starts it"));
  }

  absl::Status RunOp(const LinearOp& op, Memory* memory) {
    if (op.kind == LinearOp::Kind::kCollectiveDone) XLAD_RETURN_IF_ERROR(EndCollective(op));
    for (int v : op.inputs) {
      XLAD_RETURN_IF_ERROR(CheckRunning(op, v, /*writes=*/false));
      XLAD_RETURN_IF_ERROR(Read(v, *memory, &op));
    }
    if (op.kind == LinearOp::Kind::kWhile) return RunLoop(op, memory);
    if (op.kind == LinearOp::Kind::kIf) return RunBranches(op, memory);
    if (op.kind == LinearOp::Kind::kCopy && Overlaps(op.inputs[0], op.outputs[0])) {
      if (!SamePlace(op.inputs[0], op.outputs[0])) {
        return Shares(op, op.inputs[0], op.outputs[0], "disjoint memory or equal slices");
      }
      auto held = memory->find({slice(op.inputs[0]).allocation(), slice(op.inputs[0]).offset()});
      if (held != memory->end()) held->second.values.push_back(op.outputs[0]);
      return absl::OkStatus();
    }
    XLAD_RETURN_IF_ERROR(CheckSharing(op));
    for (int v : op.outputs) {
      if (!program_.values[v].is_writable) {
        return absl::InternalError(absl::StrCat("%", op.instruction->name(), ": found a write to read-only ",
                                                Name(v), ", expected a writable value"));
      }
      XLAD_RETURN_IF_ERROR(CheckRunning(op, v, /*writes=*/true));
      Write(v, memory);
    }
    if (op.kind == LinearOp::Kind::kCollective && op.request != 0) running_.push_back(&op);
    return absl::OkStatus();
  }

  absl::Status EndCollective(const LinearOp& done) {
    const auto found = std::find_if(running_.begin() + first_, running_.end(),
                                    [&](const LinearOp* op) { return op->request == done.request; });
    if (found == running_.end()) {
      return absl::InternalError(absl::StrCat("found the end of collective %", done.instruction->name(),
                                              ", which is not running, expected its start earlier in the same list of "
                                              "operations"));
    }
    running_.erase(found);
    return absl::OkStatus();
  }

  // While a collective runs, no operation may read memory that the collective writes, or write memory that the
  // collective reads or writes.
  absl::Status CheckRunning(const LinearOp& op, int v, bool writes) const {
    for (const LinearOp* running : running_) {
      const auto touches = [&](const std::vector<int>& values) {
        return std::any_of(values.begin(), values.end(), [&](int other) { return Overlaps(v, other); });
      };
      if (!touches(running->outputs) && (!writes || !touches(running->inputs))) continue;
      return absl::InternalError(absl::StrCat("%", op.instruction->name(), " accesses ", Name(v),
                                              ", which the running collective %", running->instruction->name(),
                                              " uses, expected an access after its end"));
    }
    return absl::OkStatus();
  }

  absl::Status RunLoop(const LinearOp& loop, Memory* memory) {
    // Finds the greatest fixed point: the values that memory holds at the condition in every iteration. The search
    // starts at the fixed point of the last visit of this loop. That is correct because the contents before a loop only
    // shrink while an outer loop is iterated. A new search at each visit would take time exponential in the depth of
    // nested loops.
    const auto [known, is_first] = heads_.try_emplace(&loop, *memory);
    Memory head = is_first ? *memory : Meet(*memory, known->second);
    for (;;) {
      Memory exit = head;
      XLAD_RETURN_IF_ERROR(RunQuietly(loop.condition, &exit));
      Memory back = exit;
      XLAD_RETURN_IF_ERROR(RunQuietly(loop.bodies[0], &back));
      Memory meet = Meet(head, back);
      if (meet == head) break;
      head = std::move(meet);
    }
    heads_[&loop] = head;
    *memory = std::move(head);
    XLAD_RETURN_IF_ERROR(RunOps(loop.condition, memory));
    if (quiet_) return absl::OkStatus();
    XLAD_RETURN_IF_ERROR(Read(loop.predicate, *memory, &loop));
    Memory body = *memory;
    return RunOps(loop.bodies[0], &body);
  }

  absl::Status RunBranches(const LinearOp& op, Memory* memory) {
    Memory end;
    for (size_t b = 0; b < op.bodies.size(); ++b) {
      Memory branch = *memory;
      XLAD_RETURN_IF_ERROR(RunOps(op.bodies[b], &branch));
      end = b == 0 ? std::move(branch) : Meet(end, branch);
    }
    *memory = std::move(end);
    return absl::OkStatus();
  }

  // Updates the contents of memory without checking reads, which can be checked only after the fixed point is reached.
  absl::Status RunQuietly(const std::vector<LinearOp>& ops, Memory* memory) {
    const bool was_quiet = std::exchange(quiet_, true);
    absl::Status status = RunOps(ops, memory);
    quiet_ = was_quiet;
    return status;
  }

  // `reader` is the operation that reads the value, or null for the results at the end of the program.
  absl::Status Read(int v, const Memory& memory, const LinearOp* reader) const {
    if (quiet_ || slice(v).bytes() == 0) return absl::OkStatus();
    auto found = memory.find({slice(v).allocation(), slice(v).offset()});
    if (found != memory.end()) {
      const std::vector<int>& held = found->second.values;
      if (Contains(held, v)) return absl::OkStatus();
    }
    const std::string place =
        reader == nullptr ? "the end of the program" : absl::StrCat("%", reader->instruction->name());
    return absl::InternalError(absl::StrCat(place, " reads ", Name(v), ": found other contents in its memory, ",
                                            "expected this value"));
  }

  void Write(int v, Memory* memory) const {
    const BufferSlice& place = slice(v);
    if (place.bytes() == 0) return;
    const int64_t end = place.offset() + place.bytes();
    auto it = memory->lower_bound({place.allocation(), place.offset()});
    if (it != memory->begin()) {
      auto before = std::prev(it);
      if (before->first.first == place.allocation() && before->second.end > place.offset()) it = before;
    }
    while (it != memory->end() && it->first.first == place.allocation() && it->first.second < end) {
      it = memory->erase(it);
    }
    (*memory)[{place.allocation(), place.offset()}] = {end, {v}};
  }

  absl::Status CheckSharing(const LinearOp& op) const {
    for (int o = 0; o < std::ssize(op.outputs); ++o) {
      const int to = op.outputs[o];
      for (int i = 0; i < std::ssize(op.inputs); ++i) {
        const int from = op.inputs[i];
        if (!Overlaps(from, to)) continue;
        const bool allowed = Contains(op.may_share, std::make_pair(o, i));
        if (!allowed) return Shares(op, from, to, "disjoint memory, because may_share lacks the pair");
        if (!SamePlace(from, to)) return Shares(op, from, to, "disjoint memory or equal slices");
        for (int other = 0; other < i; ++other) {
          // The code reads the value through two pointers, and writes through one of them.
          if (op.inputs[other] == from && !IsSameOperand(op, other, i)) {
            return Shares(op, from, to, "disjoint memory, because another operand is the same value");
          }
        }
      }
      for (int other = 0; other < o; ++other) {
        const int before = op.outputs[other];
        if (Overlaps(before, to)) return Shares(op, before, to, "disjoint memory for two results");
      }
    }
    return absl::OkStatus();
  }

  absl::Status Shares(const LinearOp& op, int a, int b, const char* expected) const {
    return absl::InternalError(absl::StrCat("%", op.instruction->name(), ": found ", Name(a), " and ", Name(b),
                                            " in overlapping memory, expected ", expected));
  }
  bool Overlaps(int a, int b) const {
    const BufferSlice& x = slice(a);
    const BufferSlice& y = slice(b);
    return x.allocation() == y.allocation() && x.offset() < y.offset() + y.bytes() &&
           y.offset() < x.offset() + x.bytes();
  }
  bool SamePlace(int a, int b) const {
    return slice(a).offset() == slice(b).offset() && slice(a).bytes() == slice(b).bytes();
  }

  // The ranges that are in both memories, with the values that they hold in both.
  static Memory Meet(const Memory& a, const Memory& b) {
    Memory meet;
    for (const auto& [place, range] : a) {
      auto other = b.find(place);
      if (other == b.end() || other->second.end != range.end) continue;
      std::vector<int> both;
      for (int v : range.values) {
        const std::vector<int>& values = other->second.values;
        if (Contains(values, v)) both.push_back(v);
      }
      if (!both.empty()) meet[place] = {range.end, both};
    }
    return meet;
  }

  const LinearProgram& program_;
  const BufferAssignment& assignment_;
  bool quiet_ = false;                    // If true, reads are not checked.
  std::vector<const LinearOp*> running_;  // Collectives that were started and have not ended.
  size_t first_ = 0;                      // The first of `running_` that the current list of operations started.
  // The contents at the condition of each loop, from its last visit.
  absl::flat_hash_map<const LinearOp*, Memory> heads_;
};

}  // namespace

absl::Status CheckAssignment(const LinearProgram& program, const BufferAssignment& assignment) {
  return Annotate(Checker(program, assignment).Run(), "buffer assignment");
}

}  // namespace xlad::compiler
