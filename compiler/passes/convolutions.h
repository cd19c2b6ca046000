// Convolutions that the library does not take, as matrix products.
//
// Needs: simplified. Leaves: library convolutions (compiler/analysis/library.h), and no other of floats whose window
// has, or which visits, at most 64 positions; the rest (and those with batch groups) stay and become plain loops.
//
// A convolution contracts over window positions and input features. Its patches - for every output position what its
// window sees - are stacked from strided slices of the padded input and multiplied with the kernel by one dot. Where
// the window is large and the output small, as in the gradient of a kernel, the slices are taken for output positions
// instead, and the dot contracts over the window itself.
#pragma once

#include "compiler/passes/pass_context.h"

namespace xlad::compiler {

absl::Status LowerConvolutions(hlo::Module& module, PassContext& context);

}  // namespace xlad::compiler
