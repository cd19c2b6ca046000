// Kernels of products of matrices: their text, their schedules, and the interpreter against the evaluator.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/random.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "compiler/kernel/interpret.h"
#include "compiler/kernel/product_schedule.h"
#include "compiler/testing/candidates.h"
#include "compiler/testing/random_inputs.h"
#include "compiler/testing/random_schedule.h"
#include "hlo/analysis/leaves.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"

namespace xlad::compiler {
namespace {

using tensor::Array;

std::unique_ptr<Module> ProductProgram(const std::string& lhs, const std::string& rhs, const std::string& product) {
  const std::string text = absl::StrCat("HloModule m\nENTRY e {\n  x = ", lhs, " parameter(0)\n  y = ", rhs,
                                        " parameter(1)\n  ROOT r = ", product, "\n}\n");
  auto module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  return *std::move(module);
}

std::unique_ptr<Module> SomeDot() {
  return ProductProgram("f64[40,12]", "f64[12,24]",
                        "f64[40,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
}

// Dots and convolutions of several types, orders of dimensions, groups and windows.
std::vector<std::unique_ptr<Module>> ProductPrograms() {
  std::vector<std::unique_ptr<Module>> programs;
  programs.push_back(SomeDot());
  const auto dot = [&](const std::string& lhs, const std::string& rhs, const std::string& result) {
    programs.push_back(ProductProgram(lhs + "[3,8,11,2]", rhs + "[2,9,8,3]",
                                      result + "[3,11,9] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={3}, "
                                               "lhs_contracting_dims={1,3}, rhs_contracting_dims={2,0}"));
  };
  for (const char* type : {"f64", "f32", "bf16", "c64", "c128", "s32", "u64", "u8", "pred"}) dot(type, type, type);
  dot("s8", "s8", "s32");
  dot("bf16", "f32", "f32");
  programs.push_back(ProductProgram("f64[50,9]", "f64[9,3]",
                                    "f64[50,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"));
  for (const char* type : {"f64", "s8", "c64"}) {
    const std::string name = type;
    programs.push_back(ProductProgram(
        name + "[2,5,4,6]", name + "[3,2,3,8]",
        name + "[2,10,2,8] convolution(x, y), window={size=3x2 stride=1x2 pad=2_1x1_0 lhs_dilate=2x1 rhs_dilate=1x2 "
               "rhs_reversal=1x0}, dim_labels=b01f_01io->b01f, feature_group_count=2"));
    programs.push_back(ProductProgram(name + "[6,3,7]", name + "[8,3,3]",
                                      name + "[3,8,7] convolution(x, y), window={size=3 pad=1_1}, "
                                             "dim_labels=bf0_oi0->bf0, batch_group_count=2"));
  }
  return programs;
}

Kernel ProductKernelOf(const Module& module) {
  std::optional<Kernel> kernel = BuildKernel(*module.entry()->root());
  EXPECT_TRUE(kernel.has_value() && IsProductKernel(*kernel)) << hlo::PrintText(module);
  const absl::Status verified = VerifyKernel(*kernel);
  EXPECT_TRUE(verified.ok()) << verified << KernelText(*kernel);
  return *std::move(kernel);
}

// The values of RandomInputs have exact sums, so that fused multiply-adds have the evaluator's results.
void ExpectProduct(const ScheduledKernel& scheduled, const std::vector<Array>& inputs, const Array& expected) {
  const auto run = InterpretKernel(scheduled, inputs);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_EQ(run->outputs.size(), 1u);
  EXPECT_EQ(run->outputs[0].shape().elements(), expected.elements());
  EXPECT_TRUE(std::equal(expected.bytes().begin(), expected.bytes().end(), run->outputs[0].bytes().begin()))
      << KernelText(scheduled.kernel) << ScheduleText(scheduled.schedule);
}

Array EvaluatedProduct(const Module& module, const std::vector<Array>& inputs) {
  const auto result = hlo::Evaluate(module, std::vector<hlo::Literal>(inputs.begin(), inputs.end()));
  EXPECT_TRUE(result.ok()) << result.status();
  return result->array;
}

TEST(ProductKernel, RandomSchedulesHaveTheResultsOfTheEvaluator) {
  uint64_t seed = 0;
  int64_t atoms = 0, unpacked = 0, by_rows = 0;
  for (const auto& module : ProductPrograms()) {
    const auto random = SeededRandom(++seed);
    const Kernel kernel = ProductKernelOf(*module);
    const std::vector<Array> inputs = RandomInputs(*module, random.get());
    const Array expected = EvaluatedProduct(*module, inputs);
    for (int i = 0; i < 4; ++i) {
      const auto scheduled =
          i == 0 ? ApplySchedule(kernel, DefaultSchedule(kernel, 3)) : RandomScheduled(kernel, random.get());
      ASSERT_TRUE(scheduled.ok()) << scheduled.status();
      ExpectProduct(*scheduled, inputs, expected);
      const ProductBlocks& blocks = *scheduled->blocks;
      atoms += blocks.atom_rows > 0;
      unpacked += !blocks.packs_lhs || !blocks.packs_rhs;
      by_rows += blocks.vectorizes_rows;
    }
  }
  EXPECT_GT(atoms, 5);
  EXPECT_GT(unpacked, 5);
  EXPECT_GT(by_rows, 5);
}

TEST(ProductKernel, CandidatesAreDifferentAndDoNotChangeBits) {
  for (const auto& module : ProductPrograms()) {
    const auto random = SeededRandom(1);
    const Kernel kernel = ProductKernelOf(*module);
    const std::vector<Array> inputs = RandomInputs(*module, random.get());
    const Array expected = EvaluatedProduct(*module, inputs);
    const int64_t candidates =
        CheckCandidates(kernel, [&](const ScheduledKernel& scheduled) { ExpectProduct(scheduled, inputs, expected); });
    EXPECT_GT(candidates, 5);
  }
}

TEST(ProductKernel, TextRoundTrips) {
  for (const auto& module : ProductPrograms()) {
    const Kernel kernel = ProductKernelOf(*module);
    const std::string text = KernelText(kernel);
    const auto parsed = ParseKernel(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
    EXPECT_EQ(KernelText(*parsed), text);
    EXPECT_EQ(KernelHash(*parsed), KernelHash(kernel));
    const auto random = SeededRandom(1);
    const KernelSchedule schedule = RandomSchedule(kernel, random.get());
    const auto again = ParseSchedule(ScheduleText(schedule));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, schedule);
  }
}

constexpr char kDotSchedule[] =
    "split m 40\nsplit n 24\nsplit k 12\norder g m.o n.o k.o n.i m.i k.i\nbind g m.o n.o 1\nstage x0 k.o\n"
    "stage x1 k.o\nvectorize n.i\n";

TEST(ProductKernel, TextIsReadable) {
  const auto module = SomeDot();
  const Kernel kernel = ProductKernelOf(*module);
  const std::string text = KernelText(kernel);
  for (const char* line : {"dim g 1\ndim m 40\ndim n 24\ndim k 12\n", "input x0 f64 480\n", "output y0 f64 960\n",
                           "product s0 over g m n along k writes y0 at 0\nread x0 at 0\nread x1 at 0\ncode\n"}) {
    EXPECT_TRUE(absl::StrContains(text, line)) << line << "\n" << text;
  }
  EXPECT_EQ(ScheduleText(DefaultSchedule(kernel, 1)), kDotSchedule);
  // If one operand is thin, the lanes of a vector are lines of this operand, and the other operand is read in place.
  // But if the elements of a line of the other operand are not neighbors, the lanes are lines of the other operand.
  const auto thin = [](const std::string& lhs, const std::string& rhs, const std::string& product) {
    const auto depth = [](const std::string& shape) { return absl::StrContains(shape, "[9,") ? "0" : "1"; };
    const auto program =
        ProductProgram(lhs, rhs, absl::StrCat(product, " dot(x, y), lhs_contracting_dims={", depth(lhs),
                                              "}, rhs_contracting_dims={", depth(rhs), "}"));
    const std::string schedule = ScheduleText(DefaultSchedule(ProductKernelOf(*program), 1));
    return schedule.substr(schedule.find("stage"));
  };
  EXPECT_EQ(thin("f64[50,9]", "f64[9,3]", "f64[50,3]"), "stage x1 k.o\nvectorize n.i\n");
  EXPECT_EQ(thin("f64[9,3]", "f64[50,9]", "f64[3,50]"), "stage x0 k.o\nvectorize m.i\n");
  EXPECT_EQ(thin("f64[9,50]", "f64[3,9]", "f64[50,3]"), "stage x0 k.o\nstage x1 k.o\nvectorize m.i\n");
  EXPECT_EQ(thin("f32[50,9]", "f64[9,3]", "f64[50,3]"), "stage x0 k.o\nstage x1 k.o\nvectorize m.i\n");
  const auto scheduled = ApplySchedule(kernel, DefaultSchedule(kernel, 2));
  ASSERT_TRUE(scheduled.ok()) << scheduled.status();
  EXPECT_EQ(scheduled->tiles, 2);
}

// Each block of rows reads the complete right operand, and each block of columns the complete left operand.
TEST(ProductKernel, BlocksReadOperandsOnce) {
  const auto module = SomeDot();
  const Kernel kernel = ProductKernelOf(*module);
  const auto random = SeededRandom(1);
  const std::vector<Array> inputs = RandomInputs(*module, random.get());
  const int64_t lhs = 8 * 40 * 12, rhs = 8 * 12 * 24;
  for (const auto& [rows, columns, read] :
       {std::tuple(40, 24, lhs + rhs), {20, 24, lhs + 2 * rhs}, {40, 8, 3 * lhs + rhs}}) {
    KernelSchedule schedule = DefaultSchedule(kernel, 1);
    schedule.splits[0].factor = rows;
    schedule.splits[1].factor = columns;
    const auto scheduled = ApplySchedule(kernel, schedule);
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    const auto run = InterpretKernel(*scheduled, inputs);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->bytes_read, read);
    EXPECT_EQ(run->bytes_written, 8 * 40 * 24);
  }
}

// Applies kDotSchedule with one replacement. The error must contain `words`.
void Refuses(const Kernel& kernel, const std::string& from, const std::string& to, const std::string& words) {
  const std::string text = absl::StrReplaceAll(kDotSchedule, {{from, to}});
  ASSERT_NE(text, kDotSchedule) << from;
  const auto schedule = ParseSchedule(text);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  const auto scheduled = ApplySchedule(kernel, *schedule);
  ASSERT_FALSE(scheduled.ok()) << text;
  EXPECT_EQ(scheduled.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(scheduled.status().message(), words)) << scheduled.status() << " instead of " << words;
}

TEST(ProductKernel, RefusesWrongSchedules) {
  const auto module = SomeDot();
  const Kernel kernel = ProductKernelOf(*module);
  ASSERT_TRUE(ApplySchedule(kernel, *ParseSchedule(kDotSchedule)).ok());
  Refuses(kernel, "split m 40\n", "", "split m: found no such split, expected the sizes of blocks");
  Refuses(kernel, "split m 40", "split m 0", "split m 0: expected a positive factor");
  Refuses(kernel, "split m 40", "split m 40\nsplit m 8", "split m 8: the dimension is already split");
  Refuses(kernel, "split m 40", "split g 1\nsplit m 40", "split g 1: expected the dimension m, n or k");
  Refuses(kernel, "m.i k.i", "k.i m.i", "so that every sum is in the order of the depth");
  Refuses(kernel, "order g m.o n.o k.o", "order g k.o m.o n.o", "expected g, then m.o and n.o in any order");
  Refuses(kernel, "bind g m.o n.o 1", "bind g n.o m.o 1", "expected the loops over blocks: g m.o n.o");
  Refuses(kernel, "bind g m.o n.o 1\n", "", "expected the loops over blocks: g m.o n.o");
  Refuses(kernel, "n.o 1", "n.o 0", "bind g m.o n.o 0: expected a positive number");
  Refuses(kernel, "vectorize n.i", "vectorize k.i", "vectorize k.i: expected one of m.i and n.i");
  Refuses(kernel, "vectorize n.i\n", "", "expected one of m.i and n.i");
  Refuses(kernel, "stage x1 k.o\n", "", "stage x1 k.o: found no such stage; the lines of vectors must be packed");
  Refuses(kernel, "stage x1 k.o", "stage y0 k.o", "stage y0 k.o: expected an operand");
  Refuses(kernel, "stage x1 k.o", "stage x1 n.o", "stage x1 n.o: expected k.o");
  Refuses(kernel, "stage x1 k.o", "stage x0 k.o", "stage x0 k.o: the operand is staged already");
  Refuses(kernel, "vectorize n.i", "vectorize n.i\nunroll k.i", "unroll: found it in the schedule of a product");
  const auto atom = [&](const std::string& sizes, const std::string& words) {
    Refuses(kernel, "vectorize n.i", "vectorize n.i\natom " + sizes, "atom " + sizes + ": " + words);
  };
  atom("6 16", "expected powers of two");
  atom("8 2", "found 2 sums along the lanes of vectors, expected 4 to 32");
  atom("8 64", "found 64 sums along the lanes of vectors, expected 4 to 32");
  atom("32 8", "found 32 lines of vectors, expected at most 16");
  EXPECT_TRUE(absl::StrContains(ParseSchedule("atom 8\n").status().message(), "atom ROWS COLUMNS"));
  EXPECT_TRUE(absl::StrContains(ParseSchedule("atom 0 0\n").status().message(), "an atom with positive sizes"));
}

TEST(ProductKernel, RefusesBlocksThatDoNotFit) {
  const auto large = ProductProgram("f64[999,999]", "f64[999,999]",
                                    "f64[999,999] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  Refuses(ProductKernelOf(*large), "split m 40\nsplit n 24\nsplit k 12", "split m 400\nsplit n 400\nsplit k 64",
          "split m 400, n 400, k 64: found blocks of 2097152 bytes, expected at most 1048576");
  // Products of s8 are computed in pairs.
  const auto pairs = ProductProgram("s8[40,12]", "s8[12,24]",
                                    "s32[40,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  Refuses(ProductKernelOf(*pairs), "stage x0 k.o\n", "", "factors that are multiplied in pairs must be packed");
  // Their sums have 4 bytes, even if the results have one byte.
  const auto narrow = ProductProgram("u8[10880,32]", "u8[32,24]",
                                     "u8[10880,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  const Kernel kernel = ProductKernelOf(*narrow);
  Refuses(kernel, "split m 40\nsplit n 24\nsplit k 12", "split m 10880\nsplit n 1\nsplit k 32",
          "split m 10880, n 1, k 32: found blocks of");
  Refuses(kernel, "vectorize n.i", "vectorize n.i\natom 1 128", "found 128 sums along the lanes of vectors");
  EXPECT_TRUE(absl::StrContains(ApplySchedule(ProductKernelOf(*pairs), *ParseSchedule("order r\n")).status().message(),
                                "split m: found no such split"));
}

TEST(ProductKernel, RefusesWrongKernels) {
  const auto module = SomeDot();
  const std::string text = KernelText(ProductKernelOf(*module));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& words) {
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    ASSERT_NE(changed, text) << from;
    const auto parsed = ParseKernel(changed);
    ASSERT_FALSE(parsed.ok()) << from << " to " << to;
    EXPECT_TRUE(absl::StrContains(parsed.status().message(), words)) << parsed.status();
  };
  refused("dim m 40", "dim m 41", "expected dimensions of 1, 40, 24 and 12 elements");
  refused("input x0 f64 480", "input x0 f64 481", "array x0: expected f64[40,12], which its code reads");
  refused("output y0 f64 960", "output y0 f32 960", "array y0: expected f64[40,24], which its code writes");
  refused("over g m n along k", "over m n along k", "over three dimensions along a fourth one");
  refused("read x1 at 0", "read x0 at 0", "array x1: expected");
}

// Only products that CPUs compute in blocks have kernels. For GPUs, no product has one.
TEST(ProductKernel, SmallProductsHaveNone) {
  const auto small = ProductProgram("f64[4,12]", "f64[12,24]",
                                    "f64[4,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}");
  EXPECT_FALSE(BuildKernel(*small->entry()->root()).has_value());
  const auto large = SomeDot();
  EXPECT_NE(ScheduleFusion(*large->entry()->root(), 4), nullptr);
  EXPECT_EQ(ScheduleFusion(*large->entry()->root(), kOneRowTiles), nullptr);
}

}  // namespace
}  // namespace xlad::compiler
