// Chooses how an op is split over the mesh: the cheapest assignment of axes to the op's factors.
#pragma once

#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "sharding/partition/assignment.h"
#include "sharding/partition/deferred_reductions.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {

// The cost of an assignment. Costs are compared member by member, in this order. Heavy ops are dots (also ragged and
// scaled ones) and convolutions.
struct AssignmentCost {
  // The points of a heavy op's index space that a device computes, padding excluded; 0 for other ops. Axes that split
  // only one operand, such as a weight, always divide this work, even if the assignment does not use them.
  double heavy_work = 0;
  // The bytes that a device sends for the op's operands, halos and results; 0 if there is only one candidate. If a
  // heavy op has an axis that splits only one operand, the time of its work is added, converted to the bytes that a
  // device can send in this time.
  double bytes = 0;
  double light_work = 0;  // The points of the op's index space that a device computes, padding included.
  friend auto operator<=>(const AssignmentCost&, const AssignmentCost&) = default;
};

struct ChosenAssignment {
  Assignment assignment;
  AssignmentCost cost;
};

// The bytes that a device sends to reshard operand leaf `operand` to `to`.
using OperandReshardBytes = absl::FunctionRef<double(size_t operand, const TensorSharding& to)>;

// The input of the chooser for an op's operands, one entry per array leaf.
struct OperandArray {
  tensor::Shape shape;
  TensorSharding sharding;
};

// The chooser keeps no state between calls, so equal arguments have equal results.
class ShardingChooser {
 public:
  // `source` and `deferred` must outlive the chooser.
  ShardingChooser(const ShardedModule& source, const DeferredReductions& deferred, FamilyTable families)
      : source_(source), deferred_(deferred), families_(families) {}

  // The propagated shardings of a value, leaf by leaf. Axes whose reduction is deferred are unreduced.
  ValueSharding Wanted(const hlo::Instruction& instruction) const;

  // The cheapest assignment of those that Candidates returns for the shardings of the operands and results, except
  // those that use axes along which operands are partial sums. Splits nothing if all of the shardings are replicated.
  ChosenAssignment Choose(const hlo::Instruction& instruction, const OpRule& rule,
                          const std::vector<OperandArray>& operands, OperandReshardBytes reshard_bytes) const;

  // The sharding of operand leaf i that an op needs under an assignment. It is unreduced along the axes over which the
  // op computes on partial sums.
  TensorSharding NeededOperand(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                               size_t i) const;
  // The shardings of an op's results under an assignment. They are unreduced along the axes that split reductions and
  // along those over which the op computes on partial sums.
  ValueSharding ResultShardings(const hlo::Instruction& instruction, const OpRule& rule,
                                const Assignment& assignment) const;
  // The axes along which the op's result is a partial sum if its operands have their propagated shardings. Empty for
  // elementwise ops, for ops with fewer than two operands, and for reductions other than sums.
  AxisList PartialSumAxes(const hlo::Instruction& instruction) const;

 private:
  // Axes along which the op computes on partial sums, or null if there are none.
  const AxisList* DeferredAxes(const hlo::Instruction& instruction) const;
  double CommunicationBytes(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                            OperandReshardBytes reshard_bytes) const;
  double ShareOfOperandBytes(const hlo::Instruction& instruction) const;
  bool SplitsDeferredAxes(const hlo::Instruction& instruction, const Assignment& assignment) const;

  const ShardedModule& source_;
  const DeferredReductions& deferred_;
  const FamilyTable families_;
};

}  // namespace xlad::sharding
