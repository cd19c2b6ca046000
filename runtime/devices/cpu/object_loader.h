// Loads ELF relocatable objects into this process: one object, or an ar archive of several.
//
// Code may refer to a fixed list of functions (the C math library and memcpy, memmove, memset), to functions that the
// caller of Load provides, and to no other symbols. Memory is writable or executable, never both.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/kernel_abi.h"
#include "base/status.h"

namespace xlad::runtime {

// A function to which code may refer.
struct ProvidedFunction {
  const char* name;
  void* address;
};

// Owns the code, which is unloaded on destruction. Thread-safe.
class LoadedObject {
 public:
  // Code may refer to the functions in `more` in addition to the fixed list. InvalidArgument if the bytes are not an
  // object for this machine. If an object is damaged or refers to other symbols, Load may succeed and Find fail.
  static absl::StatusOr<std::unique_ptr<LoadedObject>> Load(absl::string_view object,
                                                            absl::Span<const ProvidedFunction> more = {});
  virtual ~LoadedObject() = default;
  // NotFound if there is no such function or its object cannot be linked.
  virtual absl::StatusOr<XladKernel> Find(absl::string_view symbol) const = 0;
};

}  // namespace xlad::runtime
