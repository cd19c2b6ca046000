#include "collectives/exec/group/plans.h"

#include <algorithm>

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

// The smallest number of chunks. If each rank has a core of its own, the root of a reduce can read one slot while the
// other ranks fill the other one.
int64_t LeastChunks(const CollectiveSpec& spec, const GroupMachine& machine) {
  if (UsesShortChunks(spec, machine)) return kLeastChunksOfBroadcast;
  return machine.exclusive && spec.kind == CollectiveKind::kReduce ? 2 : 1;
}

}  // namespace

CollectivePlan ChooseGroupPlan(const CollectiveSpec& spec, bool registered, const GroupMachine& machine) {
  CollectivePlan plan;
  const int64_t width = tensor::ByteWidth(spec.type);
  const int64_t bytes = LargestInput(spec) * width;
  int64_t one_shot = machine.exclusive ? kOneShotBytesWithOwnCore : kOneShotBytesWithSharedCore;
  if (machine.exclusive && spec.kind == CollectiveKind::kAllGather) one_shot = kOneShotBytesOfAllGather;
  if (UsesShortChunks(spec, machine)) one_shot = kOneShotBytesOfBroadcast;
  if (spec.ranks == 1 || (registered && bytes >= kWindowBytes)) {
    plan.algorithm = kMappedWindows;
    return plan;
  }
  if (bytes <= std::min(one_shot, machine.scratch_bytes)) {
    plan.algorithm = kMappedOneShot;
    return plan;
  }
  plan.algorithm = kMappedSlots;
  const int64_t wanted = machine.exclusive ? kSlotBytesWithOwnCore : kSlotBytesWithSharedCore;
  int64_t chunks = std::max(LeastChunks(spec, machine), bytes / wanted);
  while (MappedSlotsScratch(spec, chunks) * width > machine.scratch_bytes) chunks = chunks + chunks / 8 + 1;
  plan.chunks = static_cast<int>(chunks);
  return plan;
}

std::vector<CollectivePlan> GroupPlans(const CollectiveSpec& spec, bool registered, const GroupMachine& machine) {
  constexpr int kMaxChunks = 256;
  constexpr int64_t kMinChunkBytes = 4 << 10;
  std::vector<CollectivePlan> plans = {ChooseGroupPlan(spec, registered, machine)};
  const auto add = [&](CollectivePlan plan) {
    if (std::find(plans.begin(), plans.end(), plan) == plans.end()) plans.push_back(std::move(plan));
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

int64_t MaxCachedBytes(const GroupMachine& machine) { return machine.cache_bytes / 4 * 3 / machine.ranks; }

}  // namespace xlad::collectives
