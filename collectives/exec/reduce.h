// Element-wise reduction of arrays on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// How the results of a reduction are stored. Streaming stores bypass the cache. They do not read a line before they
// overwrite it, which is faster for results that are too large to stay in the cache. Functions without streaming stores
// treat kStreaming as kCached.
enum class StoreKind : uint8_t { kCached, kStreaming };

// Reduces sources[0][i], sources[1][i], ... from left to right and stores the result in dsts[k][i] for every k < the
// number of destinations and every i < `count`.
//
// Floating-point types below 32 bits are accumulated in f32 and rounded once, to nearest even. Integers wrap around. An
// average is the sum divided by the number of sources. The sum of pred is "or", the product "and". The max or min is
// NaN if an operand is NaN. A destination may be equal to a source but must not overlap one partially. Except for the
// bits of NaNs, the result depends only on the values, not on `count`, alignment or CPU. A store fence follows
// streaming stores, so other threads see them before any later store of the calling thread.
using ReduceFunction = void (*)(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count,
                                StoreKind store);

// Returns the fastest function for this CPU. Unimplemented if there is no kernel for the type and the reduction;
// ValidateSpec refuses pairs that have no meaning.
absl::StatusOr<ReduceFunction> FindReduceFunction(tensor::ElementType type, Reduction reduction);

// Returns the function that combines the sources as the balanced tree of OpKind::kReduceTree
// (collectives/plan/schedule.h). All partial results have the type in which elements are accumulated. Each result is
// rounded once to the type of the elements. Errors are those of FindReduceFunction.
absl::StatusOr<ReduceFunction> FindTreeReduceFunction(tensor::ElementType type, Reduction reduction);

// Returns the function that combines sources in the order that the spec requires. The spec's collective must reduce.
absl::StatusOr<ReduceFunction> ReduceFunctionOf(const CollectiveSpec& spec);

// Returns Internal if `op`, a reduction of more than two sources, is a tree although the spec's mode is not canonical,
// or is not a tree although the mode is canonical.
absl::Status CheckOrder(const CollectiveSpec& spec, const ScheduleOp& op);

// Whether the result may change with the order of the sources or the shape of the tree. This holds for sums, products
// and averages of floating-point and complex numbers.
bool DependsOnOrder(tensor::ElementType type, Reduction reduction);

// Returns the function that FindReduceFunction would return on a CPU without vector instructions. Tests compare it with
// the vector kernels.
absl::StatusOr<ReduceFunction> FindScalarReduceFunction(tensor::ElementType type, Reduction reduction);
// Does the same for FindTreeReduceFunction.
absl::StatusOr<ReduceFunction> FindScalarTreeReduceFunction(tensor::ElementType type, Reduction reduction);

// The number of bytes that each source of a SmallReduceFunction must have.
constexpr int64_t kSmallBytes = 48;

// Reduces the bytes [offset, offset + bytes) of each source into the first `bytes` bytes of `dst`, with less overhead
// than functions for long arrays. Each source must have kSmallBytes readable bytes, and `offset` and `bytes` must be
// multiples of the size of an element.
using SmallReduceFunction = void (*)(void* dst, absl::Span<const void* const> sources, int64_t offset, int64_t bytes);

// The kernels for the vector instructions of this CPU. Null if there are no kernels for the type and reduction.
struct ReduceKernels {
  ReduceFunction reduce = nullptr;
  SmallReduceFunction small = nullptr;
  ReduceFunction tree = nullptr;  // Also null if the result does not depend on the order.
};
ReduceKernels FindVectorReduceKernels(tensor::ElementType type, Reduction reduction);

// Copies bytes with stores of the kind `store`. The ranges must not overlap.
void CopyBytes(void* dst, const void* src, int64_t bytes, StoreKind store);

}  // namespace xlad::collectives
