#include "sharding/partition/ops/window_halo.h"

#include <algorithm>

namespace xlad::sharding {

using hlo::Instruction;

int64_t FloorDivide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
int64_t CeilDivide(int64_t a, int64_t b) { return -FloorDivide(-a, b); }

Dims WindowStarts(const hlo::WindowDimension& window, int64_t shard, int64_t shards) {
  Dims starts;
  for (int64_t k = 0; k < shards; ++k) starts.push_back(k * shard * window.stride - window.padding_low);
  return starts;
}

int64_t WindowSpan(const hlo::WindowDimension& window, int64_t shard) {
  return (shard - 1) * window.stride + (window.size - 1) * window.window_dilation + 1;
}

WindowNeed NeedOf(int64_t size, int64_t shard, const Dims& starts, int64_t span, int64_t dilation) {
  WindowNeed result;
  result.span = span;
  result.dilation = dilation;
  result.need = {size, shard, {}, 0, 0, size};
  bool same = true;
  int64_t fewest = span;  // The smallest number of indices in a span.
  for (int64_t start : starts) {
    same &= start - FloorDivide(start, dilation) * dilation == starts[0] - FloorDivide(starts[0], dilation) * dilation;
    fewest = std::min(fewest, FloorDivide(start + span - 1, dilation) - CeilDivide(start, dilation) + 1);
  }
  for (int64_t start : starts) {
    const int64_t first = same && fewest > 0 ? CeilDivide(start, dilation) : FloorDivide(start, dilation);
    result.need.starts.push_back(first);
    result.need.length = std::max(result.need.length, FloorDivide(start + span - 1, dilation) - first + 1);
    if (same) result.low = first * dilation - start;
    else result.phases.push_back(start - first * dilation);
  }
  return result;
}

Instruction* FetchWindow(LocalBuilder& local, const HaloFetch& fetch, const WindowNeed& need,
                         hlo::WindowDimension* window) {
  hlo::Builder& builder = local.builder();
  Instruction* x = FetchHalo(local, fetch, need.need);
  const int64_t dilated = (need.need.length - 1) * need.dilation + 1;
  if (window != nullptr) {
    window->padding_low = window->padding_high = 0;
    window->base_dilation = 1;
    if (need.phases.empty()) {
      window->base_dilation = need.dilation;
      window->padding_low = need.low;
      window->padding_high = need.span - need.low - dilated;
      return x;
    }
  }
  std::vector<hlo::PaddingDimension> padding(x->shape().dims().size());
  const int64_t low = need.phases.empty() ? need.low : 0;
  int64_t end = need.span;
  for (int64_t phase : need.phases) end = std::max(end, phase + need.span);
  hlo::PaddingDimension& along = padding[fetch.dim];
  along = {low, end - low - dilated, need.dilation - 1};
  if (along != hlo::PaddingDimension{}) {
    x = builder.Pad(x, fetch.fill != nullptr ? fetch.fill : builder.Scalar(x->shape().type(), 0), std::move(padding));
  }
  if (need.phases.empty()) return x;
  return SliceByPosition(local, x, fetch.split(), need.phases, need.span);
}

}  // namespace xlad::sharding
