// Text, verifier, interpreter and scoreboard of the LLO-like instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "machine/chip.h"
#include "machine/llo/interpret.h"
#include "machine/llo/scoreboard.h"
#include "machine/llo/vector_ops.h"

namespace xlad::machine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// y = x + x for 4 tiles, one after the other.
constexpr char kDouble[] = R"(program double
buffer x f32 4000
buffer y f32 4000
kernel double vmem 8 inputs x outputs y {
  { smov s0, #0 ; smov s1, #32 }
  { smov s2, #125 ; smov s3, #1 }
  { dma.in s0, s0, s1, s2, s3, buffer=x, stride=125, tiles=1, sem=0 }
  { dma.wait s3, sem=0 }
  loop s4 4 {
    { vld v0, s4, #0 }
    { vadd.f32 v1, v0, v0 }
    { vst s4, v1, #4 }
  }
  { smov s5, #4 }
  { dma.out s5, s0, s1, s2, s3, buffer=y, stride=125, tiles=1, sem=1 }
  { dma.wait s3, sem=1 }
}
macro sort.1 sort ops 100 bytes 2000 inputs y outputs y
)";

LloProgram Parsed(const std::string& text) {
  auto program = ParseLlo(text);
  EXPECT_TRUE(program.ok()) << program.status();
  return program.ok() ? *std::move(program) : LloProgram();
}

std::string LloErrorOf(const std::string& text) {
  const auto program = ParseLlo(text);
  if (!program.ok()) return std::string(program.status().message());
  return std::string(VerifyLlo(*program, 4, 8).message());
}

TEST(LloTextTest, PrintsWhatItParses) {
  const LloProgram program = Parsed(kDouble);
  EXPECT_EQ(PrintLlo(program), kDouble);
  EXPECT_TRUE(Parsed(PrintLlo(program)) == program);
  EXPECT_TRUE(VerifyLlo(program, 4, 8).ok());
}

// The programs have random instructions of all kinds.
TEST(LloTextTest, RandomProgramsRoundTrip) {
  std::mt19937 random(1);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 200; ++i) {
    LloProgram program{"p", {{"a", LloType::kF32, 7}, {"b", LloType::kPred, 1 << 20}}, {}};
    LloKernel& kernel = program.kernels.emplace_back();
    kernel.name = absl::StrCat("k", i);
    kernel.vmem_tiles = below(1000);
    kernel.inputs = {0};
    std::vector<LloItem>* items = &kernel.items;
    for (int n = 0; n < 20; ++n) {
      if (below(4) == 0) {
        items->emplace_back(LloLoop{below(32), below(100), {}});
        if (below(2) == 0) items = &std::get<LloLoop>(items->back()).items;
      }
      LloBundle bundle;
      for (int k = below(4); k > 0; --k) {
        LloInstruction& instruction = bundle.emplace_back();
        instruction.op = static_cast<LloOp>(below(kLloOpCount));
        const LloOpInfo& info = InfoOf(instruction.op);
        if (info.dst != '-') instruction.dst = below(32);
        for (size_t s = 0; s < info.sources.size(); ++s) instruction.sources[s] = below(32);
        if (info.has_imm) instruction.imm = below(1000) - 500;
        if (IsDma(instruction.op)) {
          instruction.buffer = below(2);
          instruction.stride = below(5000);
          instruction.tiles = 1 + below(9);
        }
        if (info.slot == LloSlot::kMisc) instruction.semaphore = below(kSemaphores);
      }
      items->emplace_back(std::move(bundle));
    }
    EXPECT_TRUE(Parsed(PrintLlo(program)) == program);
  }
}

TEST(LloTextTest, ErrorsNameLineFoundAndExpected) {
  const auto with = [](const std::string& from, const std::string& to) {
    return LloErrorOf(absl::StrReplaceAll(kDouble, {{from, to}}));
  };
  EXPECT_THAT(with("vadd.f32 v1", "vadd.f33 v1"), AllOf(HasSubstr("line 11"), HasSubstr("expected an instruction")));
  EXPECT_THAT(with("vadd.f32 v1, v0, v0", "vadd.f32 v1, v0"), HasSubstr("expected 3 operands"));
  EXPECT_THAT(with("vadd.f32 v1, v0, v0", "vadd.f32 v32, v0, v0"), HasSubstr("found \"v32\""));
  EXPECT_THAT(with("buffer y f32", "buffer y f64"), AllOf(HasSubstr("line 3"), HasSubstr("bf16")));
  EXPECT_THAT(with("buffer=y", "buffer=z"), HasSubstr("found \"z\""));
  EXPECT_THAT(with("  { dma.wait s3, sem=1 }\n}\n", ""), HasSubstr("line"));
  EXPECT_THAT(with("sem=0 }", "sem=32 }"), HasSubstr("semaphore 32"));
  for (const char* count : {"nan", "inf", "-1", "1e19"}) {
    EXPECT_THAT(with("ops 100", absl::StrCat("ops ", count)), HasSubstr(absl::StrCat("found \"", count, "\"")));
    EXPECT_THAT(with("bytes 2000", absl::StrCat("bytes ", count)), HasSubstr(absl::StrCat("found \"", count, "\"")));
  }
  EXPECT_THAT(with("stride=125, tiles=1, sem=0", "tiles=1, tiles=1, sem=0"), HasSubstr("expected stride="));
  EXPECT_THAT(with("dma.wait s3, sem=0", "dma.wait s3, tiles=1"), HasSubstr("expected sem="));
  for (const char* number : {"4294967296", "-4294967295", "9223372036854775807"}) {
    EXPECT_THAT(with("sem=0 }", absl::StrCat("sem=", number, " }")),
                AllOf(HasSubstr(absl::StrCat("found \"sem=", number, "\"")), HasSubstr("32 bits")));
  }
  EXPECT_THAT(with("{ smov s0, #0 ; smov s1, #32 }", "{ smov s0, #0 ; smov s1, #32 ; smov s7, #1 }"),
              HasSubstr("more than 2 instructions"));
  EXPECT_THAT(with("smov s1, #32", "smov s0, #32"), HasSubstr("two instructions in a bundle that write s0"));
  for (const char* tiles : {"-1", "9", "9223372036854775807"}) {
    EXPECT_THAT(with("vmem 8", absl::StrCat("vmem ", tiles)),
                HasSubstr(absl::StrCat("kernel double: found ", tiles, " tiles of VMEM, expected 0 to 8")));
  }
}

LloMemory MemoryOf(const LloProgram& program) {
  LloMemory memory;
  for (const LloBuffer& buffer : program.buffers) memory.emplace_back(buffer.elements * BytesOf(buffer.type), '\0');
  return memory;
}

absl::Status NoMacros(const LloKernel&, LloMemory*) { return absl::OkStatus(); }

TEST(LloInterpreterTest, CopiesAndComputes) {
  const LloProgram program = Parsed(kDouble);
  LloMemory memory = MemoryOf(program);
  for (int i = 0; i < 4000; ++i) {
    const auto value = static_cast<float>(i % 100);
    std::memcpy(memory[0].data() + 4 * i, &value, 4);
  }
  const absl::Status status = RunLlo(program, NoMacros, &memory);
  ASSERT_TRUE(status.ok()) << status;
  for (int i = 0; i < 4000; ++i) {
    float value = 0;
    std::memcpy(&value, memory[1].data() + 4 * i, 4);
    EXPECT_EQ(value, static_cast<float>(2 * (i % 100)));
  }
}

// Copies 37 rows of 3 elements to packed tiles, unpacks the rows 24 to 31, and packs them in the first rows of a tile
// whose other rows are those of the first tile.
constexpr char kPacked[] = R"(program packed
buffer x TYPE 111
buffer y WIDE 24
buffer z TYPE ROWS
kernel packed vmem 9 inputs x outputs y z {
  { smov s0, #0 ; smov s1, #37 }
  { smov s2, #3 ; smov s3, #1 }
  { dma.in s0, s0, s1, s2, s3, buffer=x, stride=3, tiles=1, sem=0 }
  { dma.wait s3, sem=0 }
  { vld v0, s0, #TILE ; smov s4, #3 }
  { vunpack.TYPE v1, v0, s4 ; smov s5, #8 }
  { vst s5, v1, #0 }
  { dma.out s5, s0, s5, s2, s3, buffer=y, stride=3, tiles=1, sem=1 }
  { vld v2, s0, #0 ; dma.wait s3, sem=1 }
  { vpack.PACK v3, v2, v1, s0 ; smov s6, #LINES }
  { vst s5, v3, #0 }
  { dma.out s5, s0, s6, s2, s3, buffer=z, stride=3, tiles=1, sem=1 }
  { dma.wait s3, sem=1 }
}
)";

TEST(LloInterpreterTest, PackedTiles) {
  struct Case {
    LloType type, wide;
    const char* pack;
  };
  for (const auto& [type, wide, pack] :
       {Case{LloType::kBf16, LloType::kF32, "bf16"}, Case{LloType::kF16, LloType::kF32, "f16"},
        Case{LloType::kS16, LloType::kS32, "b16"}, Case{LloType::kU16, LloType::kU32, "b16"},
        Case{LloType::kS8, LloType::kS32, "b8"}, Case{LloType::kU8, LloType::kU32, "b8"},
        Case{LloType::kE4m3, LloType::kF32, "f8e4m3fn"}, Case{LloType::kE5m2, LloType::kF32, "f8e5m2"}}) {
    const int packing = PackingOf(type), lines = 8 * packing;
    const LloProgram program = Parsed(absl::StrReplaceAll(
        kPacked, {{"TYPE", ToString(type)}, {"WIDE", ToString(wide)}, {"PACK", pack},
                  {"ROWS", absl::StrCat(3 * lines)}, {"LINES", absl::StrCat(lines)},
                  {"TILE", absl::StrCat(24 / lines)}}));
    LloMemory memory = MemoryOf(program);
    const int64_t bytes = BytesOf(type);
    std::mt19937 random(static_cast<unsigned>(packing));
    std::vector<uint32_t> elements(111);
    for (size_t i = 0; i < elements.size(); ++i) {
      // Random bits, except that exponents are not those of infinities and NaNs.
      elements[i] = random() & (packing == 4 ? wide == LloType::kF32 ? 0xbb : 0xff : 0xbbff);
      std::memcpy(memory[0].data() + static_cast<int64_t>(i) * bytes, &elements[i], static_cast<size_t>(bytes));
    }
    const absl::Status status = RunLlo(program, NoMacros, &memory);
    ASSERT_TRUE(status.ok()) << status;
    for (int i = 0; i < 24; ++i) {
      uint32_t word = 0;
      std::memcpy(&word, memory[1].data() + 4 * i, 4);
      EXPECT_EQ(word, WordOfElement(type, elements[72 + i])) << ToString(type) << " " << i;
    }
    for (int i = 0; i < 3 * lines; ++i) {
      uint32_t element = 0;
      std::memcpy(&element, memory[2].data() + i * bytes, static_cast<size_t>(bytes));
      EXPECT_EQ(element, elements[i < 24 ? 72 + i : i]) << ToString(type) << " " << i;
    }
  }
}

// The words of all elements of the narrow types, by definitions other than those of the interpreter.
TEST(LloFunctionTest, WordsOfNarrowElements) {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    EXPECT_EQ(WordOfElement(LloType::kS16, bits), bits < 0x8000 ? bits : bits - 0x10000);
    EXPECT_EQ(WordOfElement(LloType::kU16, bits), bits);
    EXPECT_EQ(WordOfElement(LloType::kS8, bits & 0xff), (bits & 0xff) < 0x80 ? bits & 0xff : (bits & 0xff) - 0x100);
    EXPECT_EQ(WordOfElement(LloType::kU8, bits & 0xff), bits & 0xff);
    for (const LloType type : {LloType::kS16, LloType::kU16, LloType::kBf16}) {
      EXPECT_EQ(ElementOfWord(type, WordOfElement(type, bits)), bits);
    }
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const auto fraction = static_cast<double>(bits & 0x3ff) / 1024;
    if (exponent == 31) continue;
    const double value = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1 + fraction, exponent - 15);
    const auto word = std::bit_cast<float>(WordOfElement(LloType::kF16, bits));
    EXPECT_EQ(static_cast<double>(word), bits < 0x8000 ? value : -value);
    EXPECT_EQ(ElementOfWord(LloType::kF16, WordOfElement(LloType::kF16, bits)), bits);
  }
  // Halfway between two numbers of f16, of which the even one is chosen.
  EXPECT_EQ(ElementOfWord(LloType::kF16, std::bit_cast<uint32_t>(2049.0f)), 0x6800u);
  EXPECT_EQ(ElementOfWord(LloType::kF16, std::bit_cast<uint32_t>(2051.0f)), 0x6802u);
}

TEST(LloInterpreterTest, FindsErrorsOfPrograms) {
  const auto run = [](const std::string& from, const std::string& to) {
    const LloProgram program = Parsed(absl::StrReplaceAll(kDouble, {{from, to}}));
    LloMemory memory = MemoryOf(program);
    return std::string(RunLlo(program, NoMacros, &memory).message());
  };
  EXPECT_THAT(run("  { dma.wait s3, sem=1 }\n", ""), HasSubstr("does not wait"));
  EXPECT_THAT(run("{ vst s4, v1, #4 }", "{ vst s4, v1, #5 }"), HasSubstr("tile 8 of VMEM"));
  EXPECT_THAT(run("smov s1, #32", "smov s1, #33"), HasSubstr("dma.in"));
  EXPECT_THAT(run("{ vadd.f32 v1, v0, v0 }", "{ vmat.pop v1, #0 }"), HasSubstr("an empty queue"));
  EXPECT_THAT(run("{ vadd.f32 v1, v0, v0 }", "{ vmat.push v0, #0 }"), HasSubstr("no weights"));
  EXPECT_THAT(run("  { smov s5, #4 }\n", "  { dma.wait s3, sem=3 }\n"), HasSubstr("the kernel would wait forever"));
}

// Numbers whose sums and products exceed 64 bits. If they wrapped, a copy of 2^62 + 1 rows that are 4 elements apart
// would end at element 124 and fit into 32 tiles.
TEST(LloInterpreterTest, FindsAddressesBeyond64Bits) {
  const auto run = [](const std::string& from, const std::string& to) {
    const LloProgram program = Parsed(absl::StrReplaceAll(kDouble, {{from, to}}));
    LloMemory memory = MemoryOf(program);
    return std::string(RunLlo(program, NoMacros, &memory).message());
  };
  EXPECT_THAT(run("{ vst s4, v1, #4 }", "{ vst s3, v1, #9223372036854775807 }"),
              HasSubstr("tile -9223372036854775808 of VMEM"));
  EXPECT_THAT(run("smov s1, #32", "smov s1, #9223372036854775807"), HasSubstr("found 9223372036854775807 rows"));
  const std::string many = absl::StrReplaceAll(
      kDouble, {{"vmem 8", "vmem 40"},
                {"smov s1, #32", "smov s1, #4611686018427387905"},
                {"stride=125, tiles=1", "stride=4, tiles=32"}});
  const LloProgram program = Parsed(many);
  LloMemory memory = MemoryOf(program);
  EXPECT_THAT(std::string(RunLlo(program, NoMacros, &memory).message()), HasSubstr("found 4611686018427387905 rows"));
}

TEST(LloFunctionTest, ScalarsWrap) {
  const auto s = [](LloOp op, int64_t a, int64_t imm) {
    LloInstruction instruction;
    instruction.op = op;
    instruction.imm = imm;
    return ScalarResult(instruction, a, imm);
  };
  EXPECT_EQ(s(LloOp::kSDivI, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(s(LloOp::kSRemI, INT64_MIN, -1), 0);
  EXPECT_EQ(s(LloOp::kSDivI, -7, -1), 7);
  EXPECT_EQ(s(LloOp::kSDivI, 7, 0), 0);
  EXPECT_EQ(s(LloOp::kSRemI, 7, 0), 0);
  EXPECT_EQ(s(LloOp::kSRemI, -7, 4), -3);
  for (const LloOp op : {LloOp::kSAdd, LloOp::kSAddI}) EXPECT_EQ(s(op, INT64_MAX, 1), INT64_MIN);
  EXPECT_EQ(s(LloOp::kSMulI, INT64_MIN, -1), INT64_MIN);
  EXPECT_EQ(s(LloOp::kSRSubI, 1, INT64_MIN), INT64_MAX);
}

// A tile that is read before the program waits for its copy does not have the copied values.
TEST(LloInterpreterTest, CopiesHappenWhenTheyAreWaitedFor) {
  std::string text = absl::StrReplaceAll(kDouble, {{"  { dma.wait s3, sem=0 }\n", ""}});
  text = absl::StrReplaceAll(text,
                             {{"  { smov s5, #4 }\n", "  { smov s5, #4 ; smov s6, #0 }\n  { dma.wait s3, sem=0 }\n"}});
  const LloProgram program = Parsed(text);
  LloMemory memory = MemoryOf(program);
  ASSERT_TRUE(RunLlo(program, NoMacros, &memory).ok());
  uint32_t bits = 0;
  std::memcpy(&bits, memory[1].data(), 4);
  EXPECT_NE(bits, 0);  // The result is NaN, the initial value of VMEM, not twice the zeros of x.
}

TEST(LloFunctionTest, EdgeCasesOfIntegers) {
  const auto s = [](LloOp op, int32_t a, int32_t b) {
    return static_cast<int32_t>(FunctionOf(op)(static_cast<uint32_t>(a), static_cast<uint32_t>(b), 0));
  };
  EXPECT_EQ(s(LloOp::kIDiv, 7, 0), -1);
  EXPECT_EQ(s(LloOp::kIRem, 7, 0), 7);
  EXPECT_EQ(s(LloOp::kIDiv, INT32_MIN, -1), INT32_MIN);
  EXPECT_EQ(s(LloOp::kIRem, INT32_MIN, -1), 0);
  EXPECT_EQ(s(LloOp::kIShl, 1, 32), 0);
  EXPECT_EQ(s(LloOp::kIShr, -8, 40), -1);
  EXPECT_EQ(s(LloOp::kIShr, -8, 1), -4);
}

double UsOf(const std::string& text, const Chip& chip) {
  const LloProgram program = Parsed(text);
  return TimeLlo(program, program.kernels[0], chip).us;
}

TEST(LloScoreboardTest, TimesOfLoopsIncludeAllTrips) {
  const Chip chip = *BuiltInChip("v5e");
  const auto loop = [](int trips) {
    return absl::StrCat("program p\nkernel k vmem 1 {\n  loop s0 ", trips,
                        " {\n    { vadd.f32 v0, v0, v0 }\n    { vmul.f32 v0, v0, v0 }\n  }\n}\n");
  };
  // Each of the two instructions depends on the other and takes 2 cycles.
  const double cycle_us = 1e6 / chip.clock_hz;
  EXPECT_NEAR(UsOf(loop(1001), chip) - UsOf(loop(1), chip), 4000 * cycle_us, 1e-6);
  EXPECT_NEAR(UsOf(loop(3), chip) - UsOf(loop(2), chip), 4 * cycle_us, 1e-6);
}

TEST(LloScoreboardTest, RatesAreThoseOfTheChip) {
  Chip chip = *BuiltInChip("v5e");
  const LloProgram program = Parsed(kDouble);
  const LloTime time = TimeLlo(program, program.kernels[0], chip);
  EXPECT_EQ(time.hbm_bytes, 4000 * 4 + 4000 * 4);
  EXPECT_NEAR(time.hbm_us, 32000 / chip.hbm_bytes_per_s * 1e6, 0.01);
  EXPECT_GT(time.us, 2 * kDmaLatencyUs);
  EXPECT_GT(time.stall_us, 0.9 * time.us - 0.1);
  chip.hbm_bytes_per_s *= 2;
  EXPECT_NEAR(TimeLlo(program, program.kernels[0], chip).hbm_us, time.hbm_us / 2, 1e-9);
  const LloTime macro = TimeLlo(program, program.kernels[1], chip);
  EXPECT_NEAR(macro.hbm_us, 2000 / chip.hbm_bytes_per_s * 1e6, 1e-9);
}

// The program multiplies 1,000 registers of 8 rows each. An array takes 8 rows in 8 cycles.
TEST(LloScoreboardTest, MatrixUnitsReachThePeak) {
  const Chip chip = *BuiltInChip("v5e");
  std::string weights;
  for (int i = 0; i < kMatrixTiles; ++i) weights += "  { vmat.load v0, #0 }\n";
  const std::string text = absl::StrCat("program p\nkernel k vmem 1 {\n", weights, "  { vmat.swap #0 }\n",
                                        "  loop s0 1000 {\n    { vmat.push v0, #0 }\n  }\n}\n");
  const LloProgram program = Parsed(text);
  const LloTime time = TimeLlo(program, program.kernels[0], chip);
  const double flops = 2.0 * 8000 * 128 * 128;
  // mxu_us is the mean over four units, of which one is busy.
  EXPECT_NEAR(flops / (time.mxu_us / 1e6), chip.bf16_flops, 1e-3 * chip.bf16_flops);
  EXPECT_NEAR(time.us, time.mxu_us * 4, 0.05 * time.us);
}

}  // namespace
}  // namespace xlad::machine
