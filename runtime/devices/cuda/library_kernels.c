/* Matrix products and convolutions on a GPU, compiled to PTX by the build. Sums are computed in f32 (f64 and s32 for
 * operands of f64 and s8) in a fixed order of the elements, so that results do not depend on the GPU. Only the results
 * of tensor cores do: they depend on how the GPU adds the 16 products of an instruction. */
#include "runtime/devices/cuda/library_kernels.h"

#include "runtime/devices/cuda/kernel_mma.h"
#include "runtime/devices/cuda/kernel_support.h"

struct Offsets {
  int64_t lhs, rhs, result;
};

/* The offsets into the three arrays for an index into a nest of loops. */
INLINE struct Offsets OffsetsOf(const struct XladDotLoop* loops, int64_t index) {
  struct Offsets at = {0, 0, 0};
#pragma unroll
  for (int i = XLAD_DOT_LOOPS - 1; i >= 0; --i) {
    const int64_t size = loops[i].size;
    if (size == 1) continue;
    const int64_t position = i > 0 ? index % size : index;
    if (i > 0) index /= size;
    at.lhs += position * loops[i].lhs;
    at.rhs += position * loops[i].rhs;
    at.result += position * loops[i].result;
  }
  return at;
}

enum { kDepth = 16, kSide = 16 }; /* The depth of a tile, and the threads along each side of a tile. */

/* A block of 16 x 16 threads computes a tile of `TILE` x `TILE` elements, and each thread computes TILE/16 x TILE/16 of
 * them. Slices of both operands are in shared memory. */
#define DOT(name, TILE, Number, LOAD, STORE)                                                                     \
  static SHARED Number name##_lhs[kDepth * (TILE + 1)], name##_rhs[kDepth * (TILE + 1)];                         \
  KERNEL void name(const struct XladDotProblem* problem, const void* lhs, const void* rhs, void* result) {       \
    enum { kEach = TILE / kSide, kLoads = TILE * kDepth / (kSide * kSide) };                                     \
    const int thread = Thread(), x = thread % kSide, y = thread / kSide;                                         \
    int64_t block = Block();                                                                                     \
    const int64_t first_n = block % problem->column_tiles * TILE;                                                \
    block /= problem->column_tiles;                                                                              \
    const int64_t first_m = block % problem->row_tiles * TILE;                                                   \
    const struct Offsets batch = OffsetsOf(problem->loops[0], block / problem->row_tiles);                       \
    Number sums[kEach][kEach];                                                                                   \
    UNROLL for (int i = 0; i < kEach; ++i) { UNROLL for (int j = 0; j < kEach; ++j) sums[i][j] = 0; }            \
    for (int64_t first_k = 0; first_k < problem->k; first_k += kDepth) {                                         \
      UNROLL for (int i = 0; i < kLoads; ++i) {                                                                  \
        const int cell = thread + i * kSide * kSide, depth = cell % kDepth, side = cell / kDepth;                \
        const int64_t m = first_m + side, n = first_n + side, k = first_k + depth;                               \
        const struct Offsets of_k = OffsetsOf(problem->loops[3], k);                                             \
        name##_lhs[depth * (TILE + 1) + side] =                                                                  \
            m < problem->m && k < problem->k                                                                     \
                ? LOAD(lhs, batch.lhs + OffsetsOf(problem->loops[1], m).lhs + of_k.lhs, problem->lhs_element)    \
                : 0;                                                                                             \
        name##_rhs[depth * (TILE + 1) + side] =                                                                  \
            n < problem->n && k < problem->k                                                                     \
                ? LOAD(rhs, batch.rhs + OffsetsOf(problem->loops[2], n).rhs + of_k.rhs, problem->rhs_element)    \
                : 0;                                                                                             \
      }                                                                                                          \
      Barrier();                                                                                                 \
      UNROLL for (int depth = 0; depth < kDepth; ++depth) {                                                      \
        UNROLL for (int i = 0; i < kEach; ++i) {                                                                 \
          UNROLL for (int j = 0; j < kEach; ++j) {                                                               \
            sums[i][j] +=                                                                                        \
                name##_lhs[depth * (TILE + 1) + y + i * kSide] * name##_rhs[depth * (TILE + 1) + x + j * kSide]; \
          }                                                                                                      \
        }                                                                                                        \
      }                                                                                                          \
      Barrier();                                                                                                 \
    }                                                                                                            \
    UNROLL for (int i = 0; i < kEach; ++i) {                                                                     \
      const int64_t m = first_m + y + i * kSide;                                                                 \
      const int64_t of_m = OffsetsOf(problem->loops[1], m).result;                                               \
      UNROLL for (int j = 0; j < kEach; ++j) {                                                                   \
        const int64_t n = first_n + x + j * kSide;                                                               \
        if (m >= problem->m || n >= problem->n) continue;                                                        \
        STORE(result, batch.result + of_m + OffsetsOf(problem->loops[2], n).result, problem->result_element,     \
              sums[i][j]);                                                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }

/* Elements of f64 and s8, whose sums are in f64 and s32. */
INLINE double LoadF64(const void* array, int64_t index, int element) {
  (void)element;
  return ((const double*)array)[index];
}
INLINE void StoreF64(void* array, int64_t index, int element, double value) {
  (void)element;
  ((double*)array)[index] = value;
}
INLINE uint32_t LoadS8(const void* array, int64_t index, int element) {
  (void)element;
  return (uint32_t)(int32_t)((const int8_t*)array)[index];
}
/* Sums of s32 wrap around, so they are computed as u32. */
INLINE void StoreS32(void* array, int64_t index, int element, uint32_t value) {
  (void)element;
  ((uint32_t*)array)[index] = value;
}

DOT(xlad_dot_small, XLAD_DOT_SMALL_TILE, float, Load, Store)
DOT(xlad_dot_large, XLAD_DOT_LARGE_TILE, float, Load, Store)
DOT(xlad_dot_f64_small, XLAD_DOT_SMALL_TILE, double, LoadF64, StoreF64)
DOT(xlad_dot_f64_large, XLAD_DOT_LARGE_TILE, double, LoadF64, StoreF64)
DOT(xlad_dot_s8_small, XLAD_DOT_SMALL_TILE, uint32_t, LoadS8, StoreS32)
DOT(xlad_dot_s8_large, XLAD_DOT_LARGE_TILE, uint32_t, LoadS8, StoreS32)

/* Products of bf16 and f16 by tensor cores. A block of 256 threads computes a tile of `tile` x `tile` elements, where
 * `tile` is 64 or 128; its 8 warps compute 2 x 4 parts of it. Slices of both operands, kSlice deep, are in shared
 * memory. While the warps multiply a slice, they load the next one to registers and store it to a second buffer. */
enum { kSlice = 32, kRowStride = kSlice + 8 }; /* The padding avoids conflicts between banks. */

typedef uint32_t Eight __attribute__((vector_size(16))); /* 8 elements of 16 bits. */

/* An operand of a product by tensor cores: a matrix of sides (the rows of lhs, the columns of rhs) and depths. */
struct Matrix {
  const uint16_t* elements; /* The elements of one entry of the batch. */
  const struct XladDotLoop *sides, *depths;
  int64_t side_end, depth_end;
  int is_rhs, vectors; /* An XladDotVectors. */
};

INLINE int64_t OffsetIn(const struct Matrix* m, const struct XladDotLoop* loops, int64_t index) {
  const struct Offsets offsets = OffsetsOf(loops, index);
  return m->is_rhs ? offsets.rhs : offsets.lhs;
}

/* The elements first, ..., first + 7 along `loops`. Elements at or after `end` are 0. */
INLINE Eight LoadEight(const struct Matrix* m, const uint16_t* from, const struct XladDotLoop* loops, int64_t first,
                       int64_t end) {
  if (m->vectors != XLAD_DOT_NO_VECTORS && first + 8 <= end) {
    const uint16_t* const at = from + OffsetIn(m, loops, first);
    if (((uintptr_t)at & 15) == 0) return *(const Eight*)at;
  }
  uint64_t low = 0, high = 0;
#pragma nounroll
  for (int e = 0; e < 8; ++e) {
    const uint64_t bits = first + e < end ? from[OffsetIn(m, loops, first + e)] : 0;
    low = low >> 16 | high << 48;
    high = high >> 16 | bits << 48;
  }
  const Eight eight = {(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)};
  return eight;
}

/* Loads this thread's part of the slice that begins at `first_side` and `first_depth`: tile / 64 vectors of 8 elements,
 * along depths or sides. */
INLINE void LoadSlice(const struct Matrix* m, int64_t first_side, int64_t first_depth, int tile, Eight* to) {
  const int along_sides = m->vectors == XLAD_DOT_SIDE_VECTORS;
  const struct XladDotLoop *const along = along_sides ? m->sides : m->depths, *const across =
                                                                                  along_sides ? m->depths : m->sides;
  const int64_t end = along_sides ? m->side_end : m->depth_end, last = along_sides ? m->depth_end : m->side_end;
  UNROLL for (int v = 0; v < tile / 64; ++v) {
    const int64_t first = along_sides ? first_side + (Thread() / kSlice + v * 8) * 8 : first_depth + Thread() % 4 * 8;
    const int64_t at = along_sides ? first_depth + Thread() % kSlice : first_side + Thread() / 4 + v * 64;
    const Eight zero = {0, 0, 0, 0};
    to[v] = at < last ? LoadEight(m, m->elements + OffsetIn(m, across, at), along, first, end) : zero;
  }
}

INLINE void StoreSlice(const struct Matrix* m, const Eight* from, int tile, SHARED uint16_t* to) {
  UNROLL for (int v = 0; v < tile / 64; ++v) {
    if (m->vectors == XLAD_DOT_SIDE_VECTORS) {
      SHARED uint16_t* const at = to + (Thread() / kSlice + v * 8) * 8 * kRowStride + Thread() % kSlice;
      UNROLL for (int e = 0; e < 8; ++e) at[e * kRowStride] = (uint16_t)(from[v][e / 2] >> (e % 2 * 16));
    } else {
      *(SHARED Eight*)(to + (Thread() / 4 + v * 64) * kRowStride + Thread() % 4 * 8) = from[v];
    }
  }
}

INLINE uint32_t PairAt(const SHARED uint16_t* slice, int side, int depth) {
  return *(const SHARED uint32_t*)(slice + side * kRowStride + depth);
}

/* Adds the product of two slices to this warp's part of the tile. `lhs` and `rhs` point to the part's first sides. */
INLINE void MultiplySlices(const SHARED uint16_t* lhs, const SHARED uint16_t* rhs, int tile, int element,
                           float (*sums)[4][4]) {
  const int group = MmaGroup(), pair = MmaPair();
  UNROLL for (int depth = 0; depth < kSlice; depth += 16) {
    uint32_t b[4][2];
    UNROLL for (int j = 0; j < tile / 32; ++j) {
      UNROLL for (int r = 0; r < 2; ++r) b[j][r] = PairAt(rhs, j * 8 + group, depth + pair + r * 8);
    }
    UNROLL for (int i = 0; i < tile / 32; ++i) {
      uint32_t a[4];
      UNROLL for (int r = 0; r < 4; ++r) { a[r] = PairAt(lhs, i * 16 + group + r % 2 * 8, depth + pair + r / 2 * 8); }
      UNROLL for (int j = 0; j < tile / 32; ++j) Mma(a, b[j], element, sums[i][j]);
    }
  }
}

INLINE void MultiplyTile(const struct XladDotProblem* problem, const void* const* arrays, int tile, int element,
                         SHARED uint16_t* shared) {
  int64_t block = Block();
  const int64_t first_n = block % problem->column_tiles * tile;
  block /= problem->column_tiles;
  const int64_t first_m = block % problem->row_tiles * tile;
  const struct Offsets batch = OffsetsOf(problem->loops[0], block / problem->row_tiles);
  const struct Matrix lhs = {(const uint16_t*)arrays[0] + batch.lhs,
                             problem->loops[1],
                             problem->loops[3],
                             problem->m,
                             problem->k,
                             0,
                             problem->lhs_vectors};
  const struct Matrix rhs = {(const uint16_t*)arrays[1] + batch.rhs,
                             problem->loops[2],
                             problem->loops[3],
                             problem->n,
                             problem->k,
                             1,
                             problem->rhs_vectors};
  const int slice = tile * kRowStride, warp = Thread() / XLAD_WARP;
  const int warp_m = warp % 2 * (tile / 2), warp_n = warp / 2 * (tile / 4);
  float sums[4][4][4];
  UNROLL for (int i = 0; i < 64; ++i) sums[i / 16][i / 4 % 4][i % 4] = 0;
  Eight next_lhs[2], next_rhs[2];
  int buffer = 0;
  for (int64_t next = 0;; next += kSlice) { /* The depth of the slice after the current one. */
    const int has_next = next < problem->k;
    if (has_next) {
      LoadSlice(&lhs, first_m, next, tile, next_lhs);
      LoadSlice(&rhs, first_n, next, tile, next_rhs);
    }
    const SHARED uint16_t* const slices = shared + (buffer ^ 1) * 2 * slice;
    if (next > 0) {
      MultiplySlices(slices + warp_m * kRowStride, slices + slice + warp_n * kRowStride, tile, element, sums);
    }
    if (!has_next) break;
    /* All warps have finished the product that used this buffer, because they have passed the barrier after it. */
    StoreSlice(&lhs, next_lhs, tile, shared + buffer * 2 * slice);
    StoreSlice(&rhs, next_rhs, tile, shared + (buffer * 2 + 1) * slice);
    Barrier();
    buffer ^= 1;
  }
  int64_t columns[4][2];
  UNROLL for (int j = 0; j < tile / 32; ++j) {
    UNROLL for (int r = 0; r < 2; ++r) {
      columns[j][r] = OffsetsOf(problem->loops[2], first_n + warp_n + j * 8 + MmaPair() + r).result;
    }
  }
  UNROLL for (int i = 0; i < tile / 32 * 2; ++i) {
    const int64_t m = first_m + warp_m + i * 8 + MmaGroup();
    if (m >= problem->m) continue;
    const int64_t row = batch.result + OffsetsOf(problem->loops[1], m).result;
    UNROLL for (int j = 0; j < tile / 32; ++j) {
      UNROLL for (int r = 0; r < 2; ++r) {
        const int64_t n = first_n + warp_n + j * 8 + MmaPair() + r;
        if (n >= problem->n) continue;
        Store((void*)arrays[2], row + columns[j][r], problem->result_element, sums[i / 2][j][i % 2 * 2 + r]);
      }
    }
  }
}

#define DOT_MMA(name, tile, element)                                                                       \
  KERNEL void name(const struct XladDotProblem* problem, const void* lhs, const void* rhs, void* result) { \
    static SHARED uint16_t __attribute__((aligned(16))) shared[2 * 2 * tile * kRowStride];                 \
    const void* const arrays[] = {lhs, rhs, result};                                                       \
    MultiplyTile(problem, arrays, tile, element, shared);                                                  \
  }

DOT_MMA(xlad_dot_mma_bf16_small, XLAD_DOT_SMALL_MMA_TILE, XLAD_BF16)
DOT_MMA(xlad_dot_mma_bf16_large, XLAD_DOT_LARGE_MMA_TILE, XLAD_BF16)
DOT_MMA(xlad_dot_mma_f16_small, XLAD_DOT_SMALL_MMA_TILE, XLAD_F16)
DOT_MMA(xlad_dot_mma_f16_large, XLAD_DOT_LARGE_MMA_TILE, XLAD_F16)

/* The position of the input that a position of the window covers, or -1. */
INLINE int64_t InputPosition(const struct XladConvolutionDim* dim, int64_t output, int64_t window) {
  const int64_t at = output * dim->window_stride + window * dim->window_dilation - dim->padding_low;
  if (at < 0 || at % dim->base_dilation != 0 || at / dim->base_dilation >= dim->input_size) return -1;
  return at / dim->base_dilation;
}

/* There is one thread for each element of the result. */
KERNEL void xlad_convolution(const struct XladConvolutionProblem* problem, const void* input, const void* kernel,
                             void* result) {
  int64_t index = Block() * XLAD_CONVOLUTION_THREADS + Thread();
  if (index >= problem->outputs) return;
  const struct XladConvolutionDim *a = &problem->dims[0], *b = &problem->dims[1], *c = &problem->dims[2];
  const int64_t z = index % c->output_size, y = index / c->output_size % b->output_size;
  index /= c->output_size * b->output_size;
  const int64_t x = index % a->output_size, feature = index / a->output_size % problem->output_features;
  const int64_t n = index / a->output_size / problem->output_features;
  const int64_t group = feature / problem->output_features_per_group;
  float sum = 0;
  for (int64_t i = 0; i < a->kernel_size; ++i) {
    const int64_t at_i = InputPosition(a, x, i);
    if (at_i < 0) continue;
    const int64_t from_i = (a->reversal ? a->kernel_size - 1 - i : i) * a->kernel_stride;
    for (int64_t j = 0; j < b->kernel_size; ++j) {
      const int64_t at_j = InputPosition(b, y, j);
      if (at_j < 0) continue;
      const int64_t from_j = (b->reversal ? b->kernel_size - 1 - j : j) * b->kernel_stride;
      for (int64_t k = 0; k < c->kernel_size; ++k) {
        const int64_t at_k = InputPosition(c, z, k);
        if (at_k < 0) continue;
        int64_t from = n * problem->input_batch_stride +
                       group * problem->features_per_group * problem->input_feature_stride + at_i * a->input_stride +
                       at_j * b->input_stride + at_k * c->input_stride;
        int64_t weight = feature * problem->kernel_output_stride + from_i + from_j +
                         (c->reversal ? c->kernel_size - 1 - k : k) * c->kernel_stride;
        for (int64_t f = 0; f < problem->features_per_group; ++f) {
          sum += Load(input, from, problem->input_element) * Load(kernel, weight, problem->kernel_element);
          from += problem->input_feature_stride;
          weight += problem->kernel_input_stride;
        }
      }
    }
  }
  Store(result,
        n * problem->output_batch_stride + feature * problem->output_feature_stride + x * a->output_stride +
            y * b->output_stride + z * c->output_stride,
        problem->result_element, sum);
}
