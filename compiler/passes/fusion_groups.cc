#include "compiler/passes/fusion_groups.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_join.h"
#include "base/sort_distinct.h"
#include "base/work.h"
#include "compiler/analysis/clone.h"
#include "compiler/analysis/op_cost.h"
#include "compiler/passes/fusion_limits.h"
#include "compiler/passes/kernel_limits.h"
#include "hlo/analysis/leaves.h"

namespace xlad::compiler {
namespace {

constexpr size_t kMaxMapsOfMember = 4;  // The maximum number of index maps of a member that is not expensive.
constexpr int kMaxRecomputed = 6;       // The maximum of FusionGroup::recomputed.
// Recomputing up to this many cheap instructions is cheaper than loading one element.
constexpr int kRecomputeBudget = 12;
// An array is small compared with another one of at least this many times its size.
constexpr int64_t kSmallShare = 8;
constexpr int kMaxCopied = 4;  // The maximum of FusionGroup::copied.

// Returns a key for the index map of an operand whose user is computed under `map`. Equal keys mean equal maps.
std::string MapKey(const Instruction& user, int64_t operand, int map) {
  std::string key = absl::StrCat(map, "|");
  switch (user.opcode()) {
    case Opcode::kBroadcast:
    case Opcode::kTranspose:
    case Opcode::kReverse:
    case Opcode::kReduce:
      absl::StrAppend(&key, hlo::ToString(user.opcode()), absl::StrJoin(user.dimensions(), ","), "|",
                      absl::StrJoin(user.shape().dims(), ","), "|",
                      absl::StrJoin(user.operand(0)->shape().dims(), ","));
      return key;
    case Opcode::kSlice:
      absl::StrAppend(&key, "slice", absl::StrJoin(user.operand(0)->shape().dims(), ","));
      for (const hlo::SliceDimension& d : user.attributes().slice) {
        absl::StrAppend(&key, ";", d.start, ":", d.limit, ":", d.stride);
      }
      return key;
    default:
      absl::StrAppend(&key, user.name(), "#", operand);
      return key;
  }
}

// Whether at most `budget` cheap instructions compute the value from positions and scalars. If so, recomputing the
// value is cheaper than loading it.
bool ReadsNoMemory(const Instruction& instruction, int* budget) {
  if (instruction.shape().is_scalar() || instruction.opcode() == Opcode::kIota) return true;
  const OpCost cost = CostOf(instruction);
  if (--*budget < 0 || (cost != OpCost::kFree && cost != OpCost::kCheap)) return false;
  for (const Instruction* operand : instruction.operands()) {
    if (!ReadsNoMemory(*operand, budget)) return false;
  }
  return instruction.operand_count() > 0;
}

// The bytes of memory that a group reads if it uses this value.
int64_t BytesRead(const Instruction& value) {
  int budget = kRecomputeBudget;
  if (ReadsNoMemory(value, &budget)) return 0;
  const bool repeats = value.opcode() == Opcode::kBroadcast || value.opcode() == Opcode::kReshape;
  return repeats ? BytesRead(*value.operand(0)) : value.shape().bytes();
}

// Returns some users of the instruction, including all that are members of the group. A constant may have thousands of
// users and be copied into thousands of groups. Therefore, if the group has fewer members than the instruction has
// users, the members are searched instead of the users.
std::vector<const Instruction*> UsersIn(const Instruction& instruction, const FusionGroup& group) {
  CountWork(std::min(std::ssize(instruction.users()), std::ssize(group.maps)));
  if (instruction.users().size() <= group.maps.size()) return {instruction.users().begin(), instruction.users().end()};
  std::vector<const Instruction*> users;
  for (const auto& [member, maps] : group.maps) {
    if (absl::c_linear_search(member->operands(), &instruction)) users.push_back(member);
  }
  return users;
}

// The number of inputs that the group would have at most if the instruction became a member.
int64_t InputsWith(const Instruction& instruction, const FusionGroup& group) {
  const int64_t others = std::ssize(group.inputs) - (group.inputs.contains(&instruction) ? 1 : 0);
  return others + absl::c_count_if(instruction.operands(),
                                   [&](const Instruction* operand) { return !group.inputs.contains(operand); });
}

bool IsFreeToRecompute(const Instruction& instruction) {
  const OpCost cost = CostOf(instruction);
  int budget = kRecomputeBudget;
  return cost == OpCost::kFree ||
         (cost == OpCost::kCheap && !instruction.shape().is_scalar() && ReadsNoMemory(instruction, &budget));
}

// Its users are get-tuple-elements, which are not fused, so it is always the root of a group.
bool IsTupleReduction(const Instruction& instruction) {
  return instruction.opcode() == Opcode::kReduce && instruction.shape().is_tuple();
}

}  // namespace

FusionPlanner::FusionPlanner(const Computation& computation) : computation_(computation) {
  std::vector<Instruction*> all = Snapshot(computation);
  for (const Instruction* instruction : all) number_.emplace(instruction, std::ssize(number_));
  users_.resize(all.size());
  groups_of_.resize(all.size());
  instruction_marks_.resize(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    for (const Instruction* user : all[i]->users()) users_[i].push_back(number_.at(user));
  }
  for (auto it = all.rbegin(); it != all.rend(); ++it) Place(*it);
}

FusionPlanner::Consumers FusionPlanner::ConsumersOf(const Instruction& instruction) const {
  Consumers consumers;
  consumers.unfused = computation_.root() == &instruction;
  for (const Instruction* user : instruction.users()) {
    const std::vector<int>& groups = GroupsOf(*user);
    if (groups.empty()) consumers.unfused = true;
    consumers.groups.insert(consumers.groups.end(), groups.begin(), groups.end());
  }
  SortDistinct(&consumers.groups);
  return consumers;
}

void FusionPlanner::Place(Instruction* instruction) {
  const OpCost cost = CostOf(*instruction);
  if (IsTupleReduction(*instruction)) return StartGroup(instruction);
  if (cost == OpCost::kNotFusible) return;
  Consumers consumers = ConsumersOf(*instruction);
  if (IsFreeToRecompute(*instruction)) {
    Replicate(instruction, consumers);
    return;
  }
  if (!consumers.unfused && consumers.groups.size() == 1 && Join(instruction, consumers.groups[0], false)) return;
  if (cost == OpCost::kCheap && !consumers.unfused && IsCheaperToRecompute(*instruction, consumers)) {
    Replicate(instruction, consumers);
    return;
  }
  if (JoinAsRoot(instruction, consumers)) return;
  StartGroup(instruction);
}

void FusionPlanner::Replicate(Instruction* instruction, const Consumers& consumers) {
  bool everywhere = !consumers.unfused;
  for (int group : consumers.groups) everywhere = Join(instruction, group, false) && everywhere;
  // A scalar constant outside a fusion is read from its buffer.
  if (!everywhere && instruction->opcode() != Opcode::kConstant) StartGroup(instruction);
}

// Storing the value costs a write, and a read in every group. Recomputing it costs reads of the operands that a group
// does not read anyway. Recomputing is cheaper if these operands are not larger than the value. Operands that are
// broadcasts of small arrays, such as the means of a normalization, need not count. But chains of operations with such
// operands can be long, and each group would compute the whole chain, so a group contains only a few of them.
bool FusionPlanner::IsCheaperToRecompute(const Instruction& instruction, const Consumers& consumers) {
  if (!hlo::IsElementwise(instruction.opcode())) return false;
  const int64_t bytes = instruction.shape().bytes();
  std::vector<int> lengthened;  // The groups in which the value is cheaper only because small arrays do not count.
  for (int group : consumers.groups) {
    int64_t whole = 0, read = 0;
    absl::flat_hash_set<const Instruction*> counted;
    for (const Instruction* operand : instruction.operands()) {
      int budget = kRecomputeBudget;
      if (ReadsNoMemory(*operand, &budget) || !counted.insert(operand).second) continue;
      const auto& maps = groups_[group].maps;
      const bool read_anyway = std::any_of(operand->users().begin(), operand->users().end(),
                                           [&](const Instruction* user) { return maps.contains(user); });
      if (read_anyway) continue;
      whole += operand->shape().bytes();
      read += BytesRead(*operand);
    }
    if (whole <= bytes) continue;
    if (read > bytes + bytes / kSmallShare || groups_[group].copied >= kMaxCopied) return false;
    lengthened.push_back(group);
  }
  for (int group : lengthened) ++groups_[group].copied;
  return true;
}

bool FusionPlanner::JoinAsRoot(Instruction* instruction, const Consumers& consumers) {
  for (int group : consumers.groups) {
    FusionGroup& candidate = groups_[group];
    if (std::ssize(candidate.roots) >= kMaxFusionResults) continue;
    if (candidate.elements != instruction->shape().elements()) continue;
    if (WouldCycle(*instruction, group)) continue;
    if (Join(instruction, group, true)) return true;
  }
  return false;
}

void FusionPlanner::StartGroup(Instruction* instruction) {
  FusionGroup group;
  group.elements = hlo::ElementsOfLargestLeaf(instruction->shape());
  group.evaluations = {group.elements, 1};
  group.roots = {instruction};
  group.maps[instruction] = {FusionGroup::kIdentity};
  group.inputs.insert(instruction->operands().begin(), instruction->operands().end());
  groups_of_[number_.at(instruction)].push_back(std::ssize(groups_));
  groups_.push_back(std::move(group));
  group_marks_.push_back(0);
}

bool FusionPlanner::Join(Instruction* instruction, int group, bool as_root) {
  FusionGroup& joined = groups_[group];
  if (std::ssize(joined.maps) >= kMaxFusedInstructions) return false;
  if (InputsWith(*instruction, joined) > std::max(kMaxKernelOperands, std::ssize(joined.inputs))) return false;
  std::vector<int> maps = MapsIn(*instruction, &joined);
  if (as_root && maps != std::vector<int>{FusionGroup::kIdentity}) return false;
  if (!IsAllowed(*instruction, maps, joined)) return false;
  const bool is_computed = CostOf(*instruction) != OpCost::kFree;
  for (int map : maps) {
    if (is_computed && joined.evaluations[map] > instruction->shape().elements()) ++joined.recomputed;
  }
  joined.maps[instruction] = std::move(maps);
  joined.inputs.erase(instruction);
  joined.inputs.insert(instruction->operands().begin(), instruction->operands().end());
  groups_of_[number_.at(instruction)].push_back(group);
  if (as_root) {
    joined.roots.push_back(instruction);
  }
  return true;
}

std::vector<int> FusionPlanner::MapsIn(const Instruction& instruction, FusionGroup* group) const {
  std::vector<int> maps;
  for (const Instruction* user : UsersIn(instruction, *group)) {
    auto found = group->maps.find(user);
    if (found == group->maps.end()) continue;
    const std::vector<int> outer = found->second;
    for (int64_t k = 0; k < user->operand_count(); ++k) {
      if (user->operand(k) != &instruction) continue;
      for (int map : outer) maps.push_back(OperandMap(*user, k, map, group));
    }
  }
  SortDistinct(&maps);
  return maps;
}

int FusionPlanner::OperandMap(const Instruction& user, int64_t operand, int map, FusionGroup* group) const {
  const Shape& shape = user.operand(operand)->shape();
  const bool keeps_index = hlo::IsElementwise(user.opcode()) || user.opcode() == Opcode::kReshape;
  if (keeps_index && shape.elements() == user.shape().elements()) return map;
  if (shape.is_scalar()) return FusionGroup::kScalar;
  auto [entry, fresh] = group->map_ids.emplace(MapKey(user, operand, map), group->evaluations.size());
  if (fresh) {
    int64_t evaluations = group->evaluations[map];
    if (user.opcode() == Opcode::kReduce) {
      const int64_t outputs = std::max<int64_t>(hlo::ElementsOfLargestLeaf(user.shape()), 1);
      evaluations = evaluations / outputs * user.operand(0)->shape().elements();
    }
    group->evaluations.push_back(evaluations);
  }
  return entry->second;
}

bool FusionPlanner::IsAllowed(const Instruction& instruction, const std::vector<int>& maps,
                              const FusionGroup& group) const {
  const OpCost cost = CostOf(instruction);
  if (cost == OpCost::kFree) return maps.size() <= kMaxMapsOfMember;
  // A reduction is an inner loop, which must run at most once for each position.
  if (instruction.opcode() == Opcode::kReduce) {
    return maps == std::vector<int>{FusionGroup::kIdentity} && group.elements == instruction.shape().elements();
  }
  // Reading columns is slow, so a large transpose that moves rows is a kernel by itself.
  if (instruction.opcode() == Opcode::kTranspose && instruction.shape().elements() > 4096) return false;
  if (maps.size() > (cost == OpCost::kExpensive ? 1 : kMaxMapsOfMember)) return false;
  const int64_t elements = instruction.shape().elements();
  if (elements == 1) return true;  // Code generation hoists this value out of the loop.
  int recomputed = group.recomputed;
  for (int map : maps) {
    if (group.evaluations[map] <= elements) continue;
    if (cost == OpCost::kExpensive) return false;
    ++recomputed;
  }
  return recomputed <= kMaxRecomputed;
}

bool FusionPlanner::WouldCycle(const Instruction& instruction, int group) const {
  ++mark_;
  group_marks_[group] = mark_;
  std::vector<int> pending;
  const auto visit_users = [&](int from) {
    for (const int user : users_[from]) {
      if (std::exchange(instruction_marks_[user], mark_) != mark_) pending.push_back(user);
    }
  };
  const auto visit_group = [&](int id) {
    if (std::exchange(group_marks_[id], mark_) == mark_) return;
    for (const Instruction* root : groups_[id].roots) visit_users(number_.at(root));
  };
  // Depth-first search from the readers outside the group. All roots of a group depend on all of its operands.
  for (const int user : users_[number_.at(&instruction)]) {
    if (groups_of_[user].empty()) {
      if (std::exchange(instruction_marks_[user], mark_) != mark_) pending.push_back(user);
    }
    for (const int id : groups_of_[user]) visit_group(id);
  }
  for (int visits = 0; !pending.empty(); ++visits) {
    if (visits > kMaxPathVisits) return true;
    const int at = pending.back();
    pending.pop_back();
    if (groups_of_[at].empty()) visit_users(at);
    for (const int id : groups_of_[at]) {
      if (id == group) return true;
      visit_group(id);
    }
  }
  return false;
}

}  // namespace xlad::compiler
