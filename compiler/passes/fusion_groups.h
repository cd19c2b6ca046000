// What Fuse decides: which instructions of a computation are computed together.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/analysis/hlo_util.h"
#include "compiler/analysis/op_cost.h"

namespace xlad::compiler {

// Instructions computed in one loop. A value is read through an *index map*: from the loop's position to the linear
// index of its element. Maps are numbered; 0 is the position itself, 1 is "element 0 of a scalar".
struct FusionGroup {
  static constexpr int kIdentity = 0, kScalar = 1;

  std::vector<Instruction*> roots;  // Written to memory, latest in program order first.
  // Every member with the maps under which the group computes it.
  absl::flat_hash_map<const Instruction*, std::vector<int>> maps;
  std::vector<int64_t> evaluations;  // By map: how often a value under it is computed.
  absl::flat_hash_map<std::string, int> map_ids;
  int64_t elements = 0;  // Of the loop: those of each root.
  int recomputed = 0;    // Members that are computed more often than they have elements.
};

class FusionPlanner {
 public:
  explicit FusionPlanner(const Computation& computation);
  // All groups with a root; a group of one instruction needs no fusion.
  const std::vector<FusionGroup>& groups() const { return groups_; }

 private:
  struct Consumers {
    std::vector<int> groups;  // Sorted, distinct.
    bool opaque = false;      // Someone reads it from memory whatever we do.
  };
  void Place(Instruction* instruction);
  void PlaceCheaply(Instruction* instruction, const Consumers& consumers);
  Consumers ConsumersOf(const Instruction& instruction) const;
  bool IsCheaperToRepeat(const Instruction& instruction, const Consumers& consumers) const;
  bool JoinAsRoot(Instruction* instruction, const Consumers& consumers);
  void StartGroup(Instruction* instruction);
  // Adds to a group whose members use it; false, and nothing is changed, where that would break a promise.
  bool Join(Instruction* instruction, int group, bool as_root);
  std::vector<int> MapsIn(const Instruction& instruction, FusionGroup* group) const;
  int OperandMap(const Instruction& user, int64_t operand, int map, FusionGroup* group) const;
  bool IsAllowed(const Instruction& instruction, const std::vector<int>& maps, const FusionGroup& group) const;
  // Whether what reads `instruction` outside `group` feeds `group`.
  bool WouldCycle(const Instruction& instruction, int group) const;

  const Computation& computation_;
  std::vector<FusionGroup> groups_;
  absl::flat_hash_map<const Instruction*, std::vector<int>> member_of_;
  absl::flat_hash_set<const Instruction*> materialised_;
};

}  // namespace xlad::compiler
