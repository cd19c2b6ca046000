// Descriptors of softmax attention, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "proto/executable.pb.h"
#include "tensor/element_type.h"

namespace xlad::runtime::testing {

using tensor::ElementType;

// The sizes of attention with one head for each entry of the batch.
struct AttentionSizes {
  int64_t batch, rows, columns, depth, width;
};

// Writes the descriptor of an op with the operands q[batch, rows, depth], k[batch, columns, depth] and
// v[batch, columns, width], all of one type. Value 0 is the product of q and transposed k.
class AttentionWriter {
 public:
  explicit AttentionWriter(const AttentionSizes& s, ElementType type = ElementType::kF32) : s_(s), type_(type) {
    op_.add_batch(s.batch);
    op_.add_rows(s.rows);
    op_.set_columns(s.columns);
    *op_.add_operands() = Array({s.batch, s.rows, s.depth}, {s.rows * s.depth, s.depth, 0, 1});
    *op_.add_operands() = Array({s.batch, s.columns, s.depth}, {s.columns * s.depth, 0, s.depth, 1});
    *op_.add_operands() = Array({s.batch, s.columns, s.width}, {s.columns * s.width, 0, s.width, 1});
    AttentionOp::Value* product = op_.add_values();
    product->set_opcode(AttentionOp::PRODUCT);
    product->set_element_type(static_cast<int>(ElementType::kF32));
    product->add_operands(0);
    product->add_operands(1);
    product->set_depth(s.depth);
  }

  int Value(AttentionOp::Opcode opcode, std::vector<int> inputs, ElementType type = ElementType::kF32) {
    AttentionOp::Value* value = op_.add_values();
    value->set_opcode(opcode);
    value->set_element_type(static_cast<int>(type));
    value->mutable_inputs()->Add(inputs.begin(), inputs.end());
    return op_.values_size() - 1;
  }
  int Constant(float number) {
    const int v = Value(AttentionOp::CONSTANT, {});
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    op_.mutable_values(v)->set_bits(bits);
    return v;
  }
  int Index(int dimension) {
    const int v = Value(AttentionOp::INDEX, {}, ElementType::kS32);
    op_.mutable_values(v)->set_dimension(dimension);
    return v;
  }

  // The causal mask sets the scores of masked columns to `masked`. Let P be the softmax of the scores, rounded to the
  // type of the operands. The results are P v, the transpose of P times q, and the sums of the rows before the
  // division. If `skip`, a block of rows computes only its unmasked columns and one masked column, if there is one.
  AttentionOp Softmax(float masked, int64_t block_rows, bool skip) {
    const int mask = Value(AttentionOp::GREATER_EQUAL, {Index(1), Index(2)}, ElementType::kPred);
    const int scores = Value(AttentionOp::SELECT, {mask, 0, Constant(masked)});
    const int shifted = Value(AttentionOp::SUBTRACT, {scores, Value(AttentionOp::ROW_MAX, {scores})});
    const int e = Value(AttentionOp::EXP, {shifted});
    op_.mutable_values(e)->set_zero_after_block_columns(skip);
    const int sum = Value(AttentionOp::ROW_SUM, {e});
    int p = Value(AttentionOp::DIVIDE, {e, sum});
    if (type_ != ElementType::kF32) p = Value(AttentionOp::CONVERT, {p}, type_);
    AttentionOp::Result* product = op_.add_results();
    product->set_kind(AttentionOp::Result::ROW_PRODUCT);
    product->set_value(p);
    product->set_operand(2);
    product->set_width(s_.width);
    *product->mutable_array() = Array({s_.batch, s_.rows, s_.width}, {s_.rows * s_.width, s_.width, 0, 1});
    AttentionOp::Result* columns = op_.add_results();
    columns->set_kind(AttentionOp::Result::COLUMN_PRODUCT);
    columns->set_value(p);
    columns->set_operand(0);
    columns->set_width(s_.depth);
    *columns->mutable_array() = Array({s_.batch, s_.columns, s_.depth}, {s_.columns * s_.depth, 0, s_.depth, 1});
    AddRowValue(sum);
    SetBlocks(block_rows, skip);
    return op_;
  }

  // The op whose only result is the sum of a value over the columns.
  AttentionOp RowSum(int value) {
    AddRowValue(Value(AttentionOp::ROW_SUM, {value}));
    SetBlocks(/*block_rows=*/4, /*skip=*/false);
    return op_;
  }

 private:
  void AddRowValue(int value) {
    AttentionOp::Result* result = op_.add_results();
    result->set_kind(AttentionOp::Result::ROW_VALUE);
    result->set_value(value);
    *result->mutable_array() = Array({s_.batch, s_.rows}, {s_.rows, 1, 0, 0});
  }
  void SetBlocks(int64_t block_rows, bool skip) {
    op_.set_block_rows(block_rows);
    for (int64_t first = 0; first < s_.rows; first += block_rows) {
      op_.add_block_columns(skip ? std::min(s_.columns, first + block_rows + 1) : s_.columns);
    }
  }
  AttentionOp::Operand Array(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) const {
    AttentionOp::Operand operand;
    operand.mutable_shape()->set_element_type(static_cast<int>(type_));
    operand.mutable_shape()->mutable_dims()->Add(dims.begin(), dims.end());
    operand.mutable_strides()->Add(strides.begin(), strides.end());
    return operand;
  }

  const AttentionSizes s_;
  const ElementType type_;
  AttentionOp op_;
};

}  // namespace xlad::runtime::testing
