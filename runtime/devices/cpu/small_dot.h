// Matrix products of f32 by xlad's own loops (attention_kernels.h). They compute four kinds of shapes, for which they
// are usually faster than oneDNN. In the first kind, the right operand is a small matrix whose rows are whole vectors.
// In the second kind, an operand is not a matrix, because one of its dimensions needs several loops over memory. In the
// third kind, the right operand consists of panels of 32 columns each, and the rows of a panel are adjacent: it has the
// dimensions [columns / 32, depth, 32]. The compiler gives this form to operands that a loop does not change. The
// fourth kind is a batch of many products of at most 16 rows, columns and terms.
//
// oneDNN copies its right operand in every call. It also requires matrices, so operands that are not matrices are
// copied once more. These loops read in place all right operands that are row-major or panels, and all left operands
// that are matrices. They copy other operands, for one tile of the product at a time. oneDNN chooses an implementation,
// and with it the speed, by the sizes of a tile. Here, small tiles are as fast as large ones, so small products are
// also divided among cores.
#pragma once

#include <memory>

#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/library_op.h"

namespace xlad::runtime {

// Whether to compute a product by these loops. Depends on the shape alone, so that the order of sums does, too. `shape`
// is merged (DotShape::Merge).
bool PrefersSmallDot(const DotShape& shape);

// `shape` is merged and has no loop of extent 0.
std::unique_ptr<PreparedLibraryOp> MakeSmallDot(const DotShape& shape);

}  // namespace xlad::runtime
