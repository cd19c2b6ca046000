// The number of cases that a test with many similar cases tries.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace xlad {

// Whether XLAD_ALL_CASES is set, as by `scripts/test.sh --all`. Otherwise tests try only a part of their cases.
inline bool AllCases() { return std::getenv("XLAD_ALL_CASES") != nullptr; }

inline uint64_t CaseCount(uint64_t few, uint64_t all) { return AllCases() ? all : few; }

// Whether a test with nested loops tries a case. By default, it tries one of `share` cases. `position` is the number of
// cases before this one, plus one for each pass of an outer loop, so that the passes try different cases.
inline bool TriesCase(int64_t position, int64_t share) { return AllCases() || position % share == 0; }

// Returns the number in an environment variable, or `otherwise` if the variable is not set.
inline uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace xlad
