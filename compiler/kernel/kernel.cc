#include "compiler/kernel/kernel.h"

#include "base/containers.h"

namespace xlad::compiler {

std::vector<int> Statement::dims() const {
  std::vector<int> all = over;
  all.insert(all.end(), along.begin(), along.end());
  return all;
}

Dims Kernel::sizes() const {
  Dims result;
  for (const KernelDim& dim : dims) result.push_back(dim.size);
  return result;
}

int Kernel::WriterOf(int array) const {
  for (int s = 0; s < std::ssize(statements); ++s) {
    const std::vector<int>& results = statements[s].results;
    if (Contains(results, array)) return s;
  }
  return -1;
}

int64_t Kernel::Extent(const std::vector<int>& which) const {
  int64_t extent = 1;
  for (const int d : which) extent *= dims[d].size;
  return extent;
}

}  // namespace xlad::compiler
