// The kernels of a PTX text.
#pragma once

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::runtime::cuda {

struct PtxKernel {
  int parameters = 0;
  int threads = 1;  // The size of a block: .reqntid.
};

// Keyed by name. InvalidArgument if a kernel does not state its parameters and the size of its blocks in the form that
// LLVM writes.
absl::StatusOr<std::map<std::string, PtxKernel>> ListPtxKernels(absl::string_view ptx);

}  // namespace xlad::runtime::cuda
