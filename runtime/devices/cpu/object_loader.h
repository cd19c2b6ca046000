// Loads ELF relocatable objects into this process: one object, or an ar archive of several.
//
// Code may refer to a fixed list of functions (the C math library and memcpy, memmove, memset) and to no other symbols.
// Memory is writable or executable, never both.
#pragma once

#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/kernel_abi.h"
#include "base/status.h"

namespace xlad::runtime {

// A function that code may refer to besides those of the list.
struct ProvidedFunction {
  const char* name;
  void* address;
};

// Owns the code, which is unloaded on destruction. Thread-safe.
class LoadedObject {
 public:
  // InvalidArgument if the bytes are not an object for this machine. A damaged object, or one that needs a symbol that
  // is not on the list, may be found only by Find.
  static absl::StatusOr<std::unique_ptr<LoadedObject>> Load(absl::string_view object,
                                                            absl::Span<const ProvidedFunction> more = {});
  virtual ~LoadedObject() = default;
  // NotFound if there is no such function or its object cannot be linked.
  virtual absl::StatusOr<XladKernel> Find(absl::string_view symbol) const = 0;
};

}  // namespace xlad::runtime
