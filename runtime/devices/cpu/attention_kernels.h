// The inner loops of attention (attention.cc) and of small dots (small_dot.h), as vector instructions: products of
// tiles, and operations on rows.
//
// All values have four bytes: floats, s32, and predicates as s32 that are 0 or 1. bf16 and f16 values are floats that
// have been rounded. Rows are padded to whole vectors; elementwise operations also compute the padding.
#pragma once

#include <cstdint>

namespace xlad::runtime {

// c[i, j] = (add ? c[i, j] : 0) + sum over l < k of a[i, l] * b[l, j] for i < m and j < n.
// a[i, l] is at a + i * a_row + l * a_depth. b consists of panels of `panel` columns: column j of row l is at
// b + (j / panel) * b_panel + l * b_row + j % panel. n is a multiple of `lanes`.
struct TileProduct {
  const float* a = nullptr;
  int64_t a_row = 0, a_depth = 0;
  const float* b = nullptr;
  int64_t b_panel = 0, b_row = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  int64_t m = 0, n = 0, k = 0;
  bool add = false;
};

enum class RowOpcode {
  kCopy,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kNegate,
  kAbs,
  kExp,
  kTanh,
  kLog,
  kSelect,
  kAnd,
  kOr,
  kNot,
  kFromInteger,  // Converts s32 or pred to float.
  kRoundToBf16,  // Rounds to the nearest bf16, ties to even.
  kRoundToF16,   // Rounds to the nearest f16, ties to even. Numbers that are too large become infinite.
  kEqual,
  kNotEqual,
  kGreater,
  kGreaterEqual,
  kLess,
  kLessEqual,
  // The following opcodes are for s32.
  kAddInteger,
  kSubtractInteger,
  kMultiplyInteger,
  kEqualInteger,
  kNotEqualInteger,
  kGreaterInteger,
  kGreaterEqualInteger,
  kLessInteger,
  kLessEqualInteger,
};

// An input of an operation on rows: rows with a stride, or (`narrow`) one element per row, which is used for all
// columns.
struct RowInput {
  const float* at = nullptr;
  bool narrow = false;
  int64_t stride = 0;  // The distance from one row to the next, in elements; 1 if narrow.
};

struct RowOperation {
  RowOpcode opcode;
  RowInput inputs[3];
  float* result = nullptr;  // May be one of the inputs.
  int64_t result_stride = 0;
  int64_t rows = 1;
};

// The loops for one instruction set. None of the functions allocates memory.
struct AttentionKernels {
  int64_t panel = 0;  // The width of a panel in elements: two vectors.
  int64_t lanes = 0;  // The number of elements of one vector.
  void (*multiply)(const TileProduct& product);
  // Computes `count` elements of each row, rounded up to whole vectors.
  void (*apply)(const RowOperation& operation, int64_t count);
  // These reduce exactly `count` elements. The maximum is NaN if any element is.
  float (*row_max)(const float* x, int64_t count);
  float (*row_sum)(const float* x, int64_t count);
  // These convert as many of the `count` elements as fill whole vectors, to floats or to 0 and 1, and return the number
  // of converted elements.
  int64_t (*from_bf16)(const uint16_t* x, int64_t count, float* to);
  int64_t (*from_predicates)(const uint8_t* x, int64_t count, float* to);
  // Writes `lanes` columns of `lanes` contiguous elements each, which begin at x + columns[i], as the columns of a
  // matrix whose rows are `stride` elements apart.
  void (*transpose)(const float* x, const int64_t* columns, float* to, int64_t stride);
};

// The alignment of rows, in elements. No vector or panel of a kernel is longer.
inline constexpr int64_t kRowAlignment = 32;

// The loops for the CPU that the program runs on.
const AttentionKernels& AttentionKernelsOfCpu();

}  // namespace xlad::runtime
