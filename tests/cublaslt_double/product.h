// Matrix products as cuBLASLt describes them: which are valid, the algorithms that it proposes, and the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/devices/cuda/cublaslt_api.h"

namespace xlad::cublaslt_double {

using runtime::cuda::LtAlgorithm;
using runtime::cuda::LtHeuristicResult;
using runtime::cuda::LtStatus;

// A batch of column-major matrices.
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading_dimension = 0;
  int32_t batch_count = 1;
  int64_t batch_stride = 0;

  // The bytes from the first element to the end of the last one.
  uint64_t Bytes() const;
};

struct Operation {
  int compute_type = 0, scale_type = 0;
  int32_t transpose_a = 0, transpose_b = 0;
};

// The defaults are those of the library.
struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = 7;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

// D = op(A) * op(B).
struct Problem {
  Operation operation;
  Layout a, b, c, d;

  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return operation.transpose_a != 0 ? a.rows : a.columns; }
};

// Returns kLtInvalidValue if a layout is invalid, if the sizes or numbers of matrices do not match, if C and D have
// different types, or if matrices of a batch of C or D overlap. Returns kLtNotSupported unless
//
//   - sums are computed in f32, both operands have the same type (f32, f16 or bf16), and the result has that type or
//     f32; or
//   - all types are f64; or
//   - the operands are s8 and all other types are s32. Then A must be transposed and B must not, and m, k, all leading
//     dimensions and the distances between the matrices of a batch must be multiples of 4.
LtStatus CheckProblem(const Problem& problem);

// Returns the algorithms that the library proposes for a valid problem. The first one has a state that is not success,
// because callers must skip such proposals. All later ones are usable, the best first. The last one computes each sum
// in one part. The usable ones before it split each sum into two parts, by the reduction schemes that the preference
// allows. There are no usable ones for operands of s8 whose alignment may be less than 4 bytes.
std::vector<LtHeuristicResult> Propose(const Problem& problem, const Preference& preference);

// The addresses that a call is given, as integers.
struct Addresses {
  uint64_t a, b, c, d, workspace;
};

// Returns kLtInvalidValue if the algorithm was proposed for another problem or its workspace is too small or not
// aligned, and kLtNotSupported if a matrix does not have the alignment in the preference.
LtStatus CheckCall(const Problem& problem, const LtAlgorithm& algorithm, const Addresses& at, size_t workspace_bytes);

// The bytes of workspace that the algorithm uses.
size_t WorkspaceBytes(const LtAlgorithm& algorithm);

// The matrices of a call in the memory of the host.
struct Memory {
  const std::byte *a, *b;
  std::byte* d;
  std::byte* workspace;
};

// Computes D = alpha * op(A) * op(B), where `alpha` points to a number of the operation's scale type. The workspace may
// be null if the algorithm uses none.
void Multiply(const Problem& problem, const LtAlgorithm& algorithm, const void* alpha, const Memory& memory);

}  // namespace xlad::cublaslt_double
