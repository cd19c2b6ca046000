// Describes an HLO convolution as one of oneDNN's three kinds: forward, backward data (the gradient of the input) or
// backward weights (the gradient of the kernel).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "proto/executable.pb.h"

namespace xlad::runtime {

// A tensor with its dimensions in oneDNN's order and its strides in memory, in elements.
struct Strided {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

enum class ConvolutionKind { kForward, kBackwardData, kBackwardWeights };

// The forward convolution src * weights -> dst and its parameters. `kind` says which of the three tensors is the
// result.
//   src [n, c, spatial..], weights [(groups,) o, c, spatial..], dst [n, o, spatial..]
struct ConvolutionShape {
  ConvolutionKind kind = ConvolutionKind::kForward;
  Strided src, weights, dst;
  std::vector<int64_t> strides, dilations, padding_low, padding_high;  // As in oneDNN, dilation 0 is a dense window.
  bool flip_kernel = false;  // True if the kernel operand must first be reversed in its spatial dimensions.
};

// InvalidArgument if parameters and shapes do not match. Unimplemented for convolutions that oneDNN does not have. They
// have fewer than 1 or more than 3 spatial dimensions, a kernel that is reversed in only some dimensions, a dilated
// input together with strides or groups, or negative low padding.
absl::StatusOr<ConvolutionShape> ReadConvolutionShape(const ConvolutionOp& op);

}  // namespace xlad::runtime
