// Compares tokens and keys.
#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

namespace xlad {

// Compares in a time that depends only on the lengths. An attacker cannot infer the contents by measuring the time.
inline bool SameSecret(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace xlad
