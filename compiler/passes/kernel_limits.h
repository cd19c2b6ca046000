// The limit of kernels that passes must respect.
#pragma once

#include <cstdint>

namespace xlad::compiler {

// The largest number of operands of a kernel. PTX limits the arguments of a kernel to 4,096 bytes, which are 512
// addresses. The other arguments are those of the results, of scratch memory and of the kernel ABI.
inline constexpr int64_t kMaxKernelOperands = 480;

}  // namespace xlad::compiler
