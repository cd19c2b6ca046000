#include "collectives/exec/group/plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

// In one round ("one shot"), every rank reads all data of the other ranks. In two rounds it reads less: its own part of
// their data, and then the results of the other parts. If there are more ranks than cores, each round switches
// processes on every core. One shot is then faster up to a larger size.
constexpr int64_t kOneShotBytesWithOwnCore = 16 << 10;
constexpr int64_t kOneShotBytesWithSharedCore = 32 << 10;
// For an AllGather, slots read as many bytes as one shot. If each rank has a core of its own, one shot is therefore
// faster only for small sizes.
constexpr int64_t kOneShotBytesOfAllGather = 2 << 10;
// In a broadcast by slots, the others copy one chunk while the root fills the slot of the next one. In one shot, they
// begin only when the root has copied everything. This was measured with two ranks. With more ranks, each chunk costs
// the root more signals, so they keep the other limits.
constexpr int64_t kOneShotBytesOfBroadcast = 4 << 10;
constexpr int64_t kLeastChunksOfBroadcast = 4;
// Below this size, an operation on registered buffers is slower than one shot: it has two rounds, whereas one shot has
// one round and copies.
constexpr int64_t kWindowBytes = 16 << 10;
// The number of bytes that a rank copies into a slot per round. Copying them takes much longer than waiting for the
// other ranks, and they fit into the second-level cache.
constexpr int64_t kSlotBytesWithOwnCore = 128 << 10;
constexpr int64_t kSlotBytesWithSharedCore = 512 << 10;

bool UsesShortChunks(const CollectiveSpec& spec, const GroupMachine& machine) {
  return machine.exclusive && spec.kind == CollectiveKind::kBroadcast && spec.ranks == 2;
}

// The size of the largest input for which one shot is chosen, if it fits into the scratch.
int64_t OneShotBytes(const CollectiveSpec& spec, bool registered, const GroupMachine& machine) {
  int64_t bytes = machine.exclusive ? kOneShotBytesWithOwnCore : kOneShotBytesWithSharedCore;
  if (machine.exclusive && spec.kind == CollectiveKind::kAllGather) bytes = kOneShotBytesOfAllGather;
  if (UsesShortChunks(spec, machine)) bytes = kOneShotBytesOfBroadcast;
  return registered ? std::min(bytes, kWindowBytes - 1) : bytes;
}

// If ranks share cores and their buffers take up half of the last-level cache or more, the cache is about this many
// times as large as the slots of all ranks, unless a slot would be smaller than kSlotBytesWithOwnCore. With 8 ranks on
// 2 cores and a cache of 32 MiB, an AllToAll of 1 MiB is fastest with 6 chunks (among 2, 4, 6, 8 and 16), and with 4
// ranks with 3 or 6.
constexpr int64_t kCacheBytesPerSlotByte = 6;
// A rank has two slots for each of two operations, which alternate between the halves of the scratch.
constexpr int64_t kSlotsOfRank = 4;

// The number of ranks that copy data into slots.
int64_t RanksWithSlots(const CollectiveSpec& spec) {
  return spec.kind == CollectiveKind::kBroadcast || spec.kind == CollectiveKind::kScatter ? 1 : spec.ranks;
}

int64_t ElementsOfAllRanks(const CollectiveSpec& spec, bool in_place) {
  int64_t elements = 0;
  for (int rank = 0; rank < spec.ranks; ++rank) {
    const int64_t in = spec.input_elements(rank), out = spec.output_elements(rank);
    elements += in_place ? std::max(in, out) : in + out;
  }
  return elements;
}

// The number of bytes that a rank copies into a slot per round, if the scratch has room for them.
int64_t SlotBytes(const CollectiveSpec& spec, const GroupMachine& machine) {
  if (machine.exclusive) return kSlotBytesWithOwnCore;
  // Smaller slots cost more rounds. They were slower for buffers that leave room in the cache.
  const int64_t buffers = ElementsOfAllRanks(spec, /*in_place=*/false) * tensor::ByteWidth(spec.type);
  if (machine.cache_bytes == 0 || buffers < machine.cache_bytes / 2) return kSlotBytesWithSharedCore;
  return std::clamp(machine.cache_bytes / kCacheBytesPerSlotByte / (kSlotsOfRank * RanksWithSlots(spec)),
                    kSlotBytesWithOwnCore, kSlotBytesWithSharedCore);
}

// The smallest number of chunks. If each rank has a core of its own, the root of a reduce can read one slot while the
// other ranks fill the other one.
int64_t LeastChunks(const CollectiveSpec& spec, const GroupMachine& machine) {
  if (UsesShortChunks(spec, machine)) return kLeastChunksOfBroadcast;
  return machine.exclusive && spec.kind == CollectiveKind::kReduce ? 2 : 1;
}

}  // namespace

GroupChoice ChooseGroupPlan(const CollectiveSpec& spec, bool registered, const GroupMachine& machine) {
  const auto by_size = [](CollectivePlan plan, absl::string_view rule) {
    return GroupChoice{std::move(plan), absl::StrCat("chosen by size, not by predicted time: ", rule)};
  };
  const int64_t width = tensor::ByteWidth(spec.type);
  const int64_t bytes = LargestInput(spec) * width;
  const CollectivePlan windows = {.algorithm = std::string(kMappedWindows)};
  if (spec.ranks == 1) return {windows, "chosen because there is one rank"};
  const std::string windows_rule =
      absl::StrCat("windows for registered buffers from ", kWindowBytes, " bytes of input");
  if (registered && bytes >= kWindowBytes) return by_size(windows, windows_rule);
  const int64_t wanted_one_shot = OneShotBytes(spec, registered, machine);
  const int64_t one_shot = std::min(wanted_one_shot, machine.scratch_bytes);
  const std::string limit =
      absl::StrCat(one_shot, " bytes of input", one_shot < wanted_one_shot ? " (the size of the scratch)" : "");
  if (bytes <= one_shot) {
    return by_size({.algorithm = std::string(kMappedOneShot)}, absl::StrCat("one shot up to ", limit));
  }
  CollectivePlan slots = {.algorithm = std::string(kMappedSlots)};
  int64_t chunks = std::max(LeastChunks(spec, machine), bytes / SlotBytes(spec, machine));
  while (MappedSlotsScratch(spec, chunks) * width > machine.scratch_bytes) chunks = chunks + chunks / 8 + 1;
  slots.chunks = static_cast<int>(chunks);
  return by_size(std::move(slots),
                 absl::StrCat("slots for more than ", limit, registered ? "; " : "", registered ? windows_rule : ""));
}

std::vector<CollectivePlan> GroupPlans(const CollectiveSpec& spec, bool registered, const GroupMachine& machine) {
  constexpr int kMaxChunks = 256;
  constexpr int64_t kMinChunkBytes = 4 << 10;
  std::vector<CollectivePlan> plans = {ChooseGroupPlan(spec, registered, machine).plan};
  const auto add = [&](CollectivePlan plan) {
    if (!Contains(plans, plan)) plans.push_back(std::move(plan));
  };
  const int64_t width = tensor::ByteWidth(spec.type);
  const int64_t bytes = LargestInput(spec) * width;
  if (registered) add({.algorithm = std::string(kMappedWindows)});
  if (bytes <= machine.scratch_bytes) add({.algorithm = std::string(kMappedOneShot)});
  for (int chunks = 1; chunks <= kMaxChunks && (chunks == 1 || bytes / chunks >= kMinChunkBytes); chunks *= 2) {
    if (MappedSlotsScratch(spec, chunks) * width > machine.scratch_bytes) continue;
    add({.algorithm = std::string(kMappedSlots), .chunks = chunks});
  }
  return plans;
}

GroupProtocol ProtocolOf(const CollectivePlan& plan, const CollectiveSpec& spec) {
  // A single rank has no peers that could access its buffers.
  if (spec.ranks > 1 && (plan.algorithm == kMappedWindows || plan.protocol == "windows"))
    return GroupProtocol::kWindows;
  return plan.algorithm == kMappedOneShot ? GroupProtocol::kBoard : GroupProtocol::kSlots;
}

bool FitsIntoCache(const CollectiveSpec& spec, bool in_place, int64_t cache_bytes) {
  return ElementsOfAllRanks(spec, in_place) <= cache_bytes / 4 * 3 / tensor::ByteWidth(spec.type);
}

bool FitsIntoCacheWithSlots(const CollectiveSpec& spec, int64_t chunks, const GroupMachine& machine) {
  if (machine.exclusive) return FitsIntoCache(spec, /*in_place=*/false, machine.cache_bytes);
  // The scratch of an operation is half of that of a rank.
  const int64_t slots = kSlotsOfRank / 2 * RanksWithSlots(spec) * MappedSlotsScratch(spec, chunks);
  return ElementsOfAllRanks(spec, /*in_place=*/false) + slots <= machine.cache_bytes / 2 / tensor::ByteWidth(spec.type);
}

}  // namespace xlad::collectives
