// Decides which instructions of a computation are fused.
//
// The planner visits instructions from results to parameters (users before operands). An instruction joins the group of
// its users if all of them are in one group. If it has users elsewhere, it becomes another root (result) of a group
// with the same number of elements that reads it element by element, unless that makes a cycle between groups. An
// instruction that costs less to compute again than to store and load is copied into every group that uses it. Any
// other instruction starts a group of its own. For example:
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
#include "compiler/analysis/op_cost.h"

namespace xlad::compiler {

// Instructions that one loop computes. Each position of the loop is the linear index of one element of every root. A
// member is computed under one or more *index maps*: from the position to the linear index of the member's element. Map
// 0 is the identity, map 1 is "element 0 of a scalar"; others are numbered as they are found.
struct FusionGroup {
  static constexpr int kIdentity = 0, kScalar = 1;

  std::vector<Instruction*> roots;  // The results, last in program order first.
  // Every member, with the index maps under which it is computed.
  absl::flat_hash_map<const Instruction*, std::vector<int>> maps;
  std::vector<int64_t> evaluations;  // For each map: how often a member under it is computed in one run of the loop.
  absl::flat_hash_map<std::string, int> map_ids;  // The number of each map, by its MapKey.
  int64_t elements = 0;  // The positions of the loop: the number of elements of each root.
  int recomputed = 0;    // Members that are computed more often than they have elements.
};

class FusionPlanner {
 public:
  explicit FusionPlanner(const Computation& computation);
  // Includes groups of one instruction, which need no fusion.
  const std::vector<FusionGroup>& groups() const { return groups_; }

 private:
  // The users of a value.
  struct Consumers {
    std::vector<int> groups;  // Sorted, distinct.
    bool unfused = false;     // It must be in memory: it is the result, or an instruction outside all groups uses it.
  };
  void Place(Instruction* instruction);
  // Copies the instruction into every consumer's group, and stores it only if it must be in memory.
  void Replicate(Instruction* instruction, const Consumers& consumers);
  Consumers ConsumersOf(const Instruction& instruction) const;
  bool IsCheaperToRecompute(const Instruction& instruction, const Consumers& consumers) const;
  bool JoinAsRoot(Instruction* instruction, const Consumers& consumers);
  void StartGroup(Instruction* instruction);
  // Adds the instruction to a group whose members use it. Returns false and leaves the members unchanged if the group
  // could then not be emitted or would recompute too much.
  bool Join(Instruction* instruction, int group, bool as_root);
  std::vector<int> MapsIn(const Instruction& instruction, FusionGroup* group) const;
  int OperandMap(const Instruction& user, int64_t operand, int map, FusionGroup* group) const;
  bool IsAllowed(const Instruction& instruction, const std::vector<int>& maps, const FusionGroup& group) const;
  // Whether making `instruction` a root of `group` makes a cycle: a reader of it outside the group feeds the group.
  bool WouldCycle(const Instruction& instruction, int group) const;

  const Computation& computation_;
  std::vector<FusionGroup> groups_;
  absl::flat_hash_map<const Instruction*, std::vector<int>> member_of_;
};

}  // namespace xlad::compiler
