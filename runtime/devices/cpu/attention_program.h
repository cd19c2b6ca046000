// AttentionOp, checked and made into a list of operations on one row of scores, each with its place in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"
#include "runtime/devices/cpu/attention_kernels.h"
#include "tensor/element_type.h"

namespace xlad::runtime {

// Memory for a value. Tiles hold the rows of a block at once, because matrix products read or write them. Rows and
// single elements are used again for each row.
struct AttentionSlot {
  enum class Kind { kTile, kRow, kNarrow };
  Kind kind = Kind::kNarrow;
  int number = 0;  // Among the slots of this kind.
};

// An operand or result. strides: those of the batch, of the rows, of the column, of the feature.
struct AttentionArray {
  tensor::ElementType type = tensor::ElementType::kF32;
  std::vector<int64_t> strides;
};

// scores = left * transposed right, where left has the rows and right has the columns.
struct AttentionProduct {
  int left = 0, right = 0;  // Operands.
  int64_t depth = 0;
  AttentionSlot slot;
};

struct AttentionStep {
  enum class Kind { kApply, kRead, kIndex, kMax, kSum };
  Kind kind = Kind::kApply;
  RowOpcode opcode = RowOpcode::kCopy;
  std::vector<AttentionSlot> inputs;
  AttentionSlot result;
  int source = 0;            // kRead: the operand. kIndex: the dimension, one of the rows.
  bool wide = false;         // The result has one element for each column.
  bool round = false;        // The result is rounded to bf16.
  bool check_zero = false;   // The last column must be zero if not all columns are computed.
};

struct AttentionResult {
  AttentionOp::Result::Kind kind;
  AttentionSlot slot;
  int operand = 0;
  int64_t width = 0;
  AttentionArray array;
  int number = 0;  // Among the results of its kind.
};

struct AttentionProgram {
  std::vector<int64_t> batch, rows;  // Sizes.
  int64_t columns = 0, block_rows = 0;
  std::vector<int64_t> block_columns;
  std::vector<AttentionArray> operands;
  std::vector<AttentionProduct> products;
  std::vector<AttentionStep> steps;  // In order, for each row.
  std::vector<AttentionResult> results;
  std::vector<uint32_t> constants;   // The contents of the first narrow slots.
  int tiles = 0, row_slots = 0, narrow_slots = 0;
  bool has_column_index = false;     // Row slot 0 holds 0, 1, 2, ...

  int64_t Batches() const;
  int64_t Rows() const;
  size_t ColumnDimension() const { return batch.size() + rows.size(); }
  size_t FeatureDimension() const { return batch.size() + rows.size() + 1; }
};

// InvalidArgument if numbers are out of range, types do not fit, or an array is smaller than its strides say.
absl::StatusOr<AttentionProgram> ReadAttentionProgram(const AttentionOp& op);

}  // namespace xlad::runtime
