// An HLO convolution as one of oneDNN's three: forward, by input (backward data) or by kernel (backward weights).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// A tensor in oneDNN's order of dimensions, as it lies in memory (strides in elements).
struct Strided {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

enum class ConvolutionKind { kForward, kBackwardData, kBackwardWeights };

// The forward convolution src * weights -> dst with its numbers; the kind says which of the three is the result.
//   src [n, c, spatial..], weights [(groups,) o, c, spatial..], dst [n, o, spatial..]
struct ConvolutionShape {
  ConvolutionKind kind = ConvolutionKind::kForward;
  Strided src, weights, dst;
  std::vector<int64_t> strides, dilations, padding_low, padding_high;  // oneDNN's: dilation 0 is dense.
  bool flip_kernel = false;  // The HLO kernel operand is to be reversed in its spatial dimensions first.
};

// InvalidArgument where numbers and shapes do not fit, Unimplemented for forms that are none of the three:
// dilated input together with strides or groups, negative low padding.
absl::StatusOr<ConvolutionShape> ReadConvolutionShape(const ConvolutionOp& op);

}  // namespace xlad::runtime
