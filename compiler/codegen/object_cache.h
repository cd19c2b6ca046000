// Objects of earlier compilations, so that only kernels that have changed are compiled again.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace xlad::compiler {

// Implementations must be thread-safe and must not return objects made by another version of the compiler. A key is a
// hash (SHA-256, hexadecimal) of everything else on which the object depends.
class ObjectCache {
 public:
  virtual ~ObjectCache() = default;
  // The object that was added under this key, or nullopt.
  virtual std::optional<std::string> Find(const std::string& key) = 0;
  virtual void Add(const std::string& key, absl::string_view object) = 0;
};

}  // namespace xlad::compiler
