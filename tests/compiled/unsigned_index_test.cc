// Indices and sizes of unsigned types: 2^63 and more are large, not negative.
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::ElementType;

Array Numbers(const std::vector<uint64_t>& values) {
  return Array::FromValues<uint64_t>(ElementType::kU64, {std::ssize(values)}, values);
}

Array Floats(const tensor::Dims& dims) {
  Array array({ElementType::kF32, dims});
  float next = 0;
  for (float& value : array.values<float>()) value = ++next;
  return array;
}

const std::vector<uint64_t> kLarge = {uint64_t{1} << 63, std::numeric_limits<uint64_t>::max(),
                                      std::numeric_limits<uint64_t>::max() - 2};

TEST(UnsignedIndex, StartsOfSlices) {
  Batch batch;
  for (const uint64_t large : kLarge) {
    batch.AddOn(Program("x = f32[6,7] parameter(0)\n i = u64[2] parameter(1)\n "
                        "ROOT r = f32[2,3] dynamic-slice(x, i), dynamic_slice_sizes={2,3}"),
                {Floats({6, 7}), Numbers({large, 1})});
    batch.AddOn(Program("x = f32[6,7] parameter(0)\n u = f32[2,3] parameter(1)\n i = u64[2] parameter(2)\n "
                        "ROOT r = f32[6,7] dynamic-update-slice(x, u, i)"),
                {Floats({6, 7}), Floats({2, 3}), Numbers({1, large})});
    batch.AddOn(Program("x = f32[6,7] parameter(0)\n v = u64[1] parameter(1)\n i = u64[] reshape(v)\n "
                        "j = u64[] constant(1)\n "
                        "ROOT r = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}"),
                {Floats({6, 7}), Numbers({large})});
    batch.AddOn(Program("x = f32[6,7] parameter(0)\n i = u64[1] parameter(1)\n "
                        "ROOT r = f32[1,7] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
                        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,7}"),
                {Floats({6, 7}), Numbers({large})});
  }
  batch.Run();
}

TEST(UnsignedIndex, SizesOfGroups) {
  Batch batch;
  for (const uint64_t large : kLarge) {
    for (const std::vector<uint64_t>& sizes : std::vector<std::vector<uint64_t>>{{2, large, 0}, {large, 1, 1}}) {
      batch.AddOn(Program("a = f32[5,3] parameter(0)\n b = f32[3,3,4] parameter(1)\n n = u64[3] parameter(2)\n "
                          "ROOT r = f32[5,4] ragged-dot(a, b, n), lhs_contracting_dims={1}, rhs_contracting_dims={1}, "
                          "lhs_ragged_dims={0}, rhs_group_dims={0}"),
                  {Floats({5, 3}), Floats({3, 3, 4}), Numbers(sizes)}, Close(1e-5));
      batch.AddOn(Program("a = f32[5,3] parameter(0)\n b = f32[5,4] parameter(1)\n n = u64[3] parameter(2)\n "
                          "ROOT r = f32[3,3,4] ragged-dot(a, b, n), lhs_contracting_dims={0}, "
                          "rhs_contracting_dims={0}, lhs_ragged_dims={0}"),
                  {Floats({5, 3}), Floats({5, 4}), Numbers(sizes)}, Close(1e-5));
    }
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
