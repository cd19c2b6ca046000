// Kernels of all kinds that are large enough to be divided into several tiles. Batch runs each as one tile and as about
// five, on several numbers of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/object_emitter.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

TEST(Tiles, ColumnReductionsInStrips) {
  Batch batch;
  for (const char* dims : {"7,1000", "7,1024", "3,64", "3,65", "40,2048", "2,9,130", "5,1,3000", "6,4,129"}) {
    const std::string shape = absl::StrCat("f32[", dims, "]");
    const std::string text = dims;
    const std::string kept = text.substr(text.find(',') + 1);
    batch.Add(Program(absl::StrCat(" p = ", shape, " parameter(0)\n q = f32[", kept, "] parameter(1)\n",
                                   " z = f32[] constant(0)\n s = f32[", kept, "] reduce(p, z), dimensions={0}, ",
                                   "to_apply=add\n ROOT r = f32[", kept, "] subtract(q, s)")),
              Close(1e-5));
  }
  batch.Add(Program(" p = f32[3,20,130] parameter(0)\n z = f32[] constant(0)\n"
                    " ROOT s = f32[3,130] reduce(p, z), dimensions={1}, to_apply=add"),
            Close(1e-5));
  batch.Add(Program(" p = f32[30,20,16] parameter(0)\n z = f32[] constant(0)\n"
                    " ROOT s = f32[30,16] reduce(p, z), dimensions={1}, to_apply=add"),
            Close(1e-5));
  batch.Run();
}

TEST(Tiles, RowReductions) {
  Batch batch;
  for (const char* dims : {"300,40", "64,1", "2,3,500", "1000,3"}) {
    const std::string text = dims;
    const std::string kept = text.substr(0, text.rfind(','));
    const auto last = std::count(text.begin(), text.end(), ',');
    batch.Add(Program(absl::StrCat(" p = f32[", dims, "] parameter(0)\n z = f32[] constant(0)\n s = f32[", kept,
                                   "] reduce(p, z), dimensions={", last, "}, to_apply=add\n ROOT r = f32[", kept,
                                   "] negate(s)")),
              Close(1e-5));
  }
  batch.Run();
}

std::string ChannelProgram(const std::string& dims, const std::string& kept, const std::string& over,
                           const std::string& reducer, const std::string& type) {
  return Program(absl::StrCat(" p = T[", dims, "] parameter(0)\n i = T[] parameter(1)\n ROOT s = T[", kept,
                              "] reduce(p, i), dimensions={", over, "}, to_apply=", reducer),
                 type);
}

// Rows of which only the last part is contiguous, such as the pixels of a channel. They have several lanes.
TEST(Tiles, ReductionsOfChannels) {
  Batch batch;
  for (const char* reducer : {"add", "max"}) {
    batch.AddOrdinaryAndSpecial(ChannelProgram("5,9,7,7", "9", "0,2,3", reducer, "f32"), Close(1e-4));
  }
  for (const auto& [reducer, type, tolerance] : {std::tuple("min", "f32", 0.0),
                                                 {"mul", "f32", 1e-4},
                                                 {"add", "f64", 1e-12},
                                                 {"add", "f16", 0.05},
                                                 {"max", "bf16", 0.0},
                                                 {"min", "f16", 0.0}}) {
    batch.Add(ChannelProgram("3,7,25", "7", "0,2", reducer, type), Close(tolerance));
  }
  batch.Add(ChannelProgram("70,20,3", "20", "0,2", "add", "f32"), Close(1e-4));
  batch.Add(ChannelProgram("70,1,20,3", "20", "0,1,3", "add", "f32"), Close(1e-4));
  batch.Add(ChannelProgram("40,2,20,3", "20", "0,1,3", "add", "f32"), Close(1e-4));
  batch.Add(ChannelProgram("3,9,5,13", "9", "0,2,3", "add", "bf16"), Close(0.05));
  batch.Add(ChannelProgram("3,20,1,9,1", "20,1,1", "0,3", "add", "f32"), Close(1e-5));
  batch.Add(ChannelProgram("3,4,5,6,7", "3,5", "1,3,4", "add", "f32"), Close(1e-5));
  // Two sums in one pass. Each needs other indices of an element than its channel and its position in the row.
  batch.Add(
      Program(" p = f32[4,6,5,7] parameter(0)\n q = f32[5] parameter(1)\n c = f32[6] parameter(2)\n"
              " z = f32[] constant(0)\n qq = f32[4,6,5,7] broadcast(q), dimensions={2}\n"
              " cc = f32[4,6,5,7] broadcast(c), dimensions={1}\n a = f32[4,6,5,7] multiply(p, qq)\n"
              " b = f32[4,6,5,7] subtract(p, cc)\n s = f32[6] reduce(a, z), dimensions={0,2,3}, to_apply=add\n"
              " t = f32[6] reduce(b, z), dimensions={0,2,3}, to_apply=add\n ROOT r = (f32[6], f32[6]) tuple(s, t)"),
      Close(1e-4));
  batch.Add(Program(" p = f32[8,9,40] parameter(0)\n z = f32[] constant(0)\n"
                    " l = f32[8,9,43] pad(p, z), padding=0_0x0_0x1_2\n"
                    " ROOT s = f32[9] reduce(l, z), dimensions={0,2}, to_apply=add"),
            Close(1e-4));
  batch.Run();
}

TEST(Tiles, ElementsOfManyShapes) {
  Batch batch;
  for (const char* dims : {"1000", "3,700", "700,3", "5,6,7,8", "1,2000", "2000,1", "2,1,1001"}) {
    batch.Add(Program(absl::StrCat(" p = f32[", dims, "] parameter(0)\n e = f32[", dims,
                                   "] exponential(p)\n ROOT r = f32[", dims, "] multiply(e, p)")),
              Ulp(4));
  }
  batch.Add(Program(" p = f32[90,70] parameter(0)\n q = f32[70] parameter(1)\n"
                    " b = f32[90,70] broadcast(q), dimensions={1}\n ROOT r = f32[90,70] multiply(p, b)"));
  batch.Add(Program(" p = f32[2,900] parameter(0)\n q = f32[2,100] parameter(1)\n"
                    " ROOT r = f32[2,1000] concatenate(p, q), dimensions={1}"));
  batch.Run();
}

TEST(Tiles, TransposesAndSorts) {
  Batch batch;
  batch.Add(Program(" p = f32[100,70] parameter(0)\n ROOT r = f32[70,100] transpose(p), dimensions={1,0}"));
  batch.Add(Program(" p = f32[10,33,45] parameter(0)\n ROOT r = f32[45,10,33] transpose(p), dimensions={2,0,1}"));
  batch.Add("HloModule m\nless {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = pred[] compare(a, b), "
            "direction=LT\n}\nENTRY e {\n p = f32[50,37] parameter(0)\n ROOT r = f32[50,37] sort(p), dimensions={1}, "
            "to_apply=less\n}\n");
  batch.Run();
}

std::string ScatterProgram(int64_t columns) {
  return Program(absl::StrCat(" x = f32[50,", columns, "] parameter(0)\n i = s32[90,1] parameter(1)\n u = f32[90,",
                              columns, "] parameter(2)\n ROOT r = f32[50,", columns,
                              "] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, ",
                              "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"));
}

// Random indices are small, so that many windows are outside of the operand and others overlap.
TEST(Tiles, ScattersInColumns) {
  Batch batch;
  for (const int64_t columns : {32, 64, 96, 130, 320}) {
    for (const bool in_place : {false, true}) {
      batch.Add(ScatterProgram(columns));
      if (in_place) batch.InPlace({{0, 0}});
    }
  }
  // A window whose first dimension has an index, and updates whose columns are not the last dimension.
  batch.Add(Program(" x = f32[20,3,64] parameter(0)\n i = s32[40,2] parameter(1)\n u = f32[2,64,40] parameter(2)\n"
                    " ROOT r = f32[20,3,64] scatter(x, i, u), update_window_dims={0,1}, inserted_window_dims={0}, "
                    "scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=max"));
  // Columns with an index are not divided, and neither are windows that are narrower than the operand.
  batch.Add(Program(" x = f32[20,64] parameter(0)\n i = s32[40,2] parameter(1)\n u = f32[40,64] parameter(2)\n"
                    " ROOT r = f32[20,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
                    "scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add"));
  batch.Add(Program(" x = f32[20,128] parameter(0)\n i = s32[40,1] parameter(1)\n u = f32[40,64] parameter(2)\n"
                    " ROOT r = f32[20,128] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0}, "
                    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"));
  batch.Run();
}

struct Emitted {
  int64_t tiles = 0;
  std::string ir;
};

Emitted Emit(const std::string& text, int64_t wanted_tiles) {
  const auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  const auto emitter = ObjectEmitter::Create(Target());
  EXPECT_TRUE(emitter.ok()) << emitter.status();
  KernelRequest request;
  request.root = AsKernel(module->get());
  request.symbol = "kernel";
  request.wanted_tiles = wanted_tiles;
  const auto kernel = (*emitter)->EmitKernel(request);
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  return {kernel->tiles, (*emitter)->IrText()};
}

int64_t TilesOf(const std::string& text, int64_t wanted) { return Emit(text, wanted).tiles; }

TEST(Tiles, ScattersHaveTilesOfWholeCacheLines) {
  EXPECT_EQ(TilesOf(ScatterProgram(32), 8), 1);
  EXPECT_EQ(TilesOf(ScatterProgram(64), 1), 1);
  EXPECT_EQ(TilesOf(ScatterProgram(64), 8), 2);
  EXPECT_EQ(TilesOf(ScatterProgram(130), 8), 1);
  EXPECT_EQ(TilesOf(ScatterProgram(320), 8), 5);
  EXPECT_EQ(TilesOf(ScatterProgram(768), 64), 12);
}

// The gradient of a depthwise convolution with respect to its filter: f32[3,2,1,channels].
std::string FilterGradient(int64_t channels) {
  const std::string end = absl::StrCat(",", channels, "]");
  return Program(absl::StrCat(" x = f32[2,7,6", end, " parameter(0)\n y = f32[2,4,3", end, " parameter(1)\n",
                              " ROOT r = f32[3,2,1", end, " convolution(x, y), window={size=4x3 pad=1_1x0_0 ",
                              "rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf, batch_group_count=", channels));
}

// Channels are computed in pieces of at most 64. If the last two pieces overlap, they must be in the same tile.
TEST(Tiles, OverlappingPiecesOfChannelsAreInOneTile) {
  EXPECT_EQ(TilesOf(FilterGradient(64), 64), 6);
  EXPECT_EQ(TilesOf(FilterGradient(96), 64), 12);
  EXPECT_EQ(TilesOf(FilterGradient(128), 64), 12);
  EXPECT_EQ(TilesOf(FilterGradient(130), 64), 6);
  EXPECT_EQ(TilesOf(FilterGradient(130), 4), 3);
}

// The gradient of pooling over `channels` channels of `images` images, in the order of dimensions of JAX.
std::string PoolingGradient(int64_t images, int64_t channels, const std::string& select, const std::string& scatter,
                            const std::string& type = "f32") {
  return Program(absl::StrCat(" x = T[", images, ",7,6,", channels, "] parameter(0)\n s = T[", images, ",4,3,",
                              channels, "] parameter(1)\n z = T[] parameter(2)\n ROOT r = T[", images, ",7,6,",
                              channels, "] select-and-scatter(x, s, z), window={size=1x3x2x1 stride=1x2x2x1 ",
                              "pad=0_0x1_1x0_0x0_0}, select=", select, ", scatter=", scatter),
                 type);
}

TEST(Tiles, GradientsOfPooling) {
  Batch batch;
  for (const int64_t channels : {3, 8, 64, 75}) {
    batch.Add(PoolingGradient(5, channels, "GE", "add"), Close(1e-5));
    batch.Add(PoolingGradient(channels == 64 ? 1 : 5, channels, "LT", "max"));
  }
  batch.Add(PoolingGradient(2, 16, "GE", "add"), Close(1e-5), /*specials=*/true);
  for (const char* type : {"f64", "bf16", "s32", "u8"}) {
    batch.Add(PoolingGradient(2, 20, "GE", "add", type), Close(std::string(type) == "bf16" ? 0.1 : 1e-12));
  }
  // Windows that overlap in both dimensions, channels first, and windows of three dimensions with gaps between them.
  batch.Add(Program(" x = f32[2,9,8,16] parameter(0)\n s = f32[2,7,3,16] parameter(1)\n z = f32[] parameter(2)\n"
                    " ROOT r = f32[2,9,8,16] select-and-scatter(x, s, z), window={size=1x3x4x1 stride=1x1x2x1}, "
                    "select=GE, scatter=add"),
            Close(1e-5));
  batch.Add(Program(" x = f32[2,5,8,9] parameter(0)\n s = f32[2,5,4,4] parameter(1)\n z = f32[] parameter(2)\n"
                    " ROOT r = f32[2,5,8,9] select-and-scatter(x, s, z), window={size=1x1x2x3 stride=1x1x2x2}, "
                    "select=GE, scatter=add"),
            Close(1e-5));
  batch.Add(Program(" x = f32[2,5,6,7,8] parameter(0)\n s = f32[2,2,3,2,8] parameter(1)\n z = f32[] parameter(2)\n"
                    " ROOT r = f32[2,5,6,7,8] select-and-scatter(x, s, z), window={size=1x2x2x2x1 stride=1x3x2x4x1}, "
                    "select=LT, scatter=mul"),
            Close(1e-5));
  // The first dimension has windows, so the kernel is not divided.
  batch.Add(Program(" x = f32[9,20] parameter(0)\n s = f32[4,20] parameter(1)\n z = f32[] parameter(2)\n"
                    " ROOT r = f32[9,20] select-and-scatter(x, s, z), window={size=3x1 stride=2x1}, select=GE, "
                    "scatter=add"),
            Close(1e-5));
  batch.Run();
  EXPECT_EQ(Emit(PoolingGradient(5, 64, "GE", "add"), 8).tiles, 5);
  EXPECT_EQ(Emit(PoolingGradient(1, 64, "GE", "add"), 8).tiles, 1);
}

// A bias is added to each row. If there are at least half as many rows as wanted tiles, no tile has parts of two rows.
TEST(Tiles, ElementsOfRowsHaveTilesOfWholeRows) {
  const auto bias = [](int64_t rows, int64_t columns) {
    const std::string shape = absl::StrCat("f32[", rows, ",", columns, "]");
    return Program(absl::StrCat(" p = ", shape, " parameter(0)\n q = f32[", columns, "] parameter(1)\n b = ", shape,
                                " broadcast(q), dimensions={1}\n ROOT r = ", shape, " add(p, b)"));
  };
  EXPECT_EQ(TilesOf(bias(512, 1024), 300), 256);
  EXPECT_EQ(TilesOf(bias(512, 1024), 599), 512);
  EXPECT_EQ(TilesOf(bias(512, 1024), 1024), 512);
  EXPECT_EQ(TilesOf(bias(512, 1024), 2000), 2048);  // Four strips of each row.
  EXPECT_EQ(TilesOf(bias(512, 20), 599), 512);
  EXPECT_EQ(TilesOf(bias(1, 1024), 2), 2);
  Batch batch;
  for (const int64_t rows : {2, 3, 4, 5, 6}) batch.Add(bias(rows, 100));
  batch.Run();
}

// Centers rows and divides them by the sum of their squares. `rows` are the sizes of the other dimensions, which are
// the first `ndim`.
std::string CenteredRows(const std::string& rows, int ndim) {
  const std::string all = absl::StrCat("f32[", rows, ",128]"), row = absl::StrCat("f32[", rows, "]");
  const std::string dims = ndim == 1 ? "0" : "0,1,2";
  return Program(absl::StrCat(
      " p = ", all, " parameter(0)\n z = f32[] constant(0)\n s = ", row, " reduce(p, z), dimensions={", ndim,
      "}, to_apply=add\n b = ", all, " broadcast(s), dimensions={", dims, "}\n d = ", all, " subtract(p, b)\n q = ",
      all, " multiply(d, d)\n t = ", row, " reduce(q, z), dimensions={", ndim, "}, to_apply=add\n c = ", all,
      " broadcast(t), dimensions={", dims, "}\n ROOT r = ", all, " divide(d, c)"));
}

// The number of loops that are unrolled in the kernel of a program.
int64_t UnrolledLoops(const std::string& text) {
  const auto module = *hlo::ParseText(text);
  const auto emitter = *ObjectEmitter::Create(Target());
  KernelRequest request;
  request.root = AsKernel(module.get());
  request.symbol = "kernel";
  request.kernel = ScheduleFusion(*request.root, 1);
  EXPECT_TRUE(emitter->EmitKernel(request).ok());
  const std::string ir = emitter->IrText();
  int64_t count = 0;
  for (size_t at = ir.find("distinct !{"); at != std::string::npos; at = ir.find("distinct !{", at + 1)) ++count;
  return count;
}

// Short loops are unrolled, but not if they contain many loops that stay, such as those over the columns of a row.
TEST(Tiles, ShortLoopsAreUnrolledUnlessTheyHaveManyLoops) {
  EXPECT_EQ(UnrolledLoops(CenteredRows("8,4,4", 3)), UnrolledLoops(CenteredRows("128", 1)));
  // Two loops over the first elements have no loop inside.
  const auto first = [](int64_t count) {
    return absl::StrCat("HloModule m\nENTRY e {\n x = f32[9,20] parameter(0)\n ROOT r = (f32[9,", count, "], s32[9,",
                        count, "]) topk(x), k=", count, ", largest=true\n}\n");
  };
  EXPECT_EQ(UnrolledLoops(first(4)), UnrolledLoops(first(5)) + 2);
}

// A row of 25 elements has parts of 16, 8 and 1 elements. LLVM would compute a loop of 9 iterations with masks.
TEST(Tiles, PartsOfShortRowsArePowersOfTwo) {
  const std::string ir = Emit(ChannelProgram("3,7,25", "7", "0,2", "add", "f32"), 8).ir;
  EXPECT_TRUE(absl::StrContains(ir, ", 16\n"));
  EXPECT_TRUE(absl::StrContains(ir, ", 8\n"));
  EXPECT_FALSE(absl::StrContains(ir, ", 9\n"));
}

// The largest value over dimensions `over`, and its position along dimension `along`.
std::string ArgMax(const char* dims, const char* kept, const char* over, int along) {
  return absl::StrReplaceAll(hlo::TestText("tests/compiled/testdata/argmax.hlo"),
                             {{"$", dims}, {"#", kept}, {"%", over}, {"@", absl::StrCat(along)}});
}

// Also the sum of each row, in the same pass.
std::string ArgMaxAndSum() {
  return absl::StrReplaceAll(
      ArgMax("100,40", "100", "1", 1),
      {{"ENTRY", "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT r = f32[] add(a, b)\n}\nENTRY"},
       {"ROOT t = (s32[100], f32[100]) tuple(n, v)",
        "none = f32[] constant(0)\n  s = f32[100] reduce(x, none), dimensions={1}, to_apply=add\n"
        "  ROOT t = (s32[100], f32[100], f32[100]) tuple(n, v, s)"}});
}

TEST(Tiles, ReducersOfTuples) {
  Batch batch;
  batch.Add(ArgMax("5,11", "5", "1", 1));
  batch.Add(ArgMax("5,11", "11", "0", 0));
  // Several rows are reduced together. NaNs show that each row is reduced in order.
  batch.AddOrdinaryAndSpecial(ArgMax("100,11", "100", "1", 1));
  batch.AddOrdinaryAndSpecial(ArgMax("3,50,40", "3,50", "2", 2));
  batch.AddOrdinaryAndSpecial(ArgMax("40,1,5,3", "40,1", "2,3", 3));
  batch.AddOrdinaryAndSpecial(ArgMax("6,50,7", "50", "0,2", 0));
  // Row 18 of the first of five tiles would not be in a group of eight rows, as it is in one tile. With a sum, rows are
  // therefore reduced one after another.
  batch.Add(ArgMaxAndSum(), Close(1e-5));
  batch.Run();
}

// The innermost loop is over 8 rows, because the steps along a row depend on each other.
TEST(Tiles, ReducersOfTuplesReduceRowsTogether) {
  const auto has_loop_over_rows = [](const std::string& program) {
    const std::string ir = Emit(program, 8).ir;
    const std::vector<absl::string_view> lines = absl::StrSplit(ir, '\n');
    return std::any_of(lines.begin(), lines.end(), [](absl::string_view line) {
      return absl::StrContains(line, "icmp eq i64 ") && absl::EndsWith(line, ", 8");
    });
  };
  EXPECT_TRUE(has_loop_over_rows(ArgMax("100,11", "100", "1", 1)));
  EXPECT_FALSE(has_loop_over_rows(ArgMax("5,11", "5", "1", 1)));
  EXPECT_FALSE(has_loop_over_rows(ArgMaxAndSum()));
}

// Two halves of `rows` rows, concatenated along the last dimension or, if `along` is 0, along the first one. The result
// is also used by an elementwise instruction with a reshape.
std::string Halves(int64_t rows, int64_t half, int along) {
  const std::string part = absl::StrCat("f32[", rows, ",", half, "]");
  const std::string all = along == 1 ? absl::StrCat(rows, ",", 2 * half) : absl::StrCat(2 * rows, ",", half);
  return Program(absl::StrCat(" a = ", part, " parameter(0)\n b = ", part, " parameter(1)\n c = f32[", all,
                              "] parameter(2)\n x = ", part, " multiply(a, b)\n y = ", part, " add(a, b)\n z = f32[",
                              all, "] concatenate(x, y), dimensions={", along, "}\n u = f32[", all,
                              "] subtract(z, c)\n v = f32[1,", all, "] reshape(u)\n ROOT r = (f32[1,", all, "], f32[",
                              all, "]) tuple(v, z)"));
}

TEST(Tiles, Concatenations) {
  Batch batch;
  for (const int64_t rows : {1, 3, 40}) {
    for (const int64_t half : {5, 16, 100, 300}) {
      for (const int along : {0, 1}) batch.Add(Halves(rows, half, along));
    }
  }
  // Elements of a concatenation that are needed at two positions, operands of different sizes, and a concatenation of
  // another one.
  batch.Add(Program(" a = f32[20,32] parameter(0)\n b = f32[20,48] parameter(1)\n n = f32[20,48] negate(b)\n"
                    " z = f32[20,80] concatenate(a, n), dimensions={1}\n q = f32[20,80] reverse(z), dimensions={1}\n"
                    " ROOT r = f32[20,80] add(z, q)"));
  batch.Add(Program(" a = f32[9,2,32] parameter(0)\n b = f32[9,5,32] parameter(1)\n n = f32[9,5,32] negate(b)\n"
                    " z = f32[9,7,32] concatenate(a, n), dimensions={1}\n ROOT r = f32[9,14,32] "
                    "concatenate(z, z), dimensions={1}"));
  batch.Add(Program(" a = f32[9,2,32] parameter(0)\n b = f32[9,2,32] parameter(1)\n c = f32[9,1,32] parameter(2)\n"
                    " d = f32[9,3,32] parameter(3)\n n = f32[9,2,32] negate(b)\n m = f32[9,3,32] negate(d)\n"
                    " z = f32[9,4,32] concatenate(a, n), dimensions={1}\n y = f32[9,4,32] concatenate(c, m), "
                    "dimensions={1}\n ROOT r = f32[9,4,32] add(y, z)"));
  batch.Run();
}

// A chain of additions to a concatenation of eight operands.
std::string ChainAfterConcatenation(int additions) {
  std::string body = " p = f32[40,16] parameter(0)\n q = f32[40,16] parameter(1)\n c = f32[40,128] parameter(2)\n"
                     " u0 = f32[40,128] concatenate(p, q, p, q, p, q, p, q), dimensions={1}\n";
  for (int i = 0; i < additions; ++i) absl::StrAppend(&body, " u", i + 1, " = f32[40,128] add(u", i, ", c)\n");
  return Program(absl::StrCat(body, " ROOT r = f32[40,128] negate(u", additions, ")"));
}

// A branch stores the element of one operand in a variable. A loop for each operand needs no branch.
TEST(Tiles, ConcatenationsHaveALoopForEachOperand) {
  const auto emit_has_branch = [](const std::string& text, int64_t tiles) {
    return absl::StrContains(Emit(text, tiles).ir, "alloca float");
  };
  const auto has_branch = [&](int64_t half, int along, int64_t tiles) {
    return emit_has_branch(Halves(40, half, along), tiles);
  };
  EXPECT_FALSE(has_branch(64, 1, 1));
  EXPECT_FALSE(has_branch(64, 1, 8));
  EXPECT_FALSE(has_branch(64, 0, 1));
  EXPECT_TRUE(has_branch(64, 0, 8));  // The tiles are ranges of the concatenated dimension.
  EXPECT_TRUE(has_branch(5, 1, 1));   // The operands are too short for vectors.
  // Each loop repeats the additions, so they are limited (kMaxFusedInstructions).
  EXPECT_FALSE(emit_has_branch(ChainAfterConcatenation(40), 1));
  EXPECT_TRUE(emit_has_branch(ChainAfterConcatenation(80), 1));
}

}  // namespace
}  // namespace xlad::compiler
