// Compares the declarations of cuBLASLt's functions with those of CUDA's header, and passes descriptors to the library.
// A test is skipped if the header or library that it needs is not installed. No GPU is needed.
#include "runtime/devices/cuda/cublaslt_api.h"

#include <gtest/gtest.h>

#include <utility>

#include "runtime/devices/cuda/cublaslt.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <cstddef>

#include "runtime/devices/cuda/same_function.h"

namespace xlad::runtime::cuda {
namespace {

#define XLAD_COMPARE_LT(result, name, parameters) \
  using Lt_##name = result parameters;            \
  static_assert(SameFunction<Lt_##name, decltype(::name)>::value, #name " differs from CUDA's declaration");
XLAD_CUBLASLT_FUNCTIONS(XLAD_COMPARE_LT)

static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(alignof(LtAlgorithm) == alignof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(LtHeuristicResult, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo));
static_assert(offsetof(LtHeuristicResult, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(LtHeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(LtHeuristicResult, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));

TEST(CublasLtApiTest, ConstantsAreThoseOfCuda) {
  EXPECT_EQ(kLtSuccess, CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(kLtNotInitialized, CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(kLtAllocFailed, CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(kLtInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(kLtArchMismatch, CUBLAS_STATUS_ARCH_MISMATCH);
  EXPECT_EQ(kLtExecutionFailed, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(kLtInternalError, CUBLAS_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(kLtNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(kLtF32, CUDA_R_32F);
  EXPECT_EQ(kLtF16, CUDA_R_16F);
  EXPECT_EQ(kLtBf16, CUDA_R_16BF);
  EXPECT_EQ(kLtF64, CUDA_R_64F);
  EXPECT_EQ(kLtS8, CUDA_R_8I);
  EXPECT_EQ(kLtS32, CUDA_R_32I);
  EXPECT_EQ(kLtComputeF32, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(kLtComputeF64, CUBLAS_COMPUTE_64F);
  EXPECT_EQ(kLtComputeS32, CUBLAS_COMPUTE_32I);
  EXPECT_EQ(kLtNoTranspose, CUBLAS_OP_N);
  EXPECT_EQ(kLtTranspose, CUBLAS_OP_T);
  EXPECT_EQ(kLtDescTransposeA, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(kLtDescTransposeB, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(kLtLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(kLtLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(kLtPreferWorkspaceBytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(kLtPreferReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  EXPECT_EQ(kLtPreferAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(kLtPreferAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  EXPECT_EQ(kLtPreferAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  EXPECT_EQ(kLtPreferAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  EXPECT_EQ(kLtReductionNone, CUBLASLT_REDUCTION_SCHEME_NONE);
  EXPECT_EQ(kLtReductionInplace, CUBLASLT_REDUCTION_SCHEME_INPLACE);
  EXPECT_EQ(kLtReductionComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  EXPECT_EQ(kLtReductionOutputType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
}

}  // namespace
}  // namespace xlad::runtime::cuda
#else
TEST(CublasLtApiTest, ConstantsAreThoseOfCuda) {
  GTEST_SKIP() << "cublasLt.h was not found when this test was compiled";
}
#endif

namespace xlad::runtime::cuda {
namespace {

absl::StatusOr<const CublasLt*> InstalledCublasLt() {
  const auto newest = LoadCublasLt("libcublasLt.so.13");
  return newest.ok() ? newest : LoadCublasLt("libcublasLt.so.12");
}

template <typename Set, typename Object, typename Value>
LtStatus Assign(Set set, Object object, int attribute, Value value) {
  return set(object, attribute, &value, sizeof(value));
}

TEST(CublasLtApiTest, TheInstalledLibraryAcceptsTheDescriptors) {
  const auto installed = InstalledCublasLt();
  if (!installed.ok()) GTEST_SKIP() << installed.status();
  const CublasLt& library = **installed;
  EXPECT_GE(library.version, kOldestCublasLt);
  EXPECT_EQ(library.StatusText(kLtNotSupported), "CUBLAS_STATUS_NOT_SUPPORTED (15)");
  LtMatmulDesc desc = nullptr;
  ASSERT_EQ(library.cublasLtMatmulDescCreate(&desc, kLtComputeF32, kLtF32), kLtSuccess);
  for (const int attribute : {kLtDescTransposeA, kLtDescTransposeB}) {
    EXPECT_EQ(Assign(library.cublasLtMatmulDescSetAttribute, desc, attribute, kLtTranspose), kLtSuccess);
  }
  EXPECT_EQ(library.cublasLtMatmulDescDestroy(desc), kLtSuccess);
  for (const auto& [compute, scale] : {std::pair(kLtComputeF64, kLtF64), std::pair(kLtComputeS32, kLtS32)}) {
    ASSERT_EQ(library.cublasLtMatmulDescCreate(&desc, compute, scale), kLtSuccess);
    EXPECT_EQ(library.cublasLtMatmulDescDestroy(desc), kLtSuccess);
  }
  for (const int type : {kLtF32, kLtF64, kLtF16, kLtBf16, kLtS8, kLtS32}) {
    LtLayout layout = nullptr;
    ASSERT_EQ(library.cublasLtMatrixLayoutCreate(&layout, type, 3, 4, 5), kLtSuccess);
    EXPECT_EQ(Assign(library.cublasLtMatrixLayoutSetAttribute, layout, kLtLayoutBatchCount, int32_t{2}), kLtSuccess);
    EXPECT_EQ(Assign(library.cublasLtMatrixLayoutSetAttribute, layout, kLtLayoutBatchStride, int64_t{20}), kLtSuccess);
    EXPECT_NE(Assign(library.cublasLtMatrixLayoutSetAttribute, layout, kLtLayoutBatchStride, int16_t{20}), kLtSuccess)
        << "the library checks sizes";
    EXPECT_EQ(library.cublasLtMatrixLayoutDestroy(layout), kLtSuccess);
  }
  LtPreference preference = nullptr;
  ASSERT_EQ(library.cublasLtMatmulPreferenceCreate(&preference), kLtSuccess);
  const auto set = library.cublasLtMatmulPreferenceSetAttribute;
  EXPECT_EQ(Assign(set, preference, kLtPreferWorkspaceBytes, uint64_t{1} << 25), kLtSuccess);
  EXPECT_EQ(Assign(set, preference, kLtPreferReductionSchemes, kLtReductionComputeType), kLtSuccess);
  for (const int matrix : {kLtPreferAlignmentA, kLtPreferAlignmentB, kLtPreferAlignmentC, kLtPreferAlignmentD}) {
    EXPECT_EQ(Assign(set, preference, matrix, uint32_t{4}), kLtSuccess);
  }
  EXPECT_EQ(library.cublasLtMatmulPreferenceDestroy(preference), kLtSuccess);
}

}  // namespace
}  // namespace xlad::runtime::cuda
