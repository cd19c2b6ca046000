// Compiled kernels of opcodes that are not elementwise, and of fusions, compared with the evaluator.
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/case_count.h"
#include "hlo/testing/test_material.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

TEST(Kernel, FusesElementwiseChains) {
  Batch batch;
  batch.Add(Program("x = f32[37] parameter(0)\n y = f32[37] parameter(1)\n ROOT z = f32[37] add(x, y)"));
  batch.Add(Program(R"(
    x = f32[5,7] parameter(0)
    b = f32[7] parameter(1)
    s = f32[] constant(2)
    bb = f32[5,7] broadcast(b), dimensions={1}
    ss = f32[5,7] broadcast(s), dimensions={}
    a = f32[5,7] add(x, bb)
    m = f32[5,7] multiply(a, ss)
    t = f32[7,5] transpose(m), dimensions={1,0}
    r = f32[35] reshape(t)
    ROOT n = f32[35] negate(r))"));
  // A chain of 40 values, each of which, except the last, is used twice: it has 2^39 paths.
  std::string chain = "v0 = f32[9] parameter(0)\n";
  for (int i = 1; i < 40; ++i) {
    absl::StrAppend(&chain, i == 39 ? "ROOT " : "", "v", i, " = f32[9] ", i % 2 == 0 ? "add" : "maximum", "(v", i - 1,
                    ", v", i - 1, ")\n");
  }
  batch.Add(Program(chain));
  batch.Add(Program("x = f32[0,5] parameter(0)\n ROOT n = f32[0,5] negate(x)"));
  batch.Add(Program("x = f32[] parameter(0)\n ROOT n = f32[] negate(x)"));
  batch.Add(
      Program("x = f32[1,1,3] parameter(0)\n n = f32[1,1,3] negate(x)\n y = f32[3] reshape(x)\n ROOT t = "
              "(f32[1,1,3], f32[3]) tuple(n, y)"));
  batch.Run();
}

TEST(Kernel, MovesData) {
  Batch batch;
  const auto one = [&](const std::string& in, const std::string& out, const std::string& op) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", in, " parameter(0)\n ROOT r = ", out, " ", op, "\n}\n"));
  };
  one("f32[3,5]", "f32[2,3,4,5]", "broadcast(x), dimensions={1,3}");
  one("s8[]", "s8[3,0]", "broadcast(x), dimensions={}");
  one("pred[6,5,4]", "pred[12,10]", "reshape(x)");
  one("bf16[6,5,4]", "bf16[2,3,20]", "reshape(x)");
  one("c64[2,3,5]", "c64[5,2,3]", "transpose(x), dimensions={2,0,1}");
  one("f32[10,9]", "f32[4,3]", "slice(x), slice={[1:9:2],[2:9:3]}");
  one("s32[4,6]", "s32[4,6]", "reverse(x), dimensions={0,1}");
  one("u32[3]", "u32[4,3]", "broadcast(x), dimensions={1}");
  one("f64[7]", "f32[7]", "convert(x)");
  one("u32[5]", "u8[5,4]", "bitcast-convert(x)");
  one("u8[5,4]", "f32[5]", "bitcast-convert(x)");
  one("f64[3]", "u16[3,4]", "bitcast-convert(x)");
  for (const char* type : {"f32", "s32", "u8", "f16", "bf16", "c64", "f64", "s64"}) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n ROOT r = ", type, "[3,7] iota(), iota_dimension=1\n}\n"));
  }
  for (const char* padding : {"1_2x0_3", "-1_2x3_-2", "0_0_2x1_1_1", "-2_-1_1x4_0_3", "-4_0x0_0"}) {
    const std::string text = absl::StrCat(
        "x = f32[4,5] parameter(0)\n v = f32[] parameter(1)\n ROOT r = f32[@] pad(x, "
        "v), padding=",
        padding);
    const std::map<std::string, std::string> sizes = {{"1_2x0_3", "7,8"},
                                                      {"-1_2x3_-2", "5,6"},
                                                      {"0_0_2x1_1_1", "10,11"},
                                                      {"-2_-1_1x4_0_3", "4,21"},
                                                      {"-4_0x0_0", "0,5"}};
    batch.Add(Program(absl::StrReplaceAll(text, {{"@", sizes.at(padding)}})));
  }
  batch.Add(
      Program("x = f32[2,3] parameter(0)\n y = f32[2,1] parameter(1)\n z = f32[2,5] parameter(2)\n ROOT r = "
              "f32[2,9] concatenate(x, y, z), dimensions={1}"));
  batch.Add(
      Program("x = f32[0,3] parameter(0)\n y = f32[4,3] parameter(1)\n ROOT r = f32[4,3] concatenate(x, y), "
              "dimensions={0}"));
  batch.Add(
      Program("c = f32[2,3] constant({{1,2,3},{4,5,6}})\n x = f32[2,3] parameter(0)\n ROOT r = f32[2,3] "
              "add(x, c)"));
  batch.Run();
}

// Tiles of all sizes, overlapping pieces, dimensions that merge, and transposes without tiles.
TEST(Kernel, TransposesInAllOrders) {
  Batch batch;
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"64,48", {"1,0"}},
      {"17,33", {"1,0"}},
      {"5,100", {"1,0"}},
      {"3,50", {"1,0"}},
      {"0,7", {"1,0"}},
      {"1,40,1,20", {"3,0,2,1", "2,3,1,0"}},
      {"6,19,8", {"0,2,1", "1,0,2", "2,0,1", "1,2,0", "2,1,0"}},
      {"4,5,7,18", {"0,3,1,2", "0,2,3,1", "3,2,1,0", "2,3,0,1", "1,3,0,2", "0,2,1,3"}},
      {"2,3,4,5,6", {"4,2,0,1,3", "3,4,0,1,2", "1,0,4,3,2"}},
  };
  // The number of permutations is odd, so every second one is tried for a type, and the others for the next type.
  int64_t position = 0;
  for (const char* type : {"f32", "bf16", "pred", "u8", "s4", "f64", "c64", "c128"}) {
    for (const auto& [from, permutations] : cases) {
      const std::vector<std::string> sizes = absl::StrSplit(from, ',');
      for (const std::string& permutation : permutations) {
        if (!TriesCase(position++, 2)) continue;
        std::vector<std::string> to;
        for (const absl::string_view d : absl::StrSplit(permutation, ',')) {
          to.push_back(sizes[d[0] - '0']);
        }
        batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", type, "[", from, "] parameter(0)\n ROOT r = ", type,
                               "[", absl::StrJoin(to, ","), "] transpose(x), dimensions={", permutation, "}\n}\n"));
      }
    }
  }
  batch.Run();
}

TEST(Kernel, ReducesAllDimensions) {
  Batch batch;
  const std::vector<int64_t> sizes = {3, 17, 29};
  int64_t position = 0;
  for (const char* dims : {"0", "1", "2", "0,1", "0,2", "1,2", "0,1,2"}) {
    std::vector<std::string> kept;
    for (int d = 0; d < 3; ++d) {
      if (std::string(dims).find(static_cast<char>('0' + d)) == std::string::npos) {
        kept.push_back(absl::StrCat(sizes[d]));
      }
    }
    for (const char* type : {"f32", "bf16", "f64", "s32", "u8", "pred", "c64"}) {
      for (const char* reducer : {"add", "mul", "max", "min"}) {
        if (type[0] == 'c' && reducer[1] != 'd' && reducer[1] != 'u') continue;
        const bool exact = type[0] == 's' || type[0] == 'u' || type[0] == 'p';
        if (reducer[1] == 'u' && !exact) continue;  // Products of these types overflow.
        if (!TriesCase(position++, 3)) continue;
        batch.Add(Program(absl::StrCat("x = ", type, "[3,17,29] parameter(0)\n z = ", type,
                                       "[] parameter(1)\n ROOT r = ", type, "[", absl::StrJoin(kept, ","),
                                       "] reduce(x, z), dimensions={", dims, "}, to_apply=", reducer),
                          type),
                  exact ? hlo::Tolerance{} : Close(type[0] == 'b' ? 2e-2 : 1e-5));
      }
    }
  }
  for (const char* shape : {"1,5", "5,1", "0,5", "5,0", "2100,3", "3,2100", "1,1"}) {
    for (const int d : {0, 1}) {
      const std::vector<std::string> parts = {std::string(shape).substr(0, std::string(shape).find(',')),
                                              std::string(shape).substr(std::string(shape).find(',') + 1)};
      batch.Add(Program(absl::StrCat("x = f32[", shape, "] parameter(0)\n z = f32[] parameter(1)\n ROOT r = f32[",
                                     parts[1 - d], "] reduce(x, z), dimensions={", d,
                                     "}, to_apply=add")),
                Close(1e-4));
    }
  }
  batch.Run();
}

TEST(Kernel, ReductionsInsideFusions) {
  Batch batch;
  batch.Add(Program(R"(
    x = f32[6,33] parameter(0)
    z = f32[] constant(0)
    e = f32[6,33] exponential(x)
    s = f32[6] reduce(e, z), dimensions={1}, to_apply=add
    l = f32[6] log(s)
    b = f32[6,33] broadcast(l), dimensions={0}
    d = f32[6,33] subtract(x, b)
    ROOT t = (f32[6,33], f32[6], f32[6]) tuple(d, s, l))"),
            Close(1e-5));
  batch.Add(Program(R"(
    x = f32[6,33] parameter(0)
    z = f32[] constant(0)
    q = f32[6,33] multiply(x, x)
    s = f32[33] reduce(x, z), dimensions={0}, to_apply=add
    t = f32[33] reduce(q, z), dimensions={0}, to_apply=add
    v = f32[33] subtract(t, s)
    ROOT r = (f32[33], f32[33], f32[33]) tuple(s, t, v))"),
            Close(1e-5));
  // The operand of the reduction is a reduction.
  batch.Add(Program(R"(
    x = f32[6,7,9] parameter(0)
    z = f32[] constant(0)
    a = f32[6,7] reduce(x, z), dimensions={2}, to_apply=max
    b = f32[7] reduce(a, z), dimensions={0}, to_apply=add
    ROOT r = f32[7] negate(b))"),
            Close(1e-5));
  batch.Run();
}

TEST(Kernel, DynamicSlices) {
  Batch batch;
  for (const char* type : {"s32", "u32", "s64", "u8", "s8"}) {
    for (int seed = 0; seed < 3; ++seed) {
      batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[6,7] parameter(0)
  i = $[] parameter(1)
  j = $[] parameter(2)
  ROOT r = f32[3,4] dynamic-slice(x, i, j), dynamic_slice_sizes={3,4}
})",
                                    {{"$", type}}));
      batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[6,7] parameter(0)
  u = f32[2,7] parameter(1)
  i = $[] parameter(2)
  j = $[] parameter(3)
  ROOT r = f32[6,7] dynamic-update-slice(x, u, i, j)
})",
                                    {{"$", type}}));
    }
  }
  batch.Run();
}

TEST(Kernel, GathersAndScatters) {
  Batch batch;
  for (const char* type : {"s32", "u32", "s8", "s64"}) {
    const std::vector<std::pair<std::string, std::string>> names = {{"$", type}};
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[5,6] parameter(0)
  i = $[7,1] parameter(1)
  ROOT r = f32[7,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={1,6}
})",
                                  names));
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[5,6,4] parameter(0)
  i = $[2,3] parameter(1)
  ROOT r = f32[2,3,3,2] gather(x, i), offset_dims={1,2,3}, collapsed_slice_dims={}, start_index_map={2,0,1},
      index_vector_dim=1, slice_sizes={3,3,2}
})",
                                  names));
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[3,6] parameter(0)
  i = $[3,5,1] parameter(1)
  ROOT r = f32[3,5] gather(x, i), offset_dims={}, collapsed_slice_dims={1}, operand_batching_dims={0},
      start_indices_batching_dims={0}, start_index_map={1}, index_vector_dim=2, slice_sizes={1,1}
})",
                                  names));
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[5,6] parameter(0)
  i = $[7,1] parameter(1)
  ROOT r = f32[7,6] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
      index_vector_dim=1, slice_sizes={0,6}
})",
                                  names));
    for (const char* reducer : {"add", "max", "min", "mul"}) {
      batch.Add(Program(absl::StrReplaceAll(absl::StrCat(R"(
  x = f32[5,6] parameter(0)
  i = Q[7,1] parameter(1)
  u = f32[7,6] parameter(2)
  ROOT r = f32[5,6] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=)",
                                                         reducer),
                                            {{"Q", type}})));
      batch.Add(Program(absl::StrReplaceAll(absl::StrCat(R"(
  x = f32[5,6,4] parameter(0)
  i = Q[8,2] parameter(1)
  u = f32[8,2,3] parameter(2)
  ROOT r = f32[5,6,4] scatter(x, i, u), update_window_dims={1,2}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={2,0}, index_vector_dim=1, to_apply=)",
                                                         reducer),
                                            {{"Q", type}})));
    }
  }
  batch.Run();
}

TEST(Kernel, Windows) {
  Batch batch;
  for (const char* reducer : {"add", "max"}) {
    batch.Add(Program(absl::StrCat("x = f32[2,9,8] parameter(0)\n z = f32[] parameter(1)\n ROOT r = f32[2,4,8] "
                                   "reduce-window(x, z), window={size=1x3x2 stride=1x2x1 pad=0_0x0_0x0_1}, to_apply=",
                                   reducer)),
              Close(1e-5));
    batch.Add(Program(absl::StrCat("x = f32[9] parameter(0)\n z = f32[] parameter(1)\n ROOT r = f32[9] "
                                   "reduce-window(x, z), window={size=9 pad=8_0}, to_apply=",
                                   reducer)),
              Close(1e-5));
    batch.Add(Program(absl::StrCat("x = f32[5,4] parameter(0)\n z = f32[] parameter(1)\n ROOT r = f32[9,4] "
                                   "reduce-window(x, z), window={size=3x2 pad=1_1x-1_2 lhs_dilate=2x1 "
                                   "rhs_dilate=1x1}, to_apply=",
                                   reducer)),
              Close(1e-5));
  }
  for (const char* select : {"GE", "LT"}) {
    batch.Add(Program(absl::StrCat("x = f32[2,8,9] parameter(0)\n s = f32[2,4,4] parameter(1)\n z = f32[] "
                                   "parameter(2)\n ROOT r = f32[2,8,9] select-and-scatter(x, s, z), "
                                   "window={size=1x2x3 stride=1x2x2}, select=",
                                   select, ", scatter=add")),
              Close(1e-5));
    batch.Add(Program(absl::StrCat("x = f32[7] parameter(0)\n s = f32[4] parameter(1)\n z = f32[] parameter(2)\n "
                                   "ROOT r = f32[7] select-and-scatter(x, s, z), window={size=3 stride=2 pad=1_1}, "
                                   "select=",
                                   select, ", scatter=add")),
              Close(1e-5));
  }
  batch.Run();
}

TEST(Kernel, Convolutions) {
  Batch batch;
  const auto one = [&](const char* input, const char* kernel, const char* output, const char* attributes) {
    batch.Add(absl::StrCat("HloModule m\nENTRY e {\n x = ", input, " parameter(0)\n k = ", kernel,
                           " parameter(1)\n ROOT r = ", output, " convolution(x, k), ", attributes, "\n}\n"),
              Close(1e-4));
  };
  one("f32[2,8,9,3]", "f32[3,3,3,4]", "f32[2,8,9,4]", "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f");
  one("f32[2,8,9,3]", "f32[3,2,3,4]", "f32[2,4,4,4]",
      "window={size=3x2 stride=2x2 pad=1_1x0_0}, dim_labels=b01f_01io->b01f");
  one("f32[2,3,5]", "f32[4,3,3]", "f32[2,4,9]", "window={size=3 pad=1_1 lhs_dilate=2}, dim_labels=bf0_oi0->bf0");
  one("f32[2,3,9]", "f32[4,3,3]", "f32[2,4,5]", "window={size=3 rhs_dilate=2 rhs_reversal=1}, dim_labels=bf0_oi0->bf0");
  one("f32[2,6,5]", "f32[4,3,3]", "f32[2,4,3]", "window={size=3}, dim_labels=bf0_oi0->bf0, feature_group_count=2");
  one("f32[4,3,5]", "f32[4,3,3]", "f32[2,4,3]", "window={size=3}, dim_labels=bf0_oi0->bf0, batch_group_count=2");
  one("f32[3,8,9,2]", "f32[2,8,9,4]", "f32[3,3,3,4]", "window={size=8x9 pad=1_1x1_1}, dim_labels=b01f_i01o->b01f");
  batch.Run();
}

TEST(Kernel, Scans) {
  Batch batch;
  for (const char* reverse : {"", ", is_reverse=true"}) {
    batch.Add(absl::StrCat(R"(HloModule m
step {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  s = f32[3] add(x, c)
  ROOT t = (f32[3], f32[3]) tuple(s, s)
}
ENTRY e {
  x = f32[3,11] parameter(0)
  c = f32[3] parameter(1)
  ROOT r = (f32[3,11], f32[3]) scan(x, c), dimensions={1}, num_carries=1, to_apply=step)",
                           reverse, "\n}\n"),
              Close(1e-5));
    batch.Add(absl::StrCat(R"(HloModule m
step {
  x = f32[3] parameter(0)
  c = f32[3] parameter(1)
  s = f32[3] maximum(x, c)
  ROOT t = (f32[3], f32[3]) tuple(s, s)
}
ENTRY e {
  x = f32[11,3] parameter(0)
  c = f32[3] parameter(1)
  ROOT r = (f32[11,3], f32[3]) scan(x, c), dimensions={0}, num_carries=1, to_apply=step)",
                           reverse, "\n}\n"));
  }
  batch.Run();
}

TEST(Kernel, RandomBits) {
  Batch batch;
  int64_t position = 0;
  for (const char* algorithm : {"rng_three_fry", "rng_philox", "rng_default"}) {
    for (const char* state : {"u64[2]", "u64[3]", "u32[4]"}) {
      if (algorithm[4] == 't' && std::string(state) == "u64[3]") continue;
      for (const char* shape : {"u32[7,6]", "u32[5,3]", "u64[9]", "u32[]", "u8[10]", "u16[3,3]", "u64[0]"}) {
        if (!TriesCase(position++, 2)) continue;
        batch.Add(absl::StrCat("HloModule m\nENTRY e {\n s = ", state, " parameter(0)\n ROOT r = (", state, ", ", shape,
                               ") rng-bit-generator(s), algorithm=", algorithm, "\n}\n"),
                  {}, true);
      }
    }
  }
  batch.Run();
}

TEST(Kernel, DotsInLoops) {
  Batch batch;
  for (const char* type : {"f32", "f64", "s32", "c64", "bf16", "u8", "f16"}) {
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $[2,5,7] parameter(0)
  y = $[7,2,3] parameter(1)
  ROOT r = $[2,5,3] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={2},
      rhs_contracting_dims={0}
})",
                                  {{"$", type}}),
              type[0] == 's' || type[0] == 'u' ? hlo::Tolerance{} : Close(1e-2));
  }
  batch.Run();
}

// The products of elements of two arrays are unrolled, so LLVM may combine them into vectors.
TEST(Kernel, OuterProductsOfSmallBatches) {
  Batch batch;
  int64_t position = 0;
  for (const char* type : {"u64", "s32", "f32", "f64", "u8"}) {
    for (const int n : {1, 2, 3, 4, 5}) {
      if (!TriesCase(position++, 2)) continue;
      batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = TYPE[4,4,4] parameter(0)
  y = TYPE[4,4,SIZE] parameter(1)
  ROOT d = TYPE[4,4,4,SIZE] dot(x, y), lhs_batch_dims={1,2}, rhs_batch_dims={0,1}
})",
                                    {{"TYPE", type}, {"SIZE", absl::StrCat(n)}}));
    }
  }
  batch.Run();
}

// Columns are summed 64 at a time. The last piece of a row may overlap the piece before it.
TEST(Kernel, DotsByRows) {
  Batch batch;
  int64_t position = 0;
  for (const char* type : {"f64", "s32", "u8", "s8", "c64", "c128", "bf16"}) {
    ++position;
    for (const int n : {4, 65, 130}) {
      ++position;
      for (const char* line : {
               "x = $[7,9] parameter(0)\n  y = $[9,%] parameter(1)\n  ROOT r = $[7,%] dot(x, y), "
               "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
               "x = $[2,3,7,4] parameter(0)\n  y = $[3,5,4,2,%] parameter(1)\n  ROOT r = $[2,7,5,%] dot(x, y), "
               "lhs_batch_dims={0}, rhs_batch_dims={3}, lhs_contracting_dims={3,1}, rhs_contracting_dims={2,0}",
               "x = $[7] parameter(0)\n  y = $[7,%] parameter(1)\n  ROOT r = $[%] dot(x, y), "
               "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
               "x = $[7,0] parameter(0)\n  y = $[0,%] parameter(1)\n  ROOT r = $[7,%] dot(x, y), "
               "lhs_contracting_dims={1}, rhs_contracting_dims={0}"}) {
        if (!TriesCase(position++, 3)) continue;
        const std::string text = absl::StrReplaceAll(line, {{"$", type}, {"%", absl::StrCat(n)}});
        const double error = type[0] == 'f' ? 1e-9 : type[0] == 'c' ? 1e-4 : type[0] == 'b' ? 2e-2 : 0;
        batch.Add(absl::StrCat("HloModule m\nENTRY e {\n  ", text, "\n}\n"), Close(error));
      }
    }
  }
  for (const char* result : {"s32", "f64"}) {
    const char* operand = result[0] == 's' ? "s8" : "f32";
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = #[17,33] parameter(0)
  y = #[33,100] parameter(1)
  ROOT r = $[17,100] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})",
                                  {{"$", result}, {"#", operand}}),
              Close(1e-9));
  }
  batch.Run();
}

TEST(Kernel, LinearAlgebra) {
  Batch batch;
  int64_t position = 0;  // A fifth of the triangular solves has each value of each attribute.
  for (const char* type : {"f32", "f64", "c64", "c128"}) {
    for (const char* lower : {"true", "false"}) {
      // Random matrices are rarely positive definite; if they are not, the results contain NaNs.
      batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $[2,5,5] parameter(0)
  ROOT r = $[2,5,5] cholesky(x), lower=%
})",
                                    {{"$", type}, {"%", lower}}),
                Close(type[1] == '3' || type[1] == '6' ? 1e-3 : 1e-9));
      batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = $[3,3] parameter(0)
  zero = $[3,3] subtract(x, x)
  ROOT r = $[3,3] cholesky(zero), lower=%
})",
                                    {{"$", type}, {"%", lower}}));
      for (const char* transpose : {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}) {
        for (const char* left : {"true", "false"}) {
          for (const char* unit : {"true", "false"}) {
            if (!TriesCase(position++, 5)) continue;
            batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  a = $[2,4,4] parameter(0)
  b = $[2,@] parameter(1)
  ROOT r = $[2,@] triangular-solve(a, b), left_side=L, lower=%, unit_diagonal=U, transpose_a=P
})",
                                          {{"$", type},
                                           {"%", lower},
                                           {"L", left},
                                           {"=U", absl::StrCat("=", unit)},
                                           {"=P", absl::StrCat("=", transpose)},
                                           {"@", left[0] == 't' ? "4,3" : "3,4"}}),
                      Close(type[0] == 'f' && type[1] == '6' ? 1e-6 : 2e-2));
          }
        }
      }
    }
  }
  batch.Run();
}

TEST(Kernel, BatchNorms) {
  Batch batch;
  for (const int64_t feature : {0, 1, 2}) {
    const int64_t size = std::vector<int64_t>{4, 5, 3}[feature];
    const std::vector<std::pair<std::string, std::string>> names = {{"@", absl::StrCat(feature)},
                                                                    {"#", absl::StrCat(size)}};
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[4,5,3] parameter(0)
  s = f32[#] parameter(1)
  o = f32[#] parameter(2)
  ROOT r = (f32[4,5,3], f32[#], f32[#]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=@
})",
                                  names),
              Close(1e-5));
    for (const char* variance : {"abs(v)"}) {
      batch.Add(absl::StrReplaceAll(absl::StrCat(R"(HloModule m
ENTRY e {
  x = f32[4,5,3] parameter(0)
  s = f32[#] parameter(1)
  o = f32[#] parameter(2)
  m = f32[#] parameter(3)
  v = f32[#] parameter(4)
  w = f32[#] )",
                                                 variance, R"(
  ROOT r = f32[4,5,3] batch-norm-inference(x, s, o, m, w), epsilon=0.001, feature_index=@
})"),
                                    names),
                Close(1e-4));
    }
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[4,5,3] parameter(0)
  s = f32[#] parameter(1)
  m = f32[#] parameter(2)
  v = f32[#] parameter(3)
  w = f32[#] abs(v)
  g = f32[4,5,3] parameter(4)
  ROOT r = (f32[4,5,3], f32[#], f32[#]) batch-norm-grad(x, s, m, w, g), epsilon=0.001, feature_index=@
})",
                                  names),
              Close(1e-3));
  }
  // Features without elements: sums are zero, and means are NaN.
  for (const char* opcode : {"training(x, s, m)", "grad(x, s, m, w, x)"}) {
    batch.Add(absl::StrReplaceAll(R"(HloModule m
ENTRY e {
  x = f32[0,5] parameter(0)
  s = f32[5] parameter(1)
  m = f32[5] parameter(2)
  v = f32[5] parameter(3)
  w = f32[5] abs(v)
  ROOT r = (f32[0,5], f32[5], f32[5]) batch-norm-@, epsilon=0.001, feature_index=1
})",
                                  {{"@", opcode}}));
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
