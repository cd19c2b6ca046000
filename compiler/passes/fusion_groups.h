// Decides which instructions of a computation are fused.
//
// The planner visits instructions from results to parameters (users before operands). An instruction is copied into
// every group that uses it if recomputing it is cheaper than storing and loading it. Otherwise, it joins the group of
// its users if all of them are in one group. If it has users outside of that group, it becomes another root (result) of
// a group, provided that this makes no cycle between groups. This group must have the same number of elements and read
// the instruction element by element. Any other instruction starts a new group, and so does a reduction of tuples,
// which is the only root of its group. For example:
//
//   s = f32[8,4] logistic(x)              // joins the group of `y` as a second root, because `d` reads it from memory
//   y = f32[8,4] multiply(x, s)           // starts a group
//   d = f32[8,4] dot(s, w)                // is not fused
//
// This is producer-consumer and sibling (multi-output) fusion in one backward pass; the terms are those of XLA.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// Instructions that one loop computes. Each position of the loop is the linear index of one element of every root. A
// member is computed under one or more *index maps*: from the position to the linear index of the member's element. Map
// 0 is the identity, map 1 is "element 0 of a scalar"; others are numbered as they are found.
struct FusionGroup {
  static constexpr int kIdentity = 0, kScalar = 1;

  std::vector<Instruction*> roots;  // The results, last in program order first.
  // The members, each with the index maps under which it is computed.
  absl::flat_hash_map<const Instruction*, std::vector<int>> maps;
  // The operands of members that are not members themselves. Some of them may become members later.
  absl::flat_hash_set<const Instruction*> inputs;
  // For each map, the number of times that a member under this map is computed in one execution of the loop.
  std::vector<int64_t> evaluations;
  absl::flat_hash_map<std::string, int> map_ids;  // The number of the map for each MapKey.
  // The number of positions of the loop, which is the number of elements of each root, or of each leaf of a tuple.
  int64_t elements = 0;
  // The number of pairs (member, map) in which the member is not free and is computed more often than it has elements.
  int recomputed = 0;
  // The number of members that other groups compute too, and whose operands are an array of their own size and
  // broadcasts of small arrays.
  int copied = 0;
};

class FusionPlanner {
 public:
  explicit FusionPlanner(const Computation& computation);
  // Includes groups of one instruction, which do not become fusions.
  const std::vector<FusionGroup>& groups() const { return groups_; }

 private:
  // The users of a value.
  struct Consumers {
    std::vector<int> groups;  // Sorted, distinct.
    // The value must be in memory, because it is the result or an instruction outside of all groups uses it.
    bool unfused = false;
  };
  void Place(Instruction* instruction);
  // Copies the instruction into every consumer's group, and stores it only if it must be in memory.
  void Replicate(Instruction* instruction, const Consumers& consumers);
  Consumers ConsumersOf(const Instruction& instruction) const;
  // If the result is true, the caller must copy the instruction into every consumer's group.
  bool IsCheaperToRecompute(const Instruction& instruction, const Consumers& consumers);
  bool JoinAsRoot(Instruction* instruction, const Consumers& consumers);
  void StartGroup(Instruction* instruction);
  // Adds the instruction to a group whose members use it. Returns false and leaves the members unchanged if the group
  // could then not be emitted, would have too many operands, or would recompute too much.
  bool Join(Instruction* instruction, int group, bool as_root);
  std::vector<int> MapsIn(const Instruction& instruction, FusionGroup* group) const;
  int OperandMap(const Instruction& user, int64_t operand, int map, FusionGroup* group) const;
  bool IsAllowed(const Instruction& instruction, const std::vector<int>& maps, const FusionGroup& group) const;
  // Whether making `instruction` a root of `group` makes a cycle, because the group depends on a reader of
  // `instruction` that is outside of the group.
  bool WouldCycle(const Instruction& instruction, int group) const;

  // The groups of an instruction. Empty if it is in none yet.
  const std::vector<int>& GroupsOf(const Instruction& instruction) const {
    return groups_of_[number_.at(&instruction)];
  }

  const Computation& computation_;
  std::vector<FusionGroup> groups_;
  // Instructions are numbered, so that WouldCycle, which visits thousands of them in each call, needs no hash tables.
  absl::flat_hash_map<const Instruction*, int> number_;
  std::vector<std::vector<int>> users_, groups_of_;  // By number.
  // WouldCycle marks the instructions and groups that it has visited with the number of its call.
  mutable std::vector<int64_t> instruction_marks_, group_marks_;
  mutable int64_t mark_ = 0;
};

}  // namespace xlad::compiler
