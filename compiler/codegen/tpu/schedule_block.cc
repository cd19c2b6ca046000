#include "compiler/codegen/tpu/schedule_block.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/containers.h"
#include "base/status.h"
#include "compiler/codegen/tpu/llo_builder.h"

namespace xlad::compiler {
namespace {

using machine::InfoOf;
using machine::kVectorRegisters;
using machine::LloBundle;
using machine::LloInstruction;
using machine::LloOpInfo;
using machine::LloSlot;

constexpr int kSpillRegion = -2;

class Allocator {
 public:
  Allocator(int values, const std::vector<BlockInstruction>& block) : block_(block), uses_(values), places_(values) {
    for (size_t at = 0; at < block.size(); ++at) {
      const LloOpInfo& info = InfoOf(block[at].instruction.op);
      for (size_t s = 0; s < info.sources.size(); ++s) {
        if (info.sources[s] == 'v') uses_[block[at].instruction.sources[s]].push_back(at);
      }
    }
    holds_.assign(kVectorRegisters, -1);
  }

  std::vector<BlockInstruction> Run() {
    for (at_ = 0; at_ < block_.size(); ++at_) {
      BlockInstruction next = block_[at_];
      const LloOpInfo& info = InfoOf(next.instruction.op);
      pinned_.clear();
      for (size_t s = 0; s < info.sources.size(); ++s) {
        if (info.sources[s] == 'v') next.instruction.sources[s] = Resident(next.instruction.sources[s]);
      }
      // The result may use the register of a source that is not used later.
      FreeDead();
      if (info.dst == 'v') {
        const int value = next.instruction.dst;
        next.instruction.dst = Take(value);
        if (uses_[value].empty()) holds_[next.instruction.dst] = -1;
      }
      out_.push_back(next);
    }
    return std::move(out_);
  }

  int64_t spilled() const { return spilled_; }

 private:
  struct Place {
    int vector = -1;     // The register of the value, or -1.
    int64_t spill = -1;  // The spilled tile of the value, or -1. A value that was reloaded has both.
  };

  // The next use of a value at or after the current instruction.
  size_t NextUse(int value) const {
    const auto next = std::lower_bound(uses_[value].begin(), uses_[value].end(), at_);
    return next == uses_[value].end() ? std::numeric_limits<size_t>::max() : *next;
  }

  void FreeDead() {
    for (int& value : holds_) {
      if (value < 0 || uses_[value].back() > at_) continue;
      places_[value].vector = -1;
      value = -1;
    }
  }

  int Resident(int value) {
    Place& place = places_[value];
    if (place.vector < 0) {
      XLAD_CHECK(place.spill >= 0) << "a value is used before it is written";
      const int64_t spill = place.spill;
      const int vector = Take(value);
      LloInstruction load{LloOp::kVLoad, vector, {LloBuilder::zero()}, kSpillBase + spill};
      out_.push_back({load, kSpillRegion});
    }
    pinned_.push_back(places_[value].vector);
    return places_[value].vector;
  }

  // Returns a register for the value. Free registers are used in rotation, so that neighboring values do not have to
  // wait for each other.
  int Take(int value) {
    int found = -1;
    for (int i = 0; i < kVectorRegisters && found < 0; ++i) {
      const int candidate = (turn_ + i) % kVectorRegisters;
      if (holds_[candidate] < 0) found = candidate;
    }
    if (found < 0) found = Evict();
    turn_ = (found + 1) % kVectorRegisters;
    holds_[found] = value;
    places_[value].vector = found;
    return found;
  }

  int Evict() {
    int victim = -1;
    for (int r = 0; r < kVectorRegisters; ++r) {
      if (Contains(pinned_, r)) continue;
      if (victim < 0 || NextUse(holds_[r]) > NextUse(holds_[victim])) victim = r;
    }
    Place& place = places_[holds_[victim]];
    if (place.spill < 0) {
      place.spill = spilled_++;
      LloInstruction store{LloOp::kVStore, 0, {LloBuilder::zero(), victim}, kSpillBase + place.spill};
      out_.push_back({store, kSpillRegion});
    }
    place.vector = -1;
    return victim;
  }

  const std::vector<BlockInstruction>& block_;
  std::vector<std::vector<size_t>> uses_;  // For each value, the instructions that read it.
  std::vector<Place> places_;
  std::vector<int> holds_;  // For each register, its value, or -1.
  std::vector<int> pinned_;
  std::vector<BlockInstruction> out_;
  size_t at_ = 0;
  int turn_ = 0;
  int64_t spilled_ = 0;
};

class Scheduler {
 public:
  explicit Scheduler(int vector_alus) : vector_alus_(vector_alus) {}

  void Add(const BlockInstruction& next) {
    const LloOpInfo& info = InfoOf(next.instruction.op);
    int at = Earliest(next, info);
    while (!HasRoom(at, info.slot)) ++at;
    bundles_[at].push_back(next.instruction);
    ++used_[{at, info.slot}];
    Note(next, info, at);
  }
  // Returns the bundles, except for empty ones, which are not needed because a bundle waits for its sources anyway.
  std::vector<LloBundle> Take() {
    std::erase_if(bundles_, [](const LloBundle& bundle) { return bundle.empty(); });
    return std::move(bundles_);
  }

 private:
  struct Register {
    int ready = 0;     // The first bundle that can read the last written value.
    int written = -1;  // The bundle of the last write, or -1.
    int read = -1;     // The bundle of the last read, or -1.
    int version = 0;
  };
  struct Access {
    int region, base, version, bundle;
    int64_t offset;
    bool is_store;
  };

  Register& RegisterOf(char kind, int number) { return registers_[{kind, number}]; }

  bool HasRoom(int at, LloSlot slot) {
    if (at >= std::ssize(bundles_)) bundles_.resize(at + 1);
    const auto found = used_.find({at, slot});
    return found == used_.end() || found->second < machine::SlotsOf(slot, vector_alus_);
  }

  Access AccessOf(const BlockInstruction& next, int bundle) {
    const int base = next.instruction.sources[0];
    return {next.region,
            base,
            RegisterOf('s', base).version,
            bundle,
            next.instruction.imm,
            next.instruction.op == LloOp::kVStore};
  }
  static bool MayOverlap(const Access& a, const Access& b) {
    if (a.region != b.region && a.region != -1 && b.region != -1) return false;
    return a.base != b.base || a.version != b.version || a.offset == b.offset;
  }

  // The order of pushes and pops of matrix and transpose units must not change.
  static int UnitOf(const LloInstruction& i) {
    switch (i.op) {
      case LloOp::kMLoad:
      case LloOp::kMSwap:
      case LloOp::kMPush:
      case LloOp::kMPop:
        return static_cast<int>(i.imm);
      case LloOp::kXPush:
      case LloOp::kXPop:
        return 64;
      default:
        return -1;
    }
  }

  int Earliest(const BlockInstruction& next, const LloOpInfo& info) {
    int at = 0;
    for (size_t s = 0; s < info.sources.size(); ++s) {
      at = std::max(at, RegisterOf(info.sources[s], next.instruction.sources[s]).ready);
    }
    if (info.dst != '-') {
      const Register& dst = RegisterOf(info.dst, next.instruction.dst);
      at = std::max({at, dst.read, dst.written + 1});
    }
    if (const int unit = UnitOf(next.instruction); unit >= 0 && units_.contains(unit)) {
      at = std::max(at, units_[unit] + 1);
    }
    if (info.slot == LloSlot::kMisc) return std::max({at, last_misc_ + 1, last_access_});
    if (info.slot != LloSlot::kLoad && info.slot != LloSlot::kStore) return at;
    at = std::max(at, last_misc_ + 1);
    const Access access = AccessOf(next, 0);
    for (const Access& other : accesses_) {
      if ((!access.is_store && !other.is_store) || !MayOverlap(access, other)) continue;
      at = std::max(at, other.bundle + (other.is_store ? 1 : 0));
    }
    return at;
  }

  void Note(const BlockInstruction& next, const LloOpInfo& info, int at) {
    for (size_t s = 0; s < info.sources.size(); ++s) {
      Register& source = RegisterOf(info.sources[s], next.instruction.sources[s]);
      source.read = std::max(source.read, at);
    }
    if (info.slot == LloSlot::kLoad || info.slot == LloSlot::kStore) {
      accesses_.push_back(AccessOf(next, at));
      last_access_ = std::max(last_access_, at);
    }
    if (info.slot == LloSlot::kMisc) last_misc_ = at;
    if (const int unit = UnitOf(next.instruction); unit >= 0) units_[unit] = at;
    if (info.dst == '-') return;
    Register& dst = RegisterOf(info.dst, next.instruction.dst);
    dst.written = at;
    dst.ready = at + info.latency;
    ++dst.version;
  }

  const int vector_alus_;
  std::vector<LloBundle> bundles_;
  std::map<std::pair<int, LloSlot>, int> used_;
  std::map<std::pair<char, int>, Register> registers_;
  std::map<int, int> units_;
  std::vector<Access> accesses_;
  int last_misc_ = -1, last_access_ = 0;
};

}  // namespace

int64_t AllocateRegisters(int values, std::vector<BlockInstruction>* block) {
  Allocator allocator(values, *block);
  std::vector<BlockInstruction> out = allocator.Run();
  const int64_t spilled = allocator.spilled();
  *block = std::move(out);
  return spilled;
}

std::vector<LloBundle> ScheduleBlock(const std::vector<BlockInstruction>& block, int vector_alus) {
  Scheduler scheduler(vector_alus);
  for (const BlockInstruction& next : block) scheduler.Add(next);
  return scheduler.Take();
}

}  // namespace xlad::compiler
