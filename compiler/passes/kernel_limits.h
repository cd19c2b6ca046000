// The limit of kernels that passes must respect.
#pragma once

#include <cstdint>

namespace xlad::compiler {

// The largest number of operands of a fusion or a concatenation. PTX limits the arguments of a GPU's kernel to 4,096
// bytes, which are 512 addresses. The other arguments are those of the results, of scratch memory and of the kernel
// ABI. The limit does not apply to fusions of sibling reductions, which only CPUs have. Reductions, sorts and maps of
// more arrays stay as the program has them, and code generation for GPUs refuses them.
inline constexpr int64_t kMaxKernelOperands = 480;

}  // namespace xlad::compiler
