// Compares tokens and keys.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace xlad {

// Whether two secrets are equal. The time of the comparison depends only on their lengths (a constant-time comparison),
// so an attacker cannot infer the contents by measuring it.
inline bool SameSecret(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace xlad
