// Kernels whose results share the memory of their operands.
#include <gtest/gtest.h>

#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

TEST(InPlace, Elementwise) {
  Batch batch;
  batch.Add(Program("x = f32[100] parameter(0)\n y = f32[100] parameter(1)\n ROOT z = f32[100] add(x, y)"));
  batch.InPlace({{0, 1}});
  // Two results share memory with two operands, and each depends on both.
  batch.Add(
      Program("x = f32[7,9] parameter(0)\n y = f32[7,9] parameter(1)\n s = f32[7,9] add(x, y)\n d = f32[7,9] "
              "subtract(x, y)\n ROOT t = (f32[7,9], f32[7,9]) tuple(s, d)"));
  batch.InPlace({{0, 0}, {1, 1}});
  // A broadcast makes the loop nest two-dimensional.
  batch.Add(
      Program("x = f32[7,9] parameter(0)\n b = f32[9] parameter(1)\n c = f32[7,9] broadcast(b), "
              "dimensions={1}\n s = f32[7,9] add(x, c)\n d = f32[7,9] subtract(x, c)\n ROOT t = (f32[7,9], "
              "f32[7,9]) tuple(s, d)"));
  batch.InPlace({{1, 0}});
  // The result and the operand have different types of the same width.
  batch.Add(Program("x = f32[65] parameter(0)\n ROOT z = s32[65] convert(x)"));
  batch.InPlace({{0, 0}});
  // Both operands are one array, and the result has memory of its own.
  batch.Add(Program("x = f32[66] parameter(0)\n ROOT z = f32[66] add(x, x)"));
  batch.Add(Program("x = f32[5,13] parameter(0)\n ROOT z = f32[65] reshape(x)"));
  batch.InPlace({{0, 0}});
  batch.Add(Program("x = f32[] parameter(0)\n ROOT z = f32[] negate(x)"));
  batch.InPlace({{0, 0}});
  batch.Run();
}

TEST(InPlace, ReductionThenElementwise) {
  Batch batch;
  // Weights are updated in place with a reduced gradient.
  batch.Add(Program("g = f32[33,17] parameter(0)\n w = f32[17] parameter(1)\n z = f32[] constant(0)\n s = f32[17] "
                    "reduce(g, z), dimensions={0}, to_apply=add\n ROOT u = f32[17] subtract(w, s)"),
            Close(1e-5));
  batch.InPlace({{0, 1}});
  // The result of a reduction shares memory with an operand that only another result depends on.
  batch.Add(Program("g = f32[33,17] parameter(0)\n w = f32[17] parameter(1)\n z = f32[] constant(0)\n s = f32[17] "
                    "reduce(g, z), dimensions={0}, to_apply=add\n u = f32[17] subtract(w, s)\n ROOT t = (f32[17], "
                    "f32[17]) tuple(s, u)"),
            Close(1e-5));
  batch.InPlace({{0, 1}});
  // The results are a reduction, and an elementwise value that shares memory with the reduction's operand.
  batch.Add(Program("x = f32[33,17] parameter(0)\n z = f32[] constant(0)\n y = f32[33,17] multiply(x, x)\n s = f32[33] "
                    "reduce(y, z), dimensions={1}, to_apply=add\n ROOT t = (f32[33,17], f32[33]) tuple(y, s)"),
            Close(1e-5));
  batch.InPlace({{0, 0}});
  batch.Run();
}

TEST(InPlace, Updates) {
  Batch batch;
  batch.Add(
      Program("x = f32[6,7] parameter(0)\n u = f32[2,3] parameter(1)\n i = s32[] parameter(2)\n j = s32[] "
              "parameter(3)\n ROOT r = f32[6,7] dynamic-update-slice(x, u, i, j)"));
  batch.InPlace({{0, 0}});
  // The update is computed from other positions of the operand.
  batch.Add(
      Program("x = f32[6,7] parameter(0)\n i = s32[] parameter(1)\n j = s32[] parameter(2)\n f = f32[6,7] "
              "reverse(x), dimensions={0,1}\n s = f32[2,3] slice(f), slice={[1:3], [2:5]}\n ROOT r = f32[6,7] "
              "dynamic-update-slice(x, s, i, j)"));
  batch.InPlace({{0, 0}});
  batch.Add(Program("x = f32[5,6] parameter(0)\n i = s32[7,1] parameter(1)\n u = f32[7,6] parameter(2)\n ROOT r = "
                    "f32[5,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
                    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"),
            Close(1e-5));
  batch.InPlace({{0, 0}});
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
