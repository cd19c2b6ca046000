// Chooses how an op is split over the mesh: the assignment of axes to the op's factors that costs least.
#pragma once

#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "sharding/partition/assignment.h"
#include "sharding/partition/deferred_reductions.h"
#include "sharding/partition/op_family.h"

namespace xlad::sharding {

// The cost of an assignment. Compared in the order of the members.
struct AssignmentCost {
  double heavy_work = 0;  // Points of the index space of a dot or convolution that a device computes; else 0.
  double bytes = 0;       // That a device sends for the op's operands, halos and results.
  double light_work = 0;  // Points of the op's index space that a device computes.
  friend auto operator<=>(const AssignmentCost&, const AssignmentCost&) = default;
};

struct ChosenAssignment {
  Assignment assignment;
  AssignmentCost cost;
};

// The bytes that a device sends to reshard operand leaf `operand` to `to`.
using OperandReshardBytes = absl::FunctionRef<double(size_t operand, const TensorSharding& to)>;

// What the chooser knows of an op's operands: one entry per array leaf.
struct OperandArray {
  tensor::Shape shape;
  TensorSharding sharding;
};

// Has no state of its own: equal arguments give equal results.
class ShardingChooser {
 public:
  // `source` and `deferred` must outlive the chooser.
  ShardingChooser(const ShardedModule& source, const DeferredReductions& deferred, FamilyTable families)
      : source_(source), deferred_(deferred), families_(families) {}

  // The propagated shardings of a value, leaf by leaf. Axes whose reduction is deferred are unreduced.
  ValueSharding Wanted(const hlo::Instruction& instruction) const;

  // The cheapest legal assignment. The candidates are those that the shardings of operands and results suggest.
  ChosenAssignment Choose(const hlo::Instruction& instruction, const OpRule& rule,
                          const std::vector<OperandArray>& operands, OperandReshardBytes reshard_bytes) const;

  // The sharding that an op under an assignment needs of operand leaf i. It is unreduced along the axes over which
  // the op computes on partial sums.
  TensorSharding NeededOperand(const hlo::Instruction& instruction, const OpRule& rule, const Assignment& assignment,
                               size_t i) const;
  // The shardings of an op's results under an assignment. They are unreduced along the axes that split reductions.
  ValueSharding ResultShardings(const hlo::Instruction& instruction, const OpRule& rule,
                                const Assignment& assignment) const;
  // The axes along which the op has partial sums as its result if its operands have their propagated shardings.
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
