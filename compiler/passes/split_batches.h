// Moves reshapes that split or merge the batch dimension of attention scores from the scores to the other arrays. The
// scores of an attention then have the same dimensions everywhere. PyTorch's programs multiply batches of matrices with
// one batch dimension, and apply masks to arrays with two:
//
//   reshape(dot(x, y)), [6,64,64] to [2,3,64,64]   becomes   dot(reshape(x), reshape(y)), with two batch dimensions
//   dot(reshape(p), v), p = softmax [2,3,64,64]    becomes   reshape(dot(p, reshape(v)))
#pragma once

#include "compiler/analysis/hlo_names.h"

namespace xlad::compiler {

// The products are the same, and reshapes are free. Does not change scores of fewer than 16,384 elements. Removes dead
// instructions.
void SplitBatches(Computation* computation);

}  // namespace xlad::compiler
