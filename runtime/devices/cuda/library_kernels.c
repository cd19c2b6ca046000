/* Matrix products and convolutions on a GPU, compiled to PTX by the build. Sums are computed in
 * f32 in a fixed order of the elements, so that results do not depend on the GPU. */
#include "runtime/devices/cuda/library_kernels.h"

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
    const int64_t position = index % size;
    index /= size;
    at.lhs += position * loops[i].lhs;
    at.rhs += position * loops[i].rhs;
    at.result += position * loops[i].result;
  }
  return at;
}

enum { kDepth = 16, kSide = 16 }; /* The depth of a tile, and the threads along each side of a tile. */

/* A block of 16 x 16 threads computes a tile of `TILE` x `TILE` elements, and each thread computes TILE/16 x TILE/16 of
 * them. Slices of both operands are in shared memory. */
#define DOT(name, TILE)                                                                                          \
  static SHARED float name##_lhs[kDepth * (TILE + 1)], name##_rhs[kDepth * (TILE + 1)];                          \
  KERNEL void name(const struct XladDotProblem* problem, const void* lhs, const void* rhs, void* result) {       \
    enum { kEach = TILE / kSide, kLoads = TILE * kDepth / (kSide * kSide) };                                     \
    const int thread = Thread(), x = thread % kSide, y = thread / kSide;                                         \
    int64_t block = Block();                                                                                     \
    const int64_t first_n = block % problem->column_tiles * TILE;                                                \
    block /= problem->column_tiles;                                                                              \
    const int64_t first_m = block % problem->row_tiles * TILE;                                                   \
    const struct Offsets batch = OffsetsOf(problem->loops[0], block / problem->row_tiles);                       \
    float sums[kEach][kEach];                                                                                    \
    UNROLL for (int i = 0; i < kEach; ++i) { UNROLL for (int j = 0; j < kEach; ++j) sums[i][j] = 0; }            \
    for (int64_t first_k = 0; first_k < problem->k; first_k += kDepth) {                                         \
      UNROLL for (int i = 0; i < kLoads; ++i) {                                                                  \
        const int cell = thread + i * kSide * kSide, depth = cell % kDepth, side = cell / kDepth;                \
        const int64_t m = first_m + side, n = first_n + side, k = first_k + depth;                               \
        const struct Offsets of_k = OffsetsOf(problem->loops[3], k);                                             \
        name##_lhs[depth * (TILE + 1) + side] =                                                                  \
            m < problem->m && k < problem->k                                                                     \
                ? Load(lhs, batch.lhs + OffsetsOf(problem->loops[1], m).lhs + of_k.lhs, problem->lhs_element)    \
                : 0;                                                                                             \
        name##_rhs[depth * (TILE + 1) + side] =                                                                  \
            n < problem->n && k < problem->k                                                                     \
                ? Load(rhs, batch.rhs + OffsetsOf(problem->loops[2], n).rhs + of_k.rhs, problem->rhs_element)    \
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
        Store(result, batch.result + of_m + OffsetsOf(problem->loops[2], n).result, problem->result_element,     \
              sums[i][j]);                                                                                       \
      }                                                                                                          \
    }                                                                                                            \
  }

DOT(xlad_dot_small, XLAD_DOT_SMALL_TILE)
DOT(xlad_dot_large, XLAD_DOT_LARGE_TILE)

/* The position of the input that a position of the window covers, or -1. */
INLINE int64_t InputPosition(const struct XladConvolutionDim* dim, int64_t output, int64_t window) {
  const int64_t at = output * dim->window_stride + window * dim->window_dilation - dim->padding_low;
  if (at < 0 || at % dim->base_dilation != 0 || at / dim->base_dilation >= dim->input_size) return -1;
  return at / dim->base_dilation;
}

/* One thread for each element of the result. */
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
