// Sorted lists of distinct elements.
#pragma once

#include <algorithm>

namespace xlad {

// Sorts `values` and removes repeated elements: {3, 1, 3} becomes {1, 3}.
template <typename Container>
void SortDistinct(Container* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

}  // namespace xlad
