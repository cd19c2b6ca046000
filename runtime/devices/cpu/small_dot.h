// Matrix products of f32 by xlad's own loops (attention_kernels.h), for shapes for which these are usually faster than
// oneDNN: small right operands that are matrices with enough columns, and operands whose dimensions are several loops
// over memory.
//
// oneDNN copies its right operand in every call, and needs operands that are matrices, which means another copy for
// other operands. These loops read row-major right operands and all left operands that are matrices in place, and copy
// others for one tile of the product at a time. oneDNN's implementation, and its speed, depend on the sizes of a tile;
// here small tiles are as fast as large ones, so that small products are divided among cores too.
#pragma once

#include <memory>

#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/library_op.h"

namespace xlad::runtime {

// Whether to compute a product by these loops. Depends on the shape alone, as the order of a sum does. `shape` is
// merged (DotShape::Merge).
bool PrefersSmallDot(const DotShape& shape);

// `shape` is merged and has no loop of extent 0.
std::unique_ptr<PreparedLibraryOp> MakeSmallDot(const DotShape& shape);

}  // namespace xlad::runtime
