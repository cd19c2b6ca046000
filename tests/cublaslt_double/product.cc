#include "tests/cublaslt_double/product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace xlad::cublaslt_double {
namespace {

using runtime::cuda::kLtBf16;
using runtime::cuda::kLtComputeF32;
using runtime::cuda::kLtComputeF64;
using runtime::cuda::kLtComputeS32;
using runtime::cuda::kLtF16;
using runtime::cuda::kLtF32;
using runtime::cuda::kLtF64;
using runtime::cuda::kLtInvalidValue;
using runtime::cuda::kLtNotSupported;
using runtime::cuda::kLtReductionComputeType;
using runtime::cuda::kLtReductionInplace;
using runtime::cuda::kLtReductionNone;
using runtime::cuda::kLtS32;
using runtime::cuda::kLtS8;
using runtime::cuda::kLtSuccess;

constexpr uint64_t kWorkspaceAlignment = 16, kInt8Alignment = 4;

bool IsFloat(int type) { return type == kLtF32 || type == kLtF16 || type == kLtBf16; }
uint64_t Width(int type) {
  if (type == kLtF64) return 8;
  return type == kLtF32 || type == kLtS32 ? 4 : type == kLtS8 ? 1 : 2;
}
// The size of a sum.
uint64_t SumWidth(const Operation& operation) { return operation.compute_type == kLtComputeF64 ? 8 : 4; }

float LoadFloat(const std::byte* memory, int type) {
  if (type == kLtF16) {
    _Float16 half;
    std::memcpy(&half, memory, sizeof(half));
    return static_cast<float>(half);
  }
  uint32_t bits = 0;
  std::memcpy(type == kLtF32 ? reinterpret_cast<std::byte*>(&bits) : reinterpret_cast<std::byte*>(&bits) + 2, memory,
              Width(type));
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void StoreFloat(float value, std::byte* memory, int type) {
  if (type == kLtF32) {
    std::memcpy(memory, &value, sizeof(value));
  } else if (type == kLtF16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(memory, &half, sizeof(half));
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const auto rounded = static_cast<uint16_t>(value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    std::memcpy(memory, &rounded, sizeof(rounded));
  }
}

// A sum of type float, double, or uint32_t, which stands for s32 because sums of s32 wrap around.
template <typename Sum>
Sum Load(const std::byte* memory, int type) {
  if constexpr (std::is_same_v<Sum, float>) return LoadFloat(memory, type);
  if (type == kLtS8) return static_cast<Sum>(static_cast<int8_t>(*memory));
  Sum value;
  std::memcpy(&value, memory, sizeof(value));
  return value;
}

template <typename Sum>
void Store(Sum value, std::byte* memory, int type) {
  if constexpr (std::is_same_v<Sum, float>) return StoreFloat(value, memory, type);
  std::memcpy(memory, &value, sizeof(value));
}

template <typename Sum>
Sum Round(Sum value, int type) {
  std::byte rounded[sizeof(Sum)];
  Store(value, rounded, type);
  return Load<Sum>(rounded, type);
}

bool HasInt8Layout(const Problem& problem) {
  const auto fits = [](auto number) { return number % kInt8Alignment == 0; };
  if (problem.operation.transpose_a == 0 || problem.operation.transpose_b != 0) return false;
  for (const Layout* matrix : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    if (!fits(matrix->leading_dimension) || !fits(matrix->batch_stride)) return false;
  }
  return fits(problem.m()) && fits(problem.k());
}

bool IsSupported(const Problem& problem) {
  const auto& [operation, a, b, c, d] = problem;
  if (a.type != b.type) return false;
  if (operation.compute_type == kLtComputeF32 && operation.scale_type == kLtF32) {
    return IsFloat(a.type) && (d.type == a.type || d.type == kLtF32);
  }
  if (operation.compute_type == kLtComputeF64 && operation.scale_type == kLtF64) {
    return a.type == kLtF64 && d.type == kLtF64;
  }
  return operation.compute_type == kLtComputeS32 && operation.scale_type == kLtS32 && a.type == kLtS8 &&
         d.type == kLtS32 && HasInt8Layout(problem);
}

bool IsValid(const Layout& layout) {
  return layout.rows > 0 && layout.columns > 0 && layout.leading_dimension >= static_cast<int64_t>(layout.rows) &&
         layout.batch_count > 0;
}

// Indices of LtAlgorithm::data.
enum Word { kScheme, kWorkspaceBytes, kAlignments, kProblem };

// A number that, almost certainly, differs for problems with different layouts or transpositions.
uint64_t Hash(const Problem& problem) {
  uint64_t hash = 1469598103934665603U;
  const auto add = [&hash](auto value) { hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211U; };
  for (const Layout* layout : {&problem.a, &problem.b, &problem.c, &problem.d}) {
    add(layout->type), add(layout->rows), add(layout->columns), add(layout->leading_dimension);
    add(layout->batch_count), add(layout->batch_stride);
  }
  add(problem.operation.transpose_a), add(problem.operation.transpose_b);
  add(problem.operation.compute_type), add(problem.operation.scale_type);
  return hash;
}

}  // namespace

uint64_t Layout::Bytes() const {
  const auto columns_before_last = static_cast<int64_t>(columns) - 1;
  const int64_t last = (batch_count - 1) * batch_stride + columns_before_last * leading_dimension;
  return (static_cast<uint64_t>(last) + rows) * Width(type);
}

LtStatus CheckProblem(const Problem& problem) {
  const auto& [operation, a, b, c, d] = problem;
  if (!IsValid(a) || !IsValid(b) || !IsValid(c) || !IsValid(d)) return kLtInvalidValue;
  if (a.batch_count != d.batch_count || b.batch_count != d.batch_count || c.batch_count != d.batch_count) {
    return kLtInvalidValue;
  }
  for (const Layout* matrix : {&c, &d}) {
    if (matrix->rows != d.rows || matrix->columns != d.columns || matrix->type != d.type) return kLtInvalidValue;
    const auto size = matrix->leading_dimension * static_cast<int64_t>(matrix->columns - 1) + matrix->rows;
    if (matrix->batch_count > 1 && matrix->batch_stride < static_cast<int64_t>(size)) return kLtInvalidValue;
  }
  const auto [a_rows, a_columns] =
      operation.transpose_a != 0 ? std::pair(a.columns, a.rows) : std::pair(a.rows, a.columns);
  const auto [b_rows, b_columns] =
      operation.transpose_b != 0 ? std::pair(b.columns, b.rows) : std::pair(b.rows, b.columns);
  if (a_rows != d.rows || b_columns != d.columns || a_columns != b_rows) return kLtInvalidValue;
  return IsSupported(problem) ? kLtSuccess : kLtNotSupported;
}

std::vector<LtHeuristicResult> Propose(const Problem& problem, const Preference& preference) {
  std::vector<LtHeuristicResult> proposals(1);
  for (const uint32_t alignment : {preference.alignment_a, preference.alignment_b}) {
    if (problem.a.type == kLtS8 && alignment % kInt8Alignment != 0) return proposals;
  }
  const uint64_t alignments = uint64_t{preference.alignment_a} | uint64_t{preference.alignment_b} << 16 |
                              uint64_t{preference.alignment_c} << 32 | uint64_t{preference.alignment_d} << 48;
  const auto propose = [&](uint32_t scheme, uint64_t workspace_bytes) {
    if (workspace_bytes > preference.workspace_bytes) return;
    if (scheme != kLtReductionNone && ((preference.reduction_schemes & scheme) == 0 || problem.k() < 2)) return;
    LtHeuristicResult& result = proposals.emplace_back();
    result.state = kLtSuccess;
    result.workspace_bytes = workspace_bytes;
    result.algorithm.data[kScheme] = scheme;
    result.algorithm.data[kWorkspaceBytes] = workspace_bytes;
    result.algorithm.data[kAlignments] = alignments;
    result.algorithm.data[kProblem] = Hash(problem);
  };
  propose(kLtReductionInplace, 0);
  propose(kLtReductionComputeType,
          static_cast<uint64_t>(problem.d.batch_count) * problem.m() * problem.n() * SumWidth(problem.operation));
  propose(kLtReductionNone, 0);
  return proposals;
}

LtStatus CheckCall(const Problem& problem, const LtAlgorithm& algorithm, const Addresses& at, size_t workspace_bytes) {
  if (algorithm.data[kProblem] != Hash(problem) || workspace_bytes < WorkspaceBytes(algorithm)) return kLtInvalidValue;
  if (WorkspaceBytes(algorithm) > 0 && (at.workspace == 0 || at.workspace % kWorkspaceAlignment != 0)) {
    return kLtInvalidValue;
  }
  const auto is_aligned = [&](uint64_t address, int position) {
    return address % (algorithm.data[kAlignments] >> (16 * position) & 0xffff) == 0;
  };
  return is_aligned(at.a, 0) && is_aligned(at.b, 1) && is_aligned(at.c, 2) && is_aligned(at.d, 3) ? kLtSuccess
                                                                                                  : kLtNotSupported;
}

size_t WorkspaceBytes(const LtAlgorithm& algorithm) { return algorithm.data[kWorkspaceBytes]; }

namespace {

template <typename Sum>
void MultiplyAs(const Problem& problem, const LtAlgorithm& algorithm, const void* alpha_at, const Memory& memory) {
  Sum alpha;
  std::memcpy(&alpha, alpha_at, sizeof(alpha));
  auto* const workspace = reinterpret_cast<Sum*>(memory.workspace);
  const auto& [operation, a, b, c, d] = problem;
  const auto element = [](const std::byte* matrices, const Layout& layout, int64_t batch, uint64_t row,
                          uint64_t column) {
    const int64_t index = batch * layout.batch_stride + static_cast<int64_t>(column) * layout.leading_dimension;
    return Load<Sum>(matrices + (static_cast<uint64_t>(index) + row) * Width(layout.type), layout.type);
  };
  const auto scheme = static_cast<uint32_t>(algorithm.data[kScheme]);
  const uint64_t middle = scheme == kLtReductionNone ? problem.k() : problem.k() / 2;
  uint64_t number = 0;
  for (int64_t batch = 0; batch < d.batch_count; ++batch) {
    for (uint64_t column = 0; column < d.columns; ++column) {
      for (uint64_t row = 0; row < d.rows; ++row, ++number) {
        const auto sum = [&](uint64_t begin, uint64_t end) {
          Sum value = 0;
          for (uint64_t k = begin; k < end; ++k) {
            const Sum left =
                operation.transpose_a != 0 ? element(memory.a, a, batch, k, row) : element(memory.a, a, batch, row, k);
            const Sum right = operation.transpose_b != 0 ? element(memory.b, b, batch, column, k)
                                                         : element(memory.b, b, batch, k, column);
            value += left * right;
          }
          return value;
        };
        Sum value = sum(0, middle);
        if (scheme == kLtReductionComputeType) {
          workspace[number] = value;
          value = workspace[number] + sum(middle, problem.k());
        } else if (scheme == kLtReductionInplace) {
          value = Round(value, d.type) + sum(middle, problem.k());
        }
        const int64_t index = batch * d.batch_stride + static_cast<int64_t>(column) * d.leading_dimension;
        Store<Sum>(alpha * value, memory.d + (static_cast<uint64_t>(index) + row) * Width(d.type), d.type);
      }
    }
  }
}

}  // namespace

void Multiply(const Problem& problem, const LtAlgorithm& algorithm, const void* alpha, const Memory& memory) {
  if (problem.operation.compute_type == kLtComputeF64) return MultiplyAs<double>(problem, algorithm, alpha, memory);
  if (problem.operation.compute_type == kLtComputeS32) return MultiplyAs<uint32_t>(problem, algorithm, alpha, memory);
  MultiplyAs<float>(problem, algorithm, alpha, memory);
}

}  // namespace xlad::cublaslt_double
