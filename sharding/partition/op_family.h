// How the ops of an opcode are partitioned. The families themselves are in ops/; the engine gets them as a table.
#pragma once

#include <vector>

#include "sharding/partition/assignment.h"
#include "sharding/partition/halo_plan.h"
#include "sharding/partition/local_array.h"

namespace xlad::sharding {

class LocalBuilder;

// A dimension of a reshape's operand and one of its result that are split over the same axes although their sizes do
// not divide: f32[6,4] -> f32[24], split over an axis of 4, has shards of 2 rows and of 6 elements.
struct RaggedDim {
  size_t operand = 0, result = 0;
};

// One op with its operands as its assignment needs them.
struct LocalOp {
  const hlo::Instruction* source = nullptr;
  const OpRule* rule = nullptr;
  const Assignment* assignment = nullptr;
  std::vector<LocalArray> operands;  // Resharded; one per array leaf.
  // For each operand of a concatenation that is a slice, the array that it is a slice of; `local` is null for others.
  std::vector<LocalArray> sliced;
  std::vector<RaggedDim> ragged;    // For a reshape.
  std::vector<LocalArray> results;  // One per array leaf, with their shardings; the family sets `local`.
};

// A split dimension of an operand of which every shard needs elements that other shards hold.
struct OperandHalo {
  size_t operand = 0;
  int64_t dim = 0;
  HaloNeed need;
};

struct OpFamily {
  // Which factors of the rule may be split.
  std::vector<bool> (*splittable)(const hlo::Instruction&, const OpRule&) = nullptr;
  // Emits the local instructions and sets results[i].local. Padding of the operands may hold any value. May change a
  // result's sharding to what it emitted; the caller reshards the result.
  absl::Status (*emit)(LocalBuilder&, LocalOp&) = nullptr;
  // The halos that emit fetches under an assignment; null if it fetches none.
  std::vector<OperandHalo> (*halos)(const hlo::Instruction&, const OpRule&, const Assignment&) = nullptr;
  // The dimensions that stay split although the assignment does not split them; null if the family has none. `from`:
  // the sharding of operand 0; `wanted`: that of the result.
  std::vector<RaggedDim> (*ragged)(const hlo::Instruction&, const OpRule&, const Assignment&,
                                   const TensorSharding& from, const TensorSharding& wanted) = nullptr;
};

// The family of an opcode.
using FamilyTable = const OpFamily& (*)(hlo::Opcode);

// The bytes that a device sends for the halos of an assignment.
double HaloBytes(const OpFamily& family, const hlo::Instruction& instruction, const OpRule& rule,
                 const Assignment& assignment);

// Whether `op` is a slice of stride 1 that cuts only dimension `dim`.
bool IsSliceAlong(const hlo::Instruction& op, int64_t dim);

}  // namespace xlad::sharding
