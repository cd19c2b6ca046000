/* The description of an attention op for the kernels of gpu_attention_kernels.c, in the form in which the host writes
 * it into the GPU's memory. This header is C, because the kernels include it too. Strides are in elements. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_KERNELS_H_
#define XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_KERNELS_H_

#include <stdint.h>

#include "runtime/devices/cuda/kernel_element.h"

/* A thread block computes this many rows at once. Each row has 16 threads: thread t of them computes the columns c with
 * c % 16 = t. */
#define XLAD_ATTENTION_ROWS 16
#define XLAD_ATTENTION_LANES 16
#define XLAD_ATTENTION_THREADS (XLAD_ATTENTION_ROWS * XLAD_ATTENTION_LANES)
/* The limits of an op. The host computes larger ops. */
#define XLAD_ATTENTION_ARRAYS 16 /* Operands and results. */
#define XLAD_ATTENTION_DIMS 4    /* Dimensions of the batch, and dimensions of the rows. */
#define XLAD_ATTENTION_PRODUCTS 4
#define XLAD_ATTENTION_STEPS 96
#define XLAD_ATTENTION_CONSTANTS 32

/* The opcodes in the order of RowOpcode (runtime/devices/cpu/attention_kernels.h). */
#define XLAD_ROW_OPCODES(OPCODE)                                                                                  \
  OPCODE(Copy)                                                                                                    \
  OPCODE(Add) OPCODE(Subtract) OPCODE(Multiply) OPCODE(Divide) OPCODE(Maximum) OPCODE(Minimum) OPCODE(Negate)     \
      OPCODE(Abs) OPCODE(Exp) OPCODE(Tanh) OPCODE(Log) OPCODE(Select) OPCODE(And) OPCODE(Or) OPCODE(Not)          \
          OPCODE(FromInteger) OPCODE(RoundToBf16) OPCODE(RoundToF16) OPCODE(Equal) OPCODE(NotEqual)               \
              OPCODE(Greater) OPCODE(GreaterEqual) OPCODE(Less) OPCODE(LessEqual) OPCODE(AddInteger)              \
                  OPCODE(SubtractInteger) OPCODE(MultiplyInteger) OPCODE(EqualInteger) OPCODE(NotEqualInteger)    \
                      OPCODE(GreaterInteger) OPCODE(GreaterEqualInteger) OPCODE(LessInteger)                      \
                          OPCODE(LessEqualInteger)
#define XLAD_ROW_OPCODE(name) XLAD_ROW_##name,
enum XladRowOpcode { XLAD_ROW_OPCODES(XLAD_ROW_OPCODE) };
#undef XLAD_ROW_OPCODE

/* An operand or result. */
struct XladAttentionArray {
  int64_t batch[XLAD_ATTENTION_DIMS], rows[XLAD_ATTENTION_DIMS], column, feature;
  int32_t element, unused;
};

/* A value: one element for each row (narrow), one for each row and column (wide), or the index of the column. */
enum XladSlotKind { XLAD_NARROW, XLAD_WIDE, XLAD_COLUMN_INDEX };
struct XladAttentionSlot {
  int32_t kind, number;
};

/* wide[row, column] = sum over l < depth of left[row, l] * right[column, l]. */
struct XladAttentionProduct {
  int32_t left, right; /* Arrays. */
  int32_t slot;
  int32_t mma; /* XLAD_BF16 or XLAD_F16 if tensor cores compute the product: both arrays have this type. */
  int64_t depth;
};

enum XladStepKind { XLAD_STEP_APPLY, XLAD_STEP_READ, XLAD_STEP_INDEX, XLAD_STEP_MAX, XLAD_STEP_SUM };
struct XladAttentionStep {
  int32_t kind, opcode;
  int32_t source;     /* READ: the array. INDEX: the dimension; those of the rows follow those of the batch. */
  int32_t rounded_to; /* XLAD_BF16 or XLAD_F16 if the result is rounded to this type, otherwise XLAD_F32. */
  int32_t check_zero; /* Whether the last computed column must be 0 if not all columns are computed. */
  int32_t unused;
  struct XladAttentionSlot result, inputs[3];
};

enum XladAttentionResultKind { XLAD_ROW_VALUE, XLAD_ROW_PRODUCT, XLAD_COLUMN_PRODUCT };
struct XladAttentionResult {
  int32_t kind, slot;     /* The number of a wide slot; for XLAD_ROW_VALUE, that of a narrow one. */
  int32_t operand, array; /* Arrays. */
  int64_t width;          /* The number of features of a product. */
  int64_t sums;           /* XLAD_COLUMN_PRODUCT: the place of the result in the sums of a task, in elements. */
  /* XLAD_BF16 or XLAD_F16 if tensor cores compute the product: the value and the operand are numbers of this type. */
  int32_t mma;
  int32_t unused;
};

/* The rows are divided into the blocks of the op, and the blocks into pieces of at most XLAD_ATTENTION_ROWS rows. A
 * group has `group_pieces` pieces, and a task is one group for one entry of the batch. Thread block b, of `blocks`,
 * computes the tasks b, b + blocks, b + 2 * blocks, ...
 *
 * The scratch memory consists of elements of 4 bytes: for each thread block, `narrow_slots` elements for each thread,
 * and then wide slots of XLAD_ATTENTION_ROWS x row_stride elements; after all thread blocks, `task_sums` elements for
 * each task. */
struct XladAttentionProblem {
  int64_t batch[XLAD_ATTENTION_DIMS], rows[XLAD_ATTENTION_DIMS]; /* The sizes; those of unused dimensions are 1. */
  int64_t batches, all_rows, columns;
  int64_t block_rows, block_pieces, pieces, group_pieces, groups;
  int64_t tasks, blocks;
  int64_t row_stride, block_scratch, task_sums;
  int64_t narrow_slots;
  int32_t arrays, products, steps, results, constants, unused;
  struct XladAttentionArray array[XLAD_ATTENTION_ARRAYS]; /* The operands, then the results. */
  struct XladAttentionProduct product[XLAD_ATTENTION_PRODUCTS];
  struct XladAttentionStep step[XLAD_ATTENTION_STEPS];
  struct XladAttentionResult result[XLAD_ATTENTION_ARRAYS];
  uint32_t constant[XLAD_ATTENTION_CONSTANTS]; /* The contents of the first narrow slots. */
  /* An int32_t for each block follows: the number of columns to compute. */
};

#endif /* XLAD_RUNTIME_DEVICES_CUDA_GPU_ATTENTION_KERNELS_H_ */
