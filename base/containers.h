// Linear searches in small containers (dimension lists, operand lists, names).
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

namespace xlad {

// Whether an element of `container` equals `value`.
template <typename Container, typename T>
bool Contains(const Container& container, const T& value) {
  return std::find(std::begin(container), std::end(container), value) != std::end(container);
}

// The position of the first element that equals `value`, or nullopt if there is none.
//   IndexOf(Dims{4, 8, 4}, 8) == 1
template <typename Container, typename T>
std::optional<int64_t> IndexOf(const Container& container, const T& value) {
  const auto found = std::find(std::begin(container), std::end(container), value);
  if (found == std::end(container)) return std::nullopt;
  return std::distance(std::begin(container), found);
}

}  // namespace xlad
