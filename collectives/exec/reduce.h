// Element-wise reduction of arrays on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "base/status.h"
#include "collectives/plan/schedule.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

// Where the results of a reduction are stored. Streaming stores bypass the cache: they do not read a line before they
// overwrite it, which is faster for results that are too large to stay in the cache.
enum class StoreKind : uint8_t { kCached, kStreaming };

// Computes sources[0][i] (+) sources[1][i] (+) ... from left to right and stores it in every dsts[k][i].
//
// Floating-point types below 32 bits are accumulated in f32 and rounded once, to nearest even; integers wrap around;
// the sum of pred is "or", the product "and"; max and min with a NaN are NaN. A destination may be equal to a source
// but must not overlap one partially. The result depends only on the values, not on `count`, alignment or CPU.
// Streaming stores are visible to other threads in the usual order when the function returns.
using ReduceFunction = void (*)(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count,
                                StoreKind store);

// Unimplemented if there is no kernel for the pair. ValidateSpec refuses pairs that have no meaning.
absl::StatusOr<ReduceFunction> FindReduceFunction(tensor::ElementType type, Reduction reduction);

// The same, but combines the sources as the balanced tree of OpKind::kReduceTree (collectives/plan/schedule.h). All
// partial results have the type in which elements are accumulated, and each result is rounded once to the type of the
// elements.
absl::StatusOr<ReduceFunction> FindTreeReduceFunction(tensor::ElementType type, Reduction reduction);

// The function for the order of reduction that the spec asks for. The spec reduces.
absl::StatusOr<ReduceFunction> ReduceFunctionOf(const CollectiveSpec& spec);

// Internal if the function of ReduceFunctionOf does not combine as the operation, which reduces, says.
absl::Status CheckOrder(const CollectiveSpec& spec, const ScheduleOp& op);

// Whether another order of the sources, or another tree, may give another result: floating-point sums and products.
bool DependsOnOrder(tensor::ElementType type, Reduction reduction);

// The function that FindReduceFunction returns if the CPU has no vector instructions. The tests compare both.
absl::StatusOr<ReduceFunction> FindScalarReduceFunction(tensor::ElementType type, Reduction reduction);
// The same for FindTreeReduceFunction.
absl::StatusOr<ReduceFunction> FindScalarTreeReduceFunction(tensor::ElementType type, Reduction reduction);

// The same for bytes [offset, offset + bytes) of each source, without the costs of long arrays. The sources have
// kSmallBytes bytes that may be read, and offset and bytes are multiples of the size of an element.
constexpr int64_t kSmallBytes = 48;
using SmallReduceFunction = void (*)(void* dst, absl::Span<const void* const> sources, int64_t offset, int64_t bytes);

// The kernels for the vector instructions of this CPU, or null if there are none for the pair.
struct ReduceKernels {
  ReduceFunction reduce = nullptr;
  SmallReduceFunction small = nullptr;
  ReduceFunction tree = nullptr;  // Null as well if the result does not depend on the order.
};
ReduceKernels FindVectorReduceKernels(tensor::ElementType type, Reduction reduction);

// Copies with streaming stores if `store` says so. The ranges must not overlap.
void CopyBytes(void* dst, const void* src, int64_t bytes, StoreKind store);

}  // namespace xlad::collectives
