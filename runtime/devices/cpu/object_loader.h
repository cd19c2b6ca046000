// Loads ELF relocatable objects into this process: one, or an `ar` archive of several.
//
// The only file outside compiler/llvm that includes LLVM. Code may refer to a fixed list of functions (the C math
// library and memcpy, memmove, memset) and to nothing else. Memory is writable or executable, never both.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "base/kernel_abi.h"
#include "base/status.h"

namespace xlad::runtime {

// Owns the code. Thread-safe.
class LoadedObject {
 public:
  // InvalidArgument where the bytes are no object of this machine or need a symbol that is not on the list.
  static absl::StatusOr<std::unique_ptr<LoadedObject>> Load(absl::string_view object);
  virtual ~LoadedObject() = default;
  // NotFound where there is no such function.
  virtual absl::StatusOr<XladKernel> Find(absl::string_view symbol) const = 0;
};

}  // namespace xlad::runtime
