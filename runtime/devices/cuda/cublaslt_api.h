// The functions of cuBLASLt (libcublasLt.so) that xlad calls. The types are declared here, so that xlad can be built
// without CUDA. cublaslt_api_test.cc compares the declarations with CUDA's header if CUDA is installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/devices/cuda/driver_api.h"

namespace xlad::runtime::cuda {

// cublasStatus_t.
using LtStatus = int;
inline constexpr LtStatus kLtSuccess = 0, kLtNotInitialized = 1, kLtAllocFailed = 3, kLtInvalidValue = 7,
                          kLtArchMismatch = 8, kLtExecutionFailed = 13, kLtInternalError = 14, kLtNotSupported = 15;

using LtHandle = struct LtHandleObject *;
using LtMatmulDesc = struct LtMatmulDescObject *;
using LtLayout = struct LtLayoutObject *;
using LtPreference = struct LtPreferenceObject *;

// cublasLtMatmulAlgo_t.
struct LtAlgorithm {
  uint64_t data[8] = {};
};
// cublasLtMatmulHeuristicResult_t.
struct LtHeuristicResult {
  LtAlgorithm algorithm;
  size_t workspace_bytes = 0;
  LtStatus state = kLtNotSupported;
  float waves = 0;
  int reserved[4] = {};
};

// cudaDataType_t.
inline constexpr int kLtF32 = 0, kLtF64 = 1, kLtF16 = 2, kLtS8 = 3, kLtS32 = 10, kLtBf16 = 14;
// CUBLAS_COMPUTE_32F, _64F and _32I.
inline constexpr int kLtComputeF32 = 68, kLtComputeF64 = 70, kLtComputeS32 = 72;
inline constexpr int32_t kLtNoTranspose = 0, kLtTranspose = 1;           // CUBLAS_OP_N, CUBLAS_OP_T
inline constexpr int kLtDescTransposeA = 3, kLtDescTransposeB = 4;       // CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
inline constexpr int kLtLayoutBatchCount = 5, kLtLayoutBatchStride = 6;  // CUBLASLT_MATRIX_LAYOUT_
inline constexpr int kLtPreferWorkspaceBytes = 1, kLtPreferReductionSchemes = 3;  // CUBLASLT_MATMUL_PREF_
inline constexpr int kLtPreferAlignmentA = 5, kLtPreferAlignmentB = 6, kLtPreferAlignmentC = 7, kLtPreferAlignmentD = 8;
// cublasLtReductionScheme_t.
inline constexpr uint32_t kLtReductionNone = 0, kLtReductionInplace = 1, kLtReductionComputeType = 2,
                          kLtReductionOutputType = 4;

#define XLAD_CUBLASLT_HEURISTIC_PARAMETERS                                                                     \
  LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtPreference preference, \
      int requested, LtHeuristicResult *results, int *returned
#define XLAD_CUBLASLT_MATMUL_PARAMETERS                                                                   \
  LtHandle handle, LtMatmulDesc desc, const void *alpha, const void *a, LtLayout a_layout, const void *b, \
      LtLayout b_layout, const void *beta, const void *c, LtLayout c_layout, void *d, LtLayout d_layout,  \
      const LtAlgorithm *algorithm, void *workspace, size_t workspace_bytes, StreamHandle stream

// Each function with its result and parameters. The names are those of the symbols in the library.
#define XLAD_CUBLASLT_FUNCTIONS(F)                                                                                \
  F(size_t, cublasLtGetVersion, ())                                                                               \
  F(const char *, cublasLtGetStatusName, (LtStatus status))                                                       \
  F(LtStatus, cublasLtCreate, (LtHandle * handle))                                                                \
  F(LtStatus, cublasLtDestroy, (LtHandle handle))                                                                 \
  F(LtStatus, cublasLtMatmulDescCreate, (LtMatmulDesc * desc, int compute_type, int scale_type))                  \
  F(LtStatus, cublasLtMatmulDescDestroy, (LtMatmulDesc desc))                                                     \
  F(LtStatus, cublasLtMatmulDescSetAttribute, (LtMatmulDesc desc, int attribute, const void *value, size_t size)) \
  F(LtStatus, cublasLtMatrixLayoutCreate,                                                                         \
    (LtLayout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading_dimension))                    \
  F(LtStatus, cublasLtMatrixLayoutDestroy, (LtLayout layout))                                                     \
  F(LtStatus, cublasLtMatrixLayoutSetAttribute, (LtLayout layout, int attribute, const void *value, size_t size)) \
  F(LtStatus, cublasLtMatmulPreferenceCreate, (LtPreference * preference))                                        \
  F(LtStatus, cublasLtMatmulPreferenceDestroy, (LtPreference preference))                                         \
  F(LtStatus, cublasLtMatmulPreferenceSetAttribute,                                                               \
    (LtPreference preference, int attribute, const void *value, size_t size))                                     \
  F(LtStatus, cublasLtMatmulAlgoGetHeuristic, (XLAD_CUBLASLT_HEURISTIC_PARAMETERS))                               \
  F(LtStatus, cublasLtMatmul, (XLAD_CUBLASLT_MATMUL_PARAMETERS))

}  // namespace xlad::runtime::cuda
