/* The parameters of the kernels of library_kernels.c, in the form in which the host writes them into the GPU's memory.
 * This header is C, because the kernels include it too. Strides are in elements. */
#ifndef XLAD_RUNTIME_DEVICES_CUDA_LIBRARY_KERNELS_H_
#define XLAD_RUNTIME_DEVICES_CUDA_LIBRARY_KERNELS_H_

#include <stdint.h>

#include "runtime/devices/cuda/kernel_element.h"

#define XLAD_DOT_LOOPS 3
#define XLAD_DOT_SMALL_TILE 16
#define XLAD_DOT_LARGE_TILE 64
#define XLAD_DOT_SMALL_MMA_TILE 64 /* Tiles of the kernels that use tensor cores. */
#define XLAD_DOT_LARGE_MMA_TILE 128
#define XLAD_DOT_THREADS 256
#define XLAD_CONVOLUTION_DIMS 3
#define XLAD_CONVOLUTION_THREADS 128

/* A loop over an extent, and the strides of the three arrays along it. */
struct XladDotLoop {
  int64_t size, lhs, rhs, result;
};

/* Whether 8 elements of an operand, beginning at a multiple of 8 along k (XLAD_DOT_DEPTH_VECTORS) or along m or n
 * (XLAD_DOT_SIDE_VECTORS), are adjacent in memory. Only the kernels that use tensor cores read this. */
enum XladDotVectors { XLAD_DOT_NO_VECTORS, XLAD_DOT_DEPTH_VECTORS, XLAD_DOT_SIDE_VECTORS };

/* result[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]. Each of b, m, n and k is a nest of loops, outermost
 * first. Unused loops have size 1. */
struct XladDotProblem {
  int64_t batch, m, n, k;
  int64_t row_tiles, column_tiles; /* For each index of the batch. */
  int32_t lhs_element, rhs_element, result_element;
  int32_t lhs_vectors, rhs_vectors, unused; /* XladDotVectors. */
  struct XladDotLoop loops[4][XLAD_DOT_LOOPS]; /* The nests of b, m, n and k. */
};

/* A dimension of the window. */
struct XladConvolutionDim {
  int64_t input_size, input_stride, kernel_size, kernel_stride, output_size, output_stride;
  int64_t window_stride, padding_low, window_dilation, base_dilation, reversal;
};

/* result[n, o, x..] = sum over c and k.. of input[n, c, p..] * kernel[o, c, k..], where
 * p = (x * stride + k * dilation - padding) / base dilation. Terms whose p has a remainder or is outside of the input
 * are left out. c counts the features of o's group. If reversal is set, the kernel's positions are counted from its
 * end. */
struct XladConvolutionProblem {
  int64_t outputs, batch, output_features, features_per_group, output_features_per_group;
  int64_t input_batch_stride, input_feature_stride, kernel_input_stride, kernel_output_stride;
  int64_t output_batch_stride, output_feature_stride;
  int32_t input_element, kernel_element, result_element, unused;
  struct XladConvolutionDim dims[XLAD_CONVOLUTION_DIMS]; /* Unused dimensions have size 1. */
};

#endif /* XLAD_RUNTIME_DEVICES_CUDA_LIBRARY_KERNELS_H_ */
