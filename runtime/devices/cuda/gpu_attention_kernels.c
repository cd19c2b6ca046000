/* Attention on a GPU, compiled to PTX by the build. It has the same steps as runtime/devices/cpu/attention.cc: products
 * compute the scores of 16 rows, operations are applied to these rows, and products with the final values compute the
 * results. Only the scores of these rows are in memory. All sums have a fixed order, which depends on the shapes alone.
 *
 * Thread t of a row computes the elements of all wide values in the columns c with c % 16 = t, so that threads wait for
 * each other only in reductions and products. Each thread has its own copy of the narrow values of its row.
 *
 * Products of numbers of bf16 or f16 use tensor cores: one instruction of a warp multiplies all 16 rows. A warp loads
 * its operands directly from global memory to registers, because it needs each column or feature once and finds the
 * rows in the cache. The functions of these products are compiled for each of the two types, `mma`. */
#include "runtime/devices/cuda/gpu_attention_kernels.h"

#include "runtime/devices/cuda/gpu_attention_operations.h"
#include "runtime/devices/cuda/kernel_mma.h"
#include "runtime/devices/cuda/kernel_support.h"

enum { kRows = XLAD_ATTENTION_ROWS, kLanes = XLAD_ATTENTION_LANES, kThreads = XLAD_ATTENTION_THREADS };
enum { kWarps = kThreads / XLAD_WARP, kFragments = 4 };  /* A warp computes kFragments * 8 columns of scores at once. */
enum { kDepth = 16, kEach = 4, kTile = kEach * kLanes }; /* A tile of a product has 16 x 64 elements. */

static SHARED float left_tile[kRows * (kDepth + 1)], right_tile[kDepth * (kTile + 1)];
static SHARED float partial[kThreads];
typedef void* Address;
static SHARED Address buffers[XLAD_ATTENTION_ARRAYS];
static SHARED int64_t batch_offsets[XLAD_ATTENTION_ARRAYS]; /* The offset of the entry of the batch in each array. */
static SHARED int64_t row_offsets[XLAD_ATTENTION_ARRAYS * kRows]; /* The offsets of the current rows in each array. */
static SHARED int is_incomplete;

/* The rows that a thread block computes, and its memory. */
struct Piece {
  const struct XladAttentionProblem* problem;
  uint32_t *narrow, *wide; /* The memory of this thread and that of the thread block. */
  int64_t batch, first, count, columns;
};

/* The element as the bits of an f32, an s32, or 0 or 1. */
INLINE uint32_t LoadWord(const void* array, int64_t index, int element) {
  if (element == XLAD_PRED) return ((const uint8_t*)array)[index] != 0;
  if (element == XLAD_S32) return ((const uint32_t*)array)[index];
  return ToBits(Load(array, index, element));
}

INLINE void StoreWord(void* array, int64_t index, int element, uint32_t word) {
  if (element == XLAD_PRED) {
    ((uint8_t*)array)[index] = word != 0;
  } else if (element == XLAD_S32) {
    ((uint32_t*)array)[index] = word;
  } else {
    Store(array, index, element, FromBits(word));
  }
}

INLINE int64_t DigitOf(int64_t number, const int64_t* sizes, int dimension) {
  for (int d = XLAD_ATTENTION_DIMS - 1; d > dimension; --d) number /= sizes[d];
  return number % sizes[dimension];
}

INLINE int64_t OffsetOf(int64_t number, const int64_t* sizes, const int64_t* strides) {
  int64_t offset = 0;
  for (int d = XLAD_ATTENTION_DIMS - 1; d >= 0; --d) {
    offset += number % sizes[d] * strides[d];
    number /= sizes[d];
  }
  return offset;
}

INLINE int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows beyond the last row of the piece have the offsets of the last row. Their results are not stored. */
INLINE void SetOffsets(const struct Piece* piece) {
  const struct XladAttentionProblem* problem = piece->problem;
  for (int i = Thread(); i < problem->arrays * kRows; i += kThreads) {
    const struct XladAttentionArray* array = &problem->array[i / kRows];
    const int64_t of_batch = OffsetOf(piece->batch, problem->batch, array->batch);
    const int64_t row = piece->first + Min(i % kRows, piece->count - 1);
    batch_offsets[i / kRows] = of_batch; /* All threads of one array write the same offset. */
    row_offsets[i] = of_batch + OffsetOf(row, problem->rows, array->rows);
  }
  Barrier();
}

INLINE uint32_t* WideOf(const struct Piece* piece, int slot, int64_t row) {
  return piece->wide + ((int64_t)slot * kRows + row) * piece->problem->row_stride;
}

/* sums[j] += sum over the depth of the two tiles, for row Thread() / 16 and columns Thread() % 16 + 16 * j. */
INLINE void AddTiles(float* sums) {
  const int row = Thread() / kLanes, lane = Thread() % kLanes;
  Barrier();
  UNROLL for (int l = 0; l < kDepth; ++l) {
    const float left = left_tile[row * (kDepth + 1) + l];
    UNROLL for (int j = 0; j < kEach; ++j) {
      sums[j] = __builtin_fmaf(left, right_tile[l * (kTile + 1) + lane + j * kLanes], sums[j]);
    }
  }
  Barrier();
}

INLINE void ComputeScores(const struct Piece* piece, const struct XladAttentionProduct* product) {
  const struct XladAttentionArray* left = &piece->problem->array[product->left];
  const struct XladAttentionArray* right = &piece->problem->array[product->right];
  const int row = Thread() / kLanes, lane = Thread() % kLanes;
  for (int64_t first = 0; first < piece->columns; first += kTile) {
    float sums[kEach] = {0, 0, 0, 0};
    for (int64_t depth = 0; depth < product->depth; depth += kDepth) {
      const int64_t l = depth + lane;
      left_tile[row * (kDepth + 1) + lane] =
          l < product->depth ? Load(buffers[product->left],
                                    row_offsets[product->left * kRows + row] + l * left->feature, left->element)
                             : 0;
      UNROLL for (int i = 0; i < kEach; ++i) {
        const int64_t column = first + row + i * kRows;
        right_tile[lane * (kTile + 1) + row + i * kRows] =
            l < product->depth && column < piece->columns
                ? Load(buffers[product->right],
                       batch_offsets[product->right] + column * right->column + l * right->feature, right->element)
                : 0;
      }
      AddTiles(sums);
    }
    UNROLL for (int j = 0; j < kEach; ++j) {
      const int64_t column = first + lane + j * kLanes;
      if (column < piece->columns) WideOf(piece, product->slot, row)[column] = ToBits(sums[j]);
    }
  }
}

/* ComputeScores by tensor cores. */
INLINE void MultiplyScores(const struct Piece* piece, const struct XladAttentionProduct* product, int mma) {
  const struct XladAttentionArray* left = &piece->problem->array[product->left];
  const struct XladAttentionArray* right = &piece->problem->array[product->right];
  const int group = MmaGroup(), pair = MmaPair();
  const uint16_t* lefts[2];
  UNROLL for (int i = 0; i < 2; ++i) {
    lefts[i] = (const uint16_t*)buffers[product->left] + row_offsets[product->left * kRows + group + i * 8];
  }
  for (int64_t first = Thread() / XLAD_WARP * (kFragments * 8); first < piece->columns;
       first += kWarps * kFragments * 8) {
    const uint16_t* rights[kFragments];
    float sums[kFragments][4];
    UNROLL for (int f = 0; f < kFragments; ++f) {
      const int64_t column = Min(first + f * 8 + group, piece->columns - 1);
      rights[f] = (const uint16_t*)buffers[product->right] + batch_offsets[product->right] + column * right->column;
      UNROLL for (int i = 0; i < 4; ++i) sums[f][i] = 0;
    }
    for (int64_t depth = pair; depth < product->depth + pair; depth += kDepth) {
      uint32_t a[4], b[2];
      UNROLL for (int i = 0; i < 4; ++i) a[i] =
          LoadPair(lefts[i % 2], left->feature, depth + i / 2 * 8, product->depth);
      UNROLL for (int f = 0; f < kFragments; ++f) {
        UNROLL for (int i = 0; i < 2; ++i) b[i] = LoadPair(rights[f], right->feature, depth + i * 8, product->depth);
        Mma(a, b, mma, sums[f]);
      }
    }
    UNROLL for (int f = 0; f < kFragments; ++f) {
      UNROLL for (int i = 0; i < 4; ++i) {
        const int64_t column = first + f * 8 + pair + i % 2;
        if (column < piece->columns) WideOf(piece, product->slot, group + i / 2 * 8)[column] = ToBits(sums[f][i]);
      }
    }
  }
}

INLINE uint32_t* NarrowOf(const struct Piece* piece, int slot) { return piece->narrow + (int64_t)slot * kThreads; }

INLINE uint32_t Input(const struct Piece* piece, const struct XladAttentionSlot* slot, int64_t column) {
  if (slot->kind == XLAD_NARROW) return *NarrowOf(piece, slot->number);
  if (slot->kind == XLAD_COLUMN_INDEX) return (uint32_t)column;
  return WideOf(piece, slot->number, Thread() / kLanes)[column];
}

INLINE uint32_t ComputeElement(const struct Piece* piece, const struct XladAttentionStep* step, int64_t column) {
  const int row = Thread() / kLanes;
  if (step->kind == XLAD_STEP_READ) {
    const struct XladAttentionArray* array = &piece->problem->array[step->source];
    return LoadWord(buffers[step->source], row_offsets[step->source * kRows + row] + column * array->column,
                    array->element);
  }
  if (step->kind == XLAD_STEP_INDEX) {
    if (step->source < XLAD_ATTENTION_DIMS) return (uint32_t)DigitOf(piece->batch, piece->problem->batch, step->source);
    const int64_t number = piece->first + Min(row, piece->count - 1);
    return (uint32_t)DigitOf(number, piece->problem->rows, step->source - XLAD_ATTENTION_DIMS);
  }
  return Apply(step->opcode, Input(piece, &step->inputs[0], column), Input(piece, &step->inputs[1], column),
               Input(piece, &step->inputs[2], column));
}

/* Each thread reduces its own columns; then the results of the 16 threads are reduced in order. */
INLINE uint32_t Reduce(const struct Piece* piece, const struct XladAttentionStep* step) {
  const int row = Thread() / kLanes, lane = Thread() % kLanes;
  const int is_max = step->kind == XLAD_STEP_MAX;
  float all = is_max ? -__builtin_inff() : 0;
  for (int64_t column = lane; column < piece->columns; column += kLanes) {
    const float x = FromBits(Input(piece, &step->inputs[0], column));
    all = is_max ? Maximum(all, x) : all + x;
  }
  partial[Thread()] = all;
  Barrier();
  all = partial[row * kLanes];
  for (int i = 1; i < kLanes; ++i) {
    const float x = partial[row * kLanes + i];
    all = is_max ? Maximum(all, x) : all + x;
  }
  Barrier();
  return ToBits(all);
}

INLINE void RunStep(const struct Piece* piece, const struct XladAttentionStep* step) {
  if (step->kind == XLAD_STEP_MAX || step->kind == XLAD_STEP_SUM) {
    *NarrowOf(piece, step->result.number) = RoundTo(step->rounded_to, Reduce(piece, step));
    return;
  }
  if (step->result.kind == XLAD_NARROW) {
    *NarrowOf(piece, step->result.number) = RoundTo(step->rounded_to, ComputeElement(piece, step, 0));
    return;
  }
  const int row = Thread() / kLanes, lane = Thread() % kLanes;
  uint32_t* const result = WideOf(piece, step->result.number, row);
  const int is_checked = step->check_zero && piece->columns < piece->problem->columns;
  for (int64_t column = lane; column < piece->columns; column += kLanes) {
    const uint32_t value = RoundTo(step->rounded_to, ComputeElement(piece, step, column));
    result[column] = value;
    if (is_checked && column == piece->columns - 1 && FromBits(value) != 0) is_incomplete = 1;
  }
}

/* Computes the final values of the piece's rows in the first `columns` columns. Returns 0 if the other columns must be
 * computed, too. */
INLINE int RunColumns(struct Piece* piece, int64_t columns) {
  const struct XladAttentionProblem* problem = piece->problem;
  piece->columns = columns;
  if (Thread() == 0) is_incomplete = 0;
  Barrier();
  for (int i = 0; i < problem->products; ++i) {
    const struct XladAttentionProduct* product = &problem->product[i];
    if (product->mma == XLAD_BF16) {
      MultiplyScores(piece, product, XLAD_BF16);
    } else if (product->mma == XLAD_F16) {
      MultiplyScores(piece, product, XLAD_F16);
    } else {
      ComputeScores(piece, product);
    }
  }
  Barrier();
  for (int i = 0; i < problem->steps; ++i) RunStep(piece, &problem->step[i]);
  Barrier();
  const int is_complete = !is_incomplete;
  Barrier();
  return is_complete;
}

/* result[row, f] = sum over columns of a wide value times operand[column, f]. */
INLINE void StoreRowProduct(const struct Piece* piece, const struct XladAttentionResult* result) {
  const struct XladAttentionArray* operand = &piece->problem->array[result->operand];
  const struct XladAttentionArray* array = &piece->problem->array[result->array];
  const int row = Thread() / kLanes, lane = Thread() % kLanes;
  for (int64_t first = 0; first < result->width; first += kTile) {
    float sums[kEach] = {0, 0, 0, 0};
    for (int64_t depth = 0; depth < piece->columns; depth += kDepth) {
      const int64_t column = depth + lane;
      left_tile[row * (kDepth + 1) + lane] =
          column < piece->columns ? FromBits(WideOf(piece, result->slot, row)[column]) : 0;
      UNROLL for (int i = 0; i < kEach; ++i) {
        const int cell = Thread() + i * kThreads;
        const int64_t l = depth + cell / kTile, feature = first + cell % kTile;
        right_tile[cell / kTile * (kTile + 1) + cell % kTile] =
            l < piece->columns && feature < result->width
                ? Load(buffers[result->operand],
                       batch_offsets[result->operand] + l * operand->column + feature * operand->feature,
                       operand->element)
                : 0;
      }
      AddTiles(sums);
    }
    UNROLL for (int j = 0; j < kEach; ++j) {
      const int64_t feature = first + lane + j * kLanes;
      if (row >= piece->count || feature >= result->width) continue;
      Store(buffers[result->array], row_offsets[result->array * kRows + row] + feature * array->feature, array->element,
            sums[j]);
    }
  }
}

/* StoreRowProduct by tensor cores. */
INLINE void MultiplyRows(const struct Piece* piece, const struct XladAttentionResult* result, int mma) {
  const struct XladAttentionArray* operand = &piece->problem->array[result->operand];
  const struct XladAttentionArray* array = &piece->problem->array[result->array];
  const int group = MmaGroup(), pair = MmaPair();
  const uint32_t* values[2];
  UNROLL for (int i = 0; i < 2; ++i) values[i] = WideOf(piece, result->slot, group + i * 8);
  for (int64_t first = Thread() / XLAD_WARP * 8; first < result->width; first += kWarps * 8) {
    const uint16_t* const factors = (const uint16_t*)buffers[result->operand] + batch_offsets[result->operand] +
                                    Min(first + group, result->width - 1) * operand->feature;
    float sums[4] = {0, 0, 0, 0};
    for (int64_t depth = pair; depth < piece->columns + pair; depth += kDepth) {
      uint32_t a[4], b[2];
      UNROLL for (int i = 0; i < 4; ++i) a[i] = LoadPairOfFloats(values[i % 2], depth + i / 2 * 8, piece->columns, mma);
      UNROLL for (int i = 0; i < 2; ++i) b[i] = LoadPair(factors, operand->column, depth + i * 8, piece->columns);
      Mma(a, b, mma, sums);
    }
    UNROLL for (int i = 0; i < 4; ++i) {
      const int row = group + i / 2 * 8;
      const int64_t feature = first + pair + i % 2;
      if (row >= piece->count || feature >= result->width) continue;
      Store(buffers[result->array], row_offsets[result->array * kRows + row] + feature * array->feature, array->element,
            sums[i]);
    }
  }
}

/* sums[column, f] += sum over the piece's rows of a wide value times operand[row, f]. */
INLINE void AddColumnProduct(const struct Piece* piece, const struct XladAttentionResult* result, float* sums) {
  const struct XladAttentionArray* operand = &piece->problem->array[result->operand];
  for (int64_t i = Thread(); i < piece->columns * result->width; i += kThreads) {
    const int64_t column = i / result->width, feature = i % result->width;
    float sum = sums[i];
    for (int row = 0; row < piece->count; ++row) {
      const float factor =
          Load(buffers[result->operand], row_offsets[result->operand * kRows + row] + feature * operand->feature,
               operand->element);
      sum = __builtin_fmaf(FromBits(WideOf(piece, result->slot, row)[column]), factor, sum);
    }
    sums[i] = sum;
  }
}

/* AddColumnProduct by tensor cores. A warp multiplies 16 columns and 8 features of all rows. */
INLINE void MultiplyColumns(const struct Piece* piece, const struct XladAttentionResult* result, float* sums, int mma) {
  const struct XladAttentionArray* operand = &piece->problem->array[result->operand];
  const int group = MmaGroup(), pair = MmaPair();
  const int64_t feature_tiles = (result->width + 7) / 8, tiles = (piece->columns + 15) / 16 * feature_tiles;
  for (int64_t tile = Thread() / XLAD_WARP; tile < tiles; tile += kWarps) {
    const int64_t first_column = tile / feature_tiles * 16, first_feature = tile % feature_tiles * 8;
    uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
    float products[4];
    /* Rows at and after `count` stay 0. */
    UNROLL for (int i = 0; i < 8; ++i) {
      const int row = pair + i / 4 * 8 + i % 2;
      const int64_t column = Min(first_column + group + i / 2 % 2 * 8, piece->columns - 1);
      const uint32_t value = row < piece->count ? ToHalf(WideOf(piece, result->slot, row)[column], mma) : 0;
      a[i / 2] |= value << (i % 2 * 16);
    }
    UNROLL for (int i = 0; i < 4; ++i) {
      const int row = pair + i / 2 * 8 + i % 2;
      const int64_t at =
          row_offsets[result->operand * kRows + row] + Min(first_feature + group, result->width - 1) * operand->feature;
      const uint32_t value = row < piece->count ? ((const uint16_t*)buffers[result->operand])[at] : 0;
      b[i / 2] |= value << (i % 2 * 16);
    }
    UNROLL for (int i = 0; i < 4; ++i) {
      const int64_t column = first_column + group + i / 2 * 8, feature = first_feature + pair + i % 2;
      const int is_inside = column < piece->columns && feature < result->width;
      products[i] = is_inside ? sums[column * result->width + feature] : 0;
    }
    Mma(a, b, mma, products);
    UNROLL for (int i = 0; i < 4; ++i) {
      const int64_t column = first_column + group + i / 2 * 8, feature = first_feature + pair + i % 2;
      if (column < piece->columns && feature < result->width) sums[column * result->width + feature] = products[i];
    }
  }
}

INLINE void StoreProduct(const struct Piece* piece, const struct XladAttentionResult* result, float* sums) {
  const int is_of_rows = result->kind == XLAD_ROW_PRODUCT;
  if (result->mma == XLAD_BF16) {
    if (is_of_rows) {
      MultiplyRows(piece, result, XLAD_BF16);
    } else {
      MultiplyColumns(piece, result, sums, XLAD_BF16);
    }
  } else if (result->mma == XLAD_F16) {
    if (is_of_rows) {
      MultiplyRows(piece, result, XLAD_F16);
    } else {
      MultiplyColumns(piece, result, sums, XLAD_F16);
    }
  } else if (is_of_rows) {
    StoreRowProduct(piece, result);
  } else {
    AddColumnProduct(piece, result, sums);
  }
}

INLINE void StoreResults(const struct Piece* piece, float* sums) {
  const struct XladAttentionProblem* problem = piece->problem;
  const int row = Thread() / kLanes;
  for (int i = 0; i < problem->results; ++i) {
    const struct XladAttentionResult* result = &problem->result[i];
    if (result->kind != XLAD_ROW_VALUE) {
      StoreProduct(piece, result, sums + result->sums);
    } else if (Thread() % kLanes == 0 && row < piece->count) {
      StoreWord(buffers[result->array], row_offsets[result->array * kRows + row], problem->array[result->array].element,
                *NarrowOf(piece, result->slot));
    }
  }
}

INLINE void RunTask(struct Piece* piece, int64_t task, float* sums) {
  const struct XladAttentionProblem* problem = piece->problem;
  const int32_t* block_columns = (const int32_t*)(problem + 1);
  const int64_t group = task % problem->groups;
  piece->batch = task / problem->groups;
  for (int64_t i = Thread(); i < problem->task_sums; i += kThreads) sums[i] = 0;
  const int64_t end = Min(problem->pieces, (group + 1) * problem->group_pieces);
  for (int64_t number = group * problem->group_pieces; number < end; ++number) {
    const int64_t block = number / problem->block_pieces, first = block * problem->block_rows;
    piece->first = first + number % problem->block_pieces * kRows;
    piece->count = Min(kRows, Min(problem->all_rows, first + problem->block_rows) - piece->first);
    if (piece->count <= 0) continue;
    SetOffsets(piece);
    if (!RunColumns(piece, block_columns[block])) RunColumns(piece, problem->columns);
    StoreResults(piece, sums);
    Barrier();
  }
}

#define BUFFERS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define PARAMETER(i) , void* buffer##i
#define SET(i) buffers[i] = buffer##i;

KERNEL void xlad_attention(const struct XladAttentionProblem* problem, uint32_t* scratch BUFFERS(PARAMETER)) {
  if (Thread() == 0) {
    BUFFERS(SET)
  }
  struct Piece piece;
  piece.problem = problem;
  piece.narrow = scratch + Block() * problem->block_scratch + Thread();
  piece.wide = scratch + Block() * problem->block_scratch + problem->narrow_slots * kThreads;
  for (int i = 0; i < problem->constants; ++i) *NarrowOf(&piece, i) = problem->constant[i];
  Barrier();
  float* const all_sums = (float*)(scratch + problem->blocks * problem->block_scratch);
  for (int64_t task = Block(); task < problem->tasks; task += problem->blocks) {
    RunTask(&piece, task, all_sums + task * problem->task_sums);
  }
}

/* Adds the sums of the groups in order. There is one thread for each sum of each entry of the batch. */
KERNEL void xlad_attention_sums(const struct XladAttentionProblem* problem, uint32_t* scratch BUFFERS(PARAMETER)) {
  if (Thread() == 0) {
    BUFFERS(SET)
  }
  Barrier();
  const int64_t index = Block() * kThreads + Thread();
  if (index >= problem->batches * problem->task_sums) return;
  const int64_t batch = index / problem->task_sums, place = index % problem->task_sums;
  const float* sums = (const float*)(scratch + problem->blocks * problem->block_scratch) +
                      batch * problem->groups * problem->task_sums + place;
  float sum = sums[0];
  for (int64_t group = 1; group < problem->groups; ++group) sum += sums[group * problem->task_sums];
  for (int i = 0; i < problem->results; ++i) {
    const struct XladAttentionResult* result = &problem->result[i];
    const int64_t at = place - result->sums;
    if (result->kind != XLAD_COLUMN_PRODUCT || at < 0 || at >= problem->columns * result->width) continue;
    const struct XladAttentionArray* array = &problem->array[result->array];
    const int64_t offset = OffsetOf(batch, problem->batch, array->batch) + at / result->width * array->column +
                           at % result->width * array->feature;
    Store(buffers[result->array], offset, array->element, sum);
  }
}
