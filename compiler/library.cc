#include "compiler/library.h"

namespace xlad::compiler {
namespace {

bool IsLibraryType(ElementType lhs, ElementType rhs, ElementType result) {
  if (lhs != rhs) return false;
  if (lhs == ElementType::kF32) return result == ElementType::kF32;
  if (lhs == ElementType::kBF16) return result == ElementType::kBF16 || result == ElementType::kF32;
  if (lhs == ElementType::kF16) return result == ElementType::kF16 || result == ElementType::kF32;
  return false;
}

}  // namespace

bool IsLibraryOp(const Instruction& instruction) {
  if (instruction.opcode() != Opcode::kDot || instruction.operand_count() != 2) return false;
  return IsLibraryType(instruction.operand(0)->shape().type(), instruction.operand(1)->shape().type(),
                       instruction.shape().type());
}

ArrayShape ToProto(const Shape& shape) {
  ArrayShape proto;
  proto.set_element_type(static_cast<int32_t>(shape.type()));
  for (int64_t size : shape.dims()) proto.add_dims(size);
  return proto;
}

LibraryOp MakeLibraryOp(const Instruction& instruction) {
  LibraryOp op;
  DotOp* dot = op.mutable_dot();
  *dot->mutable_lhs() = ToProto(instruction.operand(0)->shape());
  *dot->mutable_rhs() = ToProto(instruction.operand(1)->shape());
  *dot->mutable_result() = ToProto(instruction.shape());
  const hlo::DotDimensions& dims = *instruction.attributes().dot;
  dot->mutable_lhs_batch()->Add(dims.lhs_batch.begin(), dims.lhs_batch.end());
  dot->mutable_rhs_batch()->Add(dims.rhs_batch.begin(), dims.rhs_batch.end());
  dot->mutable_lhs_contracting()->Add(dims.lhs_contracting.begin(), dims.lhs_contracting.end());
  dot->mutable_rhs_contracting()->Add(dims.rhs_contracting.begin(), dims.rhs_contracting.end());
  return op;
}

}  // namespace xlad::compiler
