// Checks an AttentionOp and converts it into a list of operations on rows of scores, each with its place in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "runtime/devices/cpu/attention_kernels.h"
#include "tensor/element_type.h"

namespace xlad::runtime {

// Memory for a value. A tile holds all rows of a block, because matrix products read or write it. Slots of the other
// two kinds hold rows or single elements, and are reused for the next rows.
struct AttentionSlot {
  enum class Kind { kTile, kRow, kNarrow };
  Kind kind = Kind::kNarrow;
  int number = 0;  // The index among the slots of this kind.
};

// An operand or result. The strides are those of the batch dimensions, the row dimensions, the column and the feature.
struct AttentionArray {
  tensor::ElementType type = tensor::ElementType::kF32;
  std::vector<int64_t> strides;
};

// scores = left * transposed right, where left has the rows and right has the columns.
struct AttentionProduct {
  int left = 0, right = 0;  // Indices of operands.
  int64_t depth = 0;  // The number of features.
  AttentionSlot slot;  // The place of the scores.
};

// An operation on rows. Its result is one value.
struct AttentionStep {
  enum class Kind { kApply, kRead, kIndex, kMax, kSum };
  Kind kind = Kind::kApply;
  RowOpcode opcode = RowOpcode::kCopy;
  std::vector<AttentionSlot> inputs;
  AttentionSlot result;
  int source = 0;            // For kRead, the operand. For kIndex, the dimension: first the batch's, then the rows'.
  bool wide = false;         // The result has one element for each column.
  // bf16 or f16 if the result is rounded to this type.
  tensor::ElementType rounded_to = tensor::ElementType::kF32;
  // If not all columns are computed, the last computed one must be zero; otherwise the block is computed again with all
  // columns.
  bool check_zero = false;
};

// A result of the op: a value without columns, or a product of a value and an operand.
struct AttentionResult {
  AttentionOp::Result::Kind kind;
  AttentionSlot slot;    // The value.
  int operand = 0;       // For a product, the operand's index.
  int64_t width = 0;     // For a product, its number of features.
  AttentionArray array;  // The memory of the result.
  int number = 0;  // The index among the results of its kind.
};

struct AttentionProgram {
  std::vector<int64_t> batch, rows;  // The sizes of the dimensions.
  int64_t columns = 0, block_rows = 0;
  std::vector<int64_t> block_columns;  // For each block of rows, the number of columns to compute.
  std::vector<AttentionArray> operands;
  std::vector<AttentionProduct> products;
  std::vector<AttentionStep> steps;  // Applied to each row in this order.
  std::vector<AttentionResult> results;
  std::vector<uint32_t> constants;   // The contents of the first narrow slots.
  int tiles = 0, row_slots = 0, narrow_slots = 0;  // The numbers of slots of each kind.
  bool has_column_index = false;     // Row slot 0 holds 0, 1, 2, ...

  int64_t Batches() const;
  int64_t Rows() const;
  size_t ColumnDimension() const { return batch.size() + rows.size(); }
  size_t FeatureDimension() const { return batch.size() + rows.size() + 1; }
};

// InvalidArgument if the op is not consistent: for example, numbers are out of range, types do not match, an operation
// has a wrong number of inputs, or strides reach beyond the end of an array.
absl::StatusOr<AttentionProgram> ReadAttentionProgram(const AttentionOp& op);

}  // namespace xlad::runtime
