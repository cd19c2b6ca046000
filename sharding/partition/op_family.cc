#include "sharding/partition/op_family.h"

namespace xlad::sharding {

double HaloBytes(const OpFamily& family, const hlo::Instruction& instruction, const OpRule& rule,
                 const Assignment& assignment) {
  if (family.halos == nullptr) return 0;
  double bytes = 0;
  for (const OperandHalo& halo : family.halos(instruction, rule, assignment)) {
    const hlo::Shape& shape = instruction.operand(halo.operand)->shape();
    const Dims local = LocalDims(shape.dims(), Project(assignment, rule.operands[halo.operand]));
    double row = tensor::ByteWidth(shape.type());
    for (int64_t d = 0; d < std::ssize(local); ++d) {
      if (d != halo.dim) row *= local[d];
    }
    bytes += row * static_cast<double>(PlanHalo(halo.need).sent());
  }
  return bytes;
}

bool IsSliceAlong(const hlo::Instruction& op, int64_t dim) {
  if (op.opcode() != hlo::Opcode::kSlice || op.attributes().slice[dim].stride != 1) return false;
  for (int64_t d = 0; d < op.shape().ndim(); ++d) {
    if (d != dim && op.shape().dims()[d] != op.operand(0)->shape().dims()[d]) return false;
  }
  return true;
}

}  // namespace xlad::sharding
