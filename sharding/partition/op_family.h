// How the ops of an opcode are partitioned. The families themselves are in ops/; the partitioner gets them as a table.
#pragma once

#include <vector>

#include "sharding/partition/assignment.h"
#include "sharding/partition/halo_plan.h"
#include "sharding/partition/local_array.h"

namespace xlad::sharding {

class LocalBuilder;

// A dimension of a reshape's operand and a dimension of its result that are split over the same axes although their
// shards differ. For example, f32[6,4] -> f32[24], split over an axis of 4, has shards of 2 rows and of 6 elements.
struct RaggedDim {
  size_t operand = 0, result = 0;
};

// One op, whose operands have the shardings that its assignment needs.
struct LocalOp {
  const hlo::Instruction* source = nullptr;
  const OpRule* rule = nullptr;
  const Assignment* assignment = nullptr;
  std::vector<LocalArray> operands;  // One per array leaf, already resharded.
  // One entry per operand of a concatenation: the sliced array if the operand is a slice, otherwise `local` is null.
  std::vector<LocalArray> sliced;
  std::vector<RaggedDim> ragged;    // Only for a reshape.
  std::vector<LocalArray> results;  // One per array leaf, with its sharding; the family sets `local`.
};

// A split dimension of an operand, and the elements along it that every shard needs, including those of other shards.
struct OperandHalo {
  size_t operand = 0;
  int64_t dim = 0;
  HaloNeed need;
};

struct OpFamily {
  // Which factors of the rule may be split.
  std::vector<bool> (*splittable)(const hlo::Instruction&, const OpRule&) = nullptr;
  // Emits the local instructions and sets results[i].local. Padding of the operands may hold any value. May change a
  // result's sharding to that of the emitted instruction; the caller then reshards the result.
  absl::Status (*emit)(LocalBuilder&, LocalOp&) = nullptr;
  // The halos that `emit` fetches under an assignment; null if `emit` fetches none.
  std::vector<OperandHalo> (*halos)(const hlo::Instruction&, const OpRule&, const Assignment&) = nullptr;
  // The dimensions that stay split although the assignment does not split them; null if the family has none. `from` is
  // the sharding of operand 0, and `wanted` the required sharding of the result.
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
