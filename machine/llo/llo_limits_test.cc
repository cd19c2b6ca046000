// Programs that are valid in form but extreme or wrong: loops that would run forever, numbers that name nothing, names
// and operands that the text cannot express.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "machine/chip.h"
#include "machine/llo/interpret.h"
#include "machine/llo/scoreboard.h"

namespace xlad::machine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

// A kernel whose buffers are x and y.
std::string KernelText(const std::string& items) {
  return absl::StrCat("program p\nbuffer x f32 8\nbuffer y f32 8\nkernel k vmem 1 inputs x outputs y {\n", items,
                      "\n}\n");
}

// The registers are those after all iterations, and the store shows s0 in its error.
TEST(LloLimitsTest, LoopsWithoutBundlesEnd) {
  const auto program = ParseLlo(KernelText(R"(
    loop s0 4611686018427387904 {
      loop s1 4611686018427387903 {
      }
      loop s2 0 {
        { smov s0, #7 }
      }
    }
    loop s2 9223372036854775807 {
    }
    { vst s0, v0, #0 })"));
  ASSERT_TRUE(program.ok()) << program.status();
  LloMemory memory(2, std::string(32, '\0'));
  const auto no_macros = [](const LloKernel&, LloMemory*) { return absl::OkStatus(); };
  EXPECT_THAT(MessageOf(RunLlo(*program, no_macros, &memory)), HasSubstr("tile 4611686018427387903 of VMEM"));
}

// With 22 levels, the number of bundles is 5^22, the largest power of 5 that a double holds exactly.
TEST(LloLimitsTest, NestedLoopsAreTimed) {
  const Chip chip = *BuiltInChip("v5e");
  const auto time_of = [&](int depth, int64_t trips) {
    std::string items = "{ smov s9, #1 }";
    for (int level = 0; level < depth; ++level) items = absl::StrCat("loop s0 ", trips, " {\n", items, "\n}");
    const auto program = ParseLlo(KernelText(items));
    EXPECT_TRUE(program.ok()) << program.status();
    return TimeLlo(*program, program->kernels[0], chip);
  };
  for (const int depth : {3, 12, 22}) {
    const LloTime time = time_of(depth, 5);
    EXPECT_EQ(time.bundles, std::pow(5.0, depth));
    EXPECT_NEAR(time.us / (time.bundles * 1e6 / chip.clock_hz / chip.cores), 1, 1e-9);
  }
  EXPECT_GT(time_of(64, std::numeric_limits<int64_t>::max()).us, 1e15);
}

// A chip file may state 65,536 of everything.
TEST(LloLimitsTest, LargeChipsHaveTheMatrixUnitsOfTheInstructionSet) {
  Chip chip = *BuiltInChip("v5e");
  chip.cores = chip.mxus_per_core = chip.mxu_size = 65536;
  EXPECT_EQ(chip.mxus(), int64_t{1} << 32);
  EXPECT_EQ(MatrixUnitsOf(chip), kMatrixUnits);
}

// The block has one row, so that the distance of rows is not used. The other rows of its tile are zeros.
TEST(LloLimitsTest, RowsOfPaddingHaveNoAddress) {
  const auto program = ParseLlo(KernelText(R"(
    { smov s0, #0 ; smov s1, #1 }
    { smov s2, #8 }
    { dma.in s0, s0, s1, s2, s1, buffer=x, stride=9223372036854775807, tiles=1, sem=0 }
    { dma.wait s1, sem=0 }
    { dma.out s0, s0, s1, s2, s1, buffer=y, stride=9223372036854775807, tiles=1, sem=0 }
    { dma.wait s1, sem=0 })"));
  ASSERT_TRUE(program.ok()) << program.status();
  LloMemory memory(2, std::string(32, '\1'));
  memory[1].assign(32, '\0');
  const auto no_macros = [](const LloKernel&, LloMemory*) { return absl::OkStatus(); };
  const absl::Status status = RunLlo(*program, no_macros, &memory);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(memory[1], memory[0]);
}

TEST(LloLimitsTest, NumbersMustNameSomething) {
  const auto verified = [](const std::string& items) {
    const auto program = ParseLlo(KernelText(items));
    EXPECT_TRUE(program.ok()) << program.status();
    return MessageOf(VerifyLlo(*program, 4, 8));
  };
  for (const char* const text : {"vmat.load v0, #", "vmat.push v0, #", "vmat.pop v0, #", "vmat.swap #"}) {
    EXPECT_EQ(verified(absl::StrCat("{ ", text, "63 }")), "");
    EXPECT_THAT(verified(absl::StrCat("{ ", text, "64 }")), HasSubstr("found matrix unit 64, expected 0 to 63"));
    EXPECT_THAT(verified(absl::StrCat("{ ", text, "-1 }")), HasSubstr("found matrix unit -1"));
  }
  LloProgram program{"p", {{"x", LloType::kF32, 8}}, {{"k", 1, {}, {}, {0}, {0}}}};
  EXPECT_EQ(MessageOf(VerifyLlo(program, 4, 8)), "");
  program.buffers[0].elements = -1;
  EXPECT_EQ(MessageOf(VerifyLlo(program, 4, 8)), "buffer x: found -1 elements, expected 0 or more");
  program.buffers[0].elements = 8;
  program.kernels[0].inputs = {0, 1};
  EXPECT_THAT(MessageOf(VerifyLlo(program, 4, 8)), HasSubstr("kernel k: found input buffer 1, expected one of"));
  program.kernels[0].inputs = {0};
  program.kernels[0].outputs = {-1};
  EXPECT_THAT(MessageOf(VerifyLlo(program, 4, 8)), HasSubstr("kernel k: found output buffer -1"));
}

TEST(LloLimitsTest, BuffersAreNotNamedLikeTheirLists) {
  for (const char* const name : {"inputs", "outputs"}) {
    EXPECT_THAT(MessageOf(ParseLlo(absl::StrCat("program p\nbuffer ", name, " f32 8\n")).status()),
                AllOf(HasSubstr("line 2"), HasSubstr("other than inputs and outputs")));
  }
}

TEST(LloLimitsTest, WhiteSpaceIsNotPartOfNames) {
  const auto program = ParseLlo("program\tp\nbuffer x\v f32 8\nmacro m sort ops 1 bytes 1 outputs x\v inputs \n");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->buffers[0].name, "x");
  EXPECT_TRUE(*ParseLlo(PrintLlo(*program)) == *program);
}

TEST(LloLimitsTest, NumbersOf64BitsRoundTrip) {
  auto program = ParseLlo(KernelText("{ smov s0, #-9223372036854775808 ; smov s1, #9223372036854775807 }"));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(*ParseLlo(PrintLlo(*program)) == *program);
}

}  // namespace
}  // namespace xlad::machine
