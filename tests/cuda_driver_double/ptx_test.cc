// Tests of the PTX interpreter: single instructions, and kernels with barriers, shuffles, matrix products, races, calls
// and branch tables.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/cuda_driver_double/window_memory.h"

namespace xlad::cuda_double {
namespace {

uint64_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

class PtxTest : public ::testing::Test {
 protected:
  // Runs one block of the kernel `k`, whose only parameter is the address of a copy of `words`. Returns the copy after
  // the run.
  std::vector<uint64_t> Run(const std::string& ptx, uint32_t threads, std::vector<uint64_t> words) {
    std::string error;
    program_ = ParsePtx(".version 7.8\n.target sm_90\n.address_size 64\n" + ptx, &memory_, &error);
    EXPECT_NE(program_, nullptr) << error;
    if (program_ == nullptr) return {};
    const size_t bytes = words.size() * sizeof(uint64_t);
    const uint64_t address = memory_.Allocate(bytes);
    std::memcpy(memory_.Range(address, bytes), words.data(), bytes);
    code_ = RunBlock(*program_->functions.at("k"), memory_, reinterpret_cast<const std::byte*>(&address),
                     {0, threads, 0, 1}, races_);
    std::memcpy(words.data(), memory_.Range(address, bytes), bytes);
    memory_.Free(address);
    return words;
  }

  // Returns the result of an instruction whose operands are loaded from memory. `types` are the types of the result and
  // the operands.
  uint64_t Execute(const std::string& instruction, const std::vector<std::string>& types,
                   std::vector<uint64_t> operands) {
    std::string body = "ld.param.u64 %rd99, [p];\n";
    std::string list;
    for (size_t o = 0; o < operands.size(); ++o) {
      const std::string& type = types[1 + o];
      if (type == "pred") {
        body += "ld.global.u32 %r9, [%rd99+" + std::to_string(8 + 8 * o) + "];\nsetp.ne.u32 %p" + std::to_string(o) +
                ", %r9, 0;\n";
        list += ", %p" + std::to_string(o);
      } else {
        body += "ld.global." + type + " %x" + std::to_string(o) + ", [%rd99+" + std::to_string(8 + 8 * o) + "];\n";
        list += ", %x" + std::to_string(o);
      }
    }
    const bool is_predicate = types[0] == "pred";
    body += instruction + (is_predicate ? " %p9" : " %x9") + list + ";\n";
    if (is_predicate) body += "selp.u32 %x9, 1, 0, %p9;\n";
    body += "st.global." + (is_predicate ? "u32" : types[0]) + " [%rd99], %x9;\nret;\n";
    operands.insert(operands.begin(), 0);
    const std::vector<uint64_t> found = Run(".visible .entry k(.param .u64 p)\n{\n" + body + "}\n", 1, operands);
    return found.empty() ? ~uint64_t{0} : found[0];
  }

  WindowMemory memory_{uint64_t{1} << 26};
  std::unique_ptr<Program> program_;
  int code_ = 0;
  RaceChecker* races_ = nullptr;
};

TEST_F(PtxTest, Integers) {
  const uint64_t minus_one = 0xffffffff;
  EXPECT_EQ(Execute("add.s32", {"u32", "u32", "u32"}, {minus_one, 2}), 1u);
  EXPECT_EQ(Execute("sub.s16", {"u16", "u16", "u16"}, {1, 2}), 0xffffu);
  EXPECT_EQ(Execute("mul.lo.s64", {"u64", "u64", "u64"}, {uint64_t{1} << 40, uint64_t{1} << 30}), 0u);
  EXPECT_EQ(Execute("mul.hi.u64", {"u64", "u64", "u64"}, {uint64_t{1} << 40, uint64_t{1} << 30}), 1u << 6);
  EXPECT_EQ(Execute("mul.hi.s32", {"u32", "u32", "u32"}, {minus_one, 2}), minus_one);
  EXPECT_EQ(Execute("mul.wide.s32", {"u64", "u32", "u32"}, {minus_one, 3}), static_cast<uint64_t>(-3));
  EXPECT_EQ(Execute("mul.wide.u32", {"u64", "u32", "u32"}, {minus_one, 3}), 3 * minus_one);
  EXPECT_EQ(Execute("mad.lo.s32", {"u32", "u32", "u32", "u32"}, {3, 4, 5}), 17u);
  EXPECT_EQ(Execute("div.s32", {"u32", "u32", "u32"}, {static_cast<uint32_t>(-7), 2}), static_cast<uint32_t>(-3));
  EXPECT_EQ(Execute("rem.s32", {"u32", "u32", "u32"}, {static_cast<uint32_t>(-7), 2}), minus_one);
  EXPECT_EQ(Execute("div.s32", {"u32", "u32", "u32"}, {0x80000000, minus_one}), 0x80000000u);
  EXPECT_EQ(Execute("div.u32", {"u32", "u32", "u32"}, {5, 0}), minus_one);
  EXPECT_EQ(Execute("min.s32", {"u32", "u32", "u32"}, {minus_one, 1}), minus_one);
  EXPECT_EQ(Execute("max.u32", {"u32", "u32", "u32"}, {minus_one, 1}), minus_one);
  EXPECT_EQ(Execute("setp.lt.s32", {"pred", "u32", "u32"}, {minus_one, 1}), 1u);
  EXPECT_EQ(Execute("setp.lt.u32", {"pred", "u32", "u32"}, {minus_one, 1}), 0u);
  EXPECT_EQ(Execute("selp.b32", {"u32", "u32", "u32", "pred"}, {5, 6, 0}), 6u);
}

TEST_F(PtxTest, Bits) {
  EXPECT_EQ(Execute("shl.b32", {"u32", "u32", "u32"}, {1, 31}), 0x80000000u);
  EXPECT_EQ(Execute("shl.b32", {"u32", "u32", "u32"}, {1, 32}), 0u);
  EXPECT_EQ(Execute("shr.s32", {"u32", "u32", "u32"}, {0x80000000, 99}), 0xffffffffu);
  EXPECT_EQ(Execute("shr.u32", {"u32", "u32", "u32"}, {0x80000000, 31}), 1u);
  EXPECT_EQ(Execute("bfe.u32", {"u32", "u32", "u32", "u32"}, {0xabcd, 4, 8}), 0xbcu);
  EXPECT_EQ(Execute("bfe.s32", {"u32", "u32", "u32", "u32"}, {0x00f0, 4, 4}), 0xffffffffu);
  EXPECT_EQ(Execute("bfi.b32", {"u32", "u32", "u32", "u32", "u32"}, {0xff, 0x12345678, 8, 4}), 0x12345f78u);
  EXPECT_EQ(Execute("shf.l.wrap.b32", {"u32", "u32", "u32", "u32"}, {0x80000000, 1, 1}), 3u);
  EXPECT_EQ(Execute("shf.r.wrap.b32", {"u32", "u32", "u32", "u32"}, {0x80000000, 1, 33}), 0xc0000000u);
  EXPECT_EQ(Execute("prmt.b32", {"u32", "u32", "u32", "u32"}, {0x33221100, 0x77665544, 0x7410}), 0x77441100u);
  EXPECT_EQ(Execute("popc.b64", {"u32", "u64"}, {0xf0f}), 8u);
  EXPECT_EQ(Execute("clz.b32", {"u32", "u32"}, {1}), 31u);
  EXPECT_EQ(Execute("brev.b32", {"u32", "u32"}, {1}), 0x80000000u);
  EXPECT_EQ(Execute("not.b16", {"u16", "u16"}, {1}), 0xfffeu);
}

TEST_F(PtxTest, Floats) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Execute("add.rn.f32", {"f32", "f32", "f32"}, {Bits(1.5f), Bits(2.25f)}), Bits(3.75f));
  EXPECT_EQ(Execute("fma.rn.f32", {"f32", "f32", "f32", "f32"}, {Bits(1.0000001f), Bits(1.0000001f), Bits(-1.0f)}),
            Bits(std::fma(1.0000001f, 1.0000001f, -1.0f)));
  EXPECT_EQ(Execute("div.rn.f64", {"f64", "f64", "f64"}, {Bits(1.0), Bits(3.0)}), Bits(1.0 / 3));
  EXPECT_EQ(Execute("sqrt.rn.f32", {"f32", "f32"}, {Bits(2.0f)}), Bits(std::sqrt(2.0f)));
  EXPECT_EQ(Execute("min.f32", {"f32", "f32", "f32"}, {Bits(nan), Bits(1.0f)}), Bits(1.0f));
  EXPECT_NE(Execute("min.NaN.f32", {"f32", "f32", "f32"}, {Bits(nan), Bits(1.0f)}), Bits(1.0f));
  EXPECT_EQ(Execute("max.f32", {"f32", "f32", "f32"}, {Bits(-0.0f), Bits(0.0f)}), Bits(0.0f));
  EXPECT_EQ(Execute("copysign.f32", {"f32", "f32", "f32"}, {Bits(-0.0f), Bits(3.0f)}), Bits(-3.0f));
  EXPECT_EQ(Execute("setp.lt.f32", {"pred", "f32", "f32"}, {Bits(nan), Bits(1.0f)}), 0u);
  EXPECT_EQ(Execute("setp.ltu.f32", {"pred", "f32", "f32"}, {Bits(nan), Bits(1.0f)}), 1u);
  EXPECT_EQ(Execute("setp.nan.f64", {"pred", "f64", "f64"}, {Bits(1.0), Bits(1.0)}), 0u);
}

TEST_F(PtxTest, Conversions) {
  EXPECT_EQ(Execute("cvt.rn.f32.s32", {"f32", "u32"}, {static_cast<uint32_t>(-3)}), Bits(-3.0f));
  EXPECT_EQ(Execute("cvt.rn.f32.u64", {"f32", "u64"}, {~uint64_t{0}}), Bits(18446744073709551616.0f));
  EXPECT_EQ(Execute("cvt.rzi.s32.f32", {"u32", "f32"}, {Bits(-2.9f)}), static_cast<uint32_t>(-2));
  EXPECT_EQ(Execute("cvt.rzi.s32.f32", {"u32", "f32"}, {Bits(1e20f)}), 0x7fffffffu);
  EXPECT_EQ(Execute("cvt.rzi.u32.f32", {"u32", "f32"}, {Bits(-1.0f)}), 0u);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const double wide_nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* const to : {"s32", "u32"}) {
    EXPECT_EQ(Execute(std::string("cvt.rzi.") + to + ".f32", {"u32", "f32"}, {Bits(nan)}), 0u);
    EXPECT_EQ(Execute(std::string("cvt.rzi.") + to + ".f64", {"u32", "f64"}, {Bits(wide_nan)}), 0x80000000u);
  }
  for (const char* const to : {"s64", "u64"}) {
    EXPECT_EQ(Execute(std::string("cvt.rzi.") + to + ".f32", {"u64", "f32"}, {Bits(nan)}), uint64_t{1} << 63);
    EXPECT_EQ(Execute(std::string("cvt.rzi.") + to + ".f64", {"u64", "f64"}, {Bits(wide_nan)}), uint64_t{1} << 63);
  }
  EXPECT_EQ(Execute("cvt.rni.f32.f32", {"f32", "f32"}, {Bits(2.5f)}), Bits(2.0f));
  EXPECT_EQ(Execute("cvt.rmi.f64.f64", {"f64", "f64"}, {Bits(-0.5)}), Bits(-1.0));
  EXPECT_EQ(Execute("cvt.s64.s32", {"u64", "u32"}, {static_cast<uint32_t>(-5)}), static_cast<uint64_t>(-5));
  EXPECT_EQ(Execute("cvt.u64.u32", {"u64", "u32"}, {static_cast<uint32_t>(-5)}), 0xfffffffbu);
  EXPECT_EQ(Execute("cvt.s8.s64", {"u32", "u64"}, {0x1ff}), 0xffffffffu);
  EXPECT_EQ(Execute("cvt.f32.f16", {"f32", "u16"}, {0x3c00}), Bits(1.0f));
  EXPECT_EQ(Execute("cvt.rn.f16.f32", {"u16", "f32"}, {Bits(-2.0f)}), 0xc000u);
  EXPECT_EQ(Execute("cvt.f64.f32", {"f64", "f32"}, {Bits(0.1f)}), Bits(static_cast<double>(0.1f)));
}

// A sum and a difference of 128 bits: the carry of the low half is an input of the high half.
TEST_F(PtxTest, Carries) {
  const auto words = Run(R"(.visible .entry k(.param .u64 p) {
    ld.param.u64 %rd1, [p];
    ld.global.u64 %rd2, [%rd1];
    add.cc.s64 %rd3, %rd2, 1;
    addc.cc.s64 %rd4, 5, 0;
    sub.cc.s64 %rd5, 0, 1;
    subc.cc.s64 %rd6, 5, 0;
    st.global.v2.u64 [%rd1], {%rd3, %rd4};
    st.global.v2.u64 [%rd1+16], {%rd5, %rd6};
    ret; })",
                         1, {~uint64_t{0}, 0, 0, 0});
  EXPECT_EQ(words, (std::vector<uint64_t>{0, 6, ~uint64_t{0}, 4}));
}

// Thread t writes t to shared memory, and reads the value that thread 63 - t has written.
TEST_F(PtxTest, BarriersOrderSharedMemory) {
  const std::string text = R"(.visible .entry k(.param .u64 p) {
    .shared .align 8 .b8 both[512];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd1, %r1, 8;
    mov.u64 %rd2, both;
    add.s64 %rd3, %rd2, %rd1;
    cvt.u64.u32 %rd4, %r1;
    st.shared.u64 [%rd3], %rd4;
    BARRIER
    sub.s64 %rd5, %rd2, %rd1;
    ld.shared.u64 %rd6, [%rd5+504];
    ld.param.u64 %rd7, [p];
    add.s64 %rd8, %rd7, %rd1;
    st.global.u64 [%rd8], %rd6;
    ret; })";
  const auto with = [&](const std::string& barrier) {
    std::string ptx = text;
    return Run(ptx.replace(ptx.find("BARRIER"), 7, barrier), 64, std::vector<uint64_t>(64));
  };
  std::vector<uint64_t> expected(64);
  for (uint64_t t = 0; t < 64; ++t) expected[t] = 63 - t;
  EXPECT_EQ(with("bar.sync 0;"), expected);
  EXPECT_NE(with(""), expected) << "without a barrier, a thread reads a word that is not written yet";
}

TEST_F(PtxTest, ShufflesExchangeRegistersOfAWarp) {
  const std::string text = R"(.visible .entry k(.param .u64 p) {
    mov.u32 %r1, %tid.x;
    add.s32 %r2, %r1, 100;
    shfl.sync.MODE.b32 %r3, %r2, 1, CLAMP, -1;
    cvt.u64.u32 %rd1, %r3;
    mul.wide.u32 %rd2, %r1, 8;
    ld.param.u64 %rd3, [p];
    add.s64 %rd4, %rd3, %rd2;
    st.global.u64 [%rd4], %rd1;
    ret; })";
  const auto with = [&](const std::string& mode, const std::string& clamp) {
    std::string ptx = text;
    ptx.replace(ptx.find("MODE"), 4, mode);
    ptx.replace(ptx.find("CLAMP"), 5, clamp);
    const auto words = Run(ptx, 64, std::vector<uint64_t>(64));
    return std::array<uint64_t, 4>{words[0], words[31], words[32], words[63]};
  };
  EXPECT_EQ(with("bfly", "31"), (std::array<uint64_t, 4>{101, 130, 133, 162}));
  EXPECT_EQ(with("down", "31"), (std::array<uint64_t, 4>{101, 131, 133, 163}));
  EXPECT_EQ(with("up", "0"), (std::array<uint64_t, 4>{100, 130, 132, 162}));
  EXPECT_EQ(with("idx", "31"), (std::array<uint64_t, 4>{101, 101, 133, 133}));
}

// Computes d = a b + c by one mma.sync of each warp.
class MmaTest : public PtxTest {
 protected:
  // Returns a kernel that loads the registers of an mma (a, b and c) from 10 words of each thread, runs `statement`,
  // and stores d to the first 4 of these words. The predicate %p1 is true in threads 0 to 15.
  static std::string Kernel(const std::string& statement) {
    std::string body = R"(.visible .entry k(.param .u64 p) {
      mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 80; ld.param.u64 %rd2, [p]; add.s64 %rd3, %rd2, %rd1;
      setp.lt.u32 %p1, %r1, 16; )";
    const auto word = [](int w) { return "[%rd3+" + std::to_string(8 * w) + "]; "; };
    for (int w = 0; w < 6; ++w) body += "ld.global.u32 %x" + std::to_string(w) + ", " + word(w);
    for (int w = 0; w < 4; ++w) body += "ld.global.f32 %f" + std::to_string(w) + ", " + word(6 + w);
    body += statement;
    for (int w = 0; w < 4; ++w)
      body += "st.global.f32 " + word(w).insert(word(w).find(';'), ", %f" + std::to_string(w));
    return body + "ret; }";
  }
  static std::string Mma(const std::string& type) {
    return "mma.sync.aligned.m16n8k16.row.col.f32." + type + "." + type +
           ".f32 {%f0,%f1,%f2,%f3}, {%x0,%x1,%x2,%x3}, {%x4,%x5}, {%f0,%f1,%f2,%f3}; ";
  }

  using Matrix = std::array<std::array<float, 16>, 16>;
  // The tables of the PTX ISA: the row and column of element i in the registers of a thread.
  static std::array<int, 2> PlaceInA(int lane, int i) {
    return {lane / 4 + (i < 2 || (i >= 4 && i < 6) ? 0 : 8), lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
  }
  static std::array<int, 2> PlaceInB(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4}; }
  static std::array<int, 2> PlaceInC(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }

  static uint16_t Encode(float x, bool is_bf16) {
    if (is_bf16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
    return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  }
  static float Decode(uint16_t bits, bool is_bf16) {
    if (is_bf16) return std::bit_cast<float>(uint32_t{bits} << 16);
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }

  // The type must represent the elements of a and b exactly.
  Matrix Multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool is_bf16) {
    std::vector<uint64_t> words(320);
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const auto [row, column] = PlaceInA(lane, i);
        words[lane * 10 + i / 2] |= uint64_t{Encode(a[row][column], is_bf16)} << (16 * (i & 1));
      }
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = PlaceInB(lane, i);
        words[lane * 10 + 4 + i / 2] |= uint64_t{Encode(b[row][column], is_bf16)} << (16 * (i & 1));
        const auto [of_row, of_column] = PlaceInC(lane, i);
        words[lane * 10 + 6 + i] = Bits(c[of_row][of_column]);
      }
    }
    const auto found = Run(Kernel(Mma(is_bf16 ? "bf16" : "f16")), 32, words);
    EXPECT_EQ(code_, 0);
    Matrix d = {};
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const auto [row, column] = PlaceInC(lane, i);
        d[row][column] = std::bit_cast<float>(static_cast<uint32_t>(found[lane * 10 + i]));
      }
    }
    return d;
  }

  // Compares d with a b + c in double precision, and allows one rounding error of f32 for each of the 17 addends.
  static void Compare(const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d) {
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        double sum = c[row][column], size = std::abs(c[row][column]);
        for (int k = 0; k < 16; ++k) sum += double{a[row][k]} * b[k][column];
        for (int k = 0; k < 16; ++k) size += std::abs(double{a[row][k]} * b[k][column]);
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(d[row][column])) << row << " " << column;
        } else if (std::isinf(sum)) {
          ASSERT_EQ(d[row][column], sum) << row << " " << column;
        } else {
          ASSERT_NEAR(d[row][column], sum, size * 17 * 0x1p-24) << row << " " << column;
        }
      }
    }
  }
  std::mt19937 random_{1};
};

TEST_F(MmaTest, RandomAndSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-14f, 0x1p-24f, 32768.0f, inf, -inf, nan};
  for (int i = 0; i < 300; ++i) {
    const bool is_bf16 = i % 2 == 0, has_special = i % 3 == 0;
    Matrix a = {}, b = {}, c = {};
    const auto next = [&] {
      if (has_special && random_() % 32 == 0) return special[random_() % std::size(special)];
      const float x = std::ldexp(static_cast<float>(random_() % 4095) - 2047, static_cast<int>(random_() % 12) - 14);
      return Decode(Encode(x, is_bf16), is_bf16);
    };
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 16; ++column) a[row][column] = next(), b[row][column] = next();
      for (int column = 0; column < 8; ++column) c[row][column] = next() * 1.0000001f;
    }
    Compare(a, b, c, Multiply(a, b, c, is_bf16));
  }
}

// For all rows, columns and k, the product of a[row][k] and b[k][column] is a term of d[row][column] only.
TEST_F(MmaTest, EveryElement) {
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      Matrix a = {}, b = {}, c = {};
      a[row][k] = 3;
      for (int column = 0; column < 8; ++column) b[k][column] = static_cast<float>(column + 1), c[row][column] = 0.5f;
      const Matrix d = Multiply(a, b, c, row % 2 == 0);
      for (int other = 0; other < 16; ++other) {
        for (int column = 0; column < 8; ++column) {
          ASSERT_EQ(d[other][column], other == row ? 3 * static_cast<float>(column + 1) + 0.5f : 0);
        }
      }
    }
  }
}

TEST_F(MmaTest, SumsAreRoundedToF32) {
  Matrix a = {}, b = {}, c = {};
  a[0][0] = 4096, b[0][0] = 4096;  // 2^24
  for (int k = 1; k < 16; ++k) a[0][k] = b[k][0] = 1;
  EXPECT_EQ(Multiply(a, b, c, true)[0][0], 0x1p24f)
      << "each 1 is half a unit in the last place, and ties are rounded to even";
}

// All 32 threads of a warp must execute the same instruction.
TEST_F(MmaTest, DivergentProductsAreErrors) {
  const auto code = [&](const std::string& statement, uint32_t threads) {
    Run(Kernel(statement), threads, std::vector<uint64_t>(640));
    return code_;
  };
  const std::string mma = Mma("f16");
  EXPECT_EQ(code(mma, 32), 0);
  EXPECT_EQ(code(mma, 64), 0);
  EXPECT_EQ(code(mma, 31), kLaunchFailed);
  EXPECT_EQ(code("@%p1 bra $end; " + mma + "$end: ", 32), kLaunchFailed) << "half of the threads do not execute it";
  EXPECT_EQ(code("@%p1 bra $one; " + mma + "bra $end; $one: " + mma + "$end: ", 32), kLaunchFailed);
  EXPECT_EQ(code("@%p1 bra $one; " + mma + "bra $end; $one: bar.sync 0; $end: ", 32), kLaunchFailed);
  EXPECT_EQ(code("@%p1 bra $one; " + mma + "bra $end; $one: shfl.sync.idx.b32 %x0, %x1, 0, 31, -1; $end: ", 32),
            kLaunchFailed);
  EXPECT_EQ(code("setp.lt.u32 %p1, %r1, 32; @%p1 bra $end; " + mma + "$end: ", 64), 0) << "warps may differ";
}

class RaceTest : public PtxTest {
 protected:
  // Returns the race that is found when each of 64 threads runs the statement, or an empty text. %rd2 has the address
  // of the first element of global memory, %rd3 and %rd5 those of the thread's own elements of global and shared
  // memory, %rd4 and %rd6 those of the next thread's elements, and %rd8 has the thread's number.
  std::string ErrorOf(const std::string& statement) {
    RaceChecker races;
    races_ = &races;
    Run(R"(.visible .entry k(.param .u64 p) { .shared .align 8 .b8 s[1024];
      mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 8; ld.param.u64 %rd2, [p]; add.s64 %rd3, %rd2, %rd1;
      add.s64 %rd4, %rd3, 8; mov.u64 %rd7, s; add.s64 %rd5, %rd7, %rd1; add.s64 %rd6, %rd5, 8;
      cvt.u64.u32 %rd8, %r1; )" +
            statement + " ret; }",
        64, std::vector<uint64_t>(128));
    races_ = nullptr;
    EXPECT_EQ(code_, races.error().empty() ? 0 : kLaunchFailed);
    return races.error();
  }
};

TEST_F(RaceTest, AccessesWithoutABarrierBetweenThem) {
  const std::string stores = "st.shared.u64 [%rd5], %rd8; ", loads = "ld.shared.u64 %rd9, [%rd6]; ";
  EXPECT_EQ(
      ErrorOf(stores + loads),
      "race: thread 1 of block 0 stores to shared memory at 8, which thread 0 of block 0 has loaded from; expected "
      "a barrier between the two");
  EXPECT_NE(ErrorOf(loads + stores), "");
  EXPECT_EQ(ErrorOf(stores + "bar.sync 0; " + loads), "");
  EXPECT_NE(ErrorOf(stores + "bar.sync 0; " + loads + stores), "");
  EXPECT_EQ(ErrorOf(stores + "bar.sync 0; " + loads + "bar.sync 0; " + stores), "");
  EXPECT_NE(ErrorOf("st.global.u64 [%rd3], %rd8; ld.global.u64 %rd9, [%rd4]; "), "");
  EXPECT_EQ(ErrorOf("st.global.u64 [%rd3], %rd8; ld.global.u64 %rd9, [%rd3]; "), "");
  EXPECT_NE(ErrorOf("st.global.u64 [%rd2], %rd8; "), "");
  EXPECT_EQ(ErrorOf("st.global.u64 [%rd2], 5; "), "") << "all threads store the same value";
  EXPECT_NE(ErrorOf("ld.global.u64 %rd9, [%rd3]; st.global.u8 [%rd4+7], 1; "), "") << "they overlap in one byte";
  EXPECT_NE(ErrorOf(stores + "shfl.sync.idx.b32 %x0, %x1, 0, 31, -1; " + loads), "") << "a shuffle is not a barrier";
}

TEST_F(RaceTest, BlocksAreNeverOrdered) {
  RaceChecker races;
  races.BeginBlock(0);
  EXPECT_TRUE(races.Check({4096, 4, true}, 3));
  EXPECT_TRUE(races.Check({8192, 4, false}, 3));
  EXPECT_TRUE(races.Check({kSharedBase, 4, true}, 3));
  races.BeginBlock(1);
  EXPECT_TRUE(races.Check({kSharedBase, 4, true}, 4)) << "each block has its own shared memory";
  EXPECT_TRUE(races.Check({8192, 4, false}, 3));
  EXPECT_FALSE(races.Check({4096, 4, false}, 3));
  EXPECT_FALSE(races.Check({8192, 4, true}, 3));
}

TEST_F(PtxTest, FunctionsTablesAndLocalMemory) {
  const auto words = Run(R"(.global .align 8 .b8 table[16] = {1, 0, 0, 0, 0, 0, 0, 0, 2};
    .func (.param .b64 result) twice(.param .b64 value);
    .visible .entry k(.param .u64 p) {
      .local .align 8 .b8 __local_depot0[16];
      .reg .b64 %SP;
      mov.u64 %SPL, __local_depot0;
      ld.param.u64 %rd1, [p];
      st.local.u64 [%SPL+8], 40;
      { .param .b64 param0; ld.local.u64 %rd2, [%SPL+8]; st.param.b64 [param0+0], %rd2; .param .b64 retval0;
        call.uni (retval0), twice, (param0); ld.param.b64 %rd3, [retval0+0]; }
      mov.u32 %r1, 1;
      $places: .branchtargets $zero, $one;
      brx.idx %r1, $places;
      $zero: mov.u64 %rd3, 0; bra.uni $end;
      $one: mov.u64 %rd4, table; ld.global.nc.u64 %rd5, [%rd4+8]; add.s64 %rd3, %rd3, %rd5;
      $end: st.global.u64 [%rd1], %rd3; ld.local.u64 %rd6, [%SPL+8]; st.global.u64 [%rd1+8], %rd6;
      ret; }
    .func (.param .b64 result) twice(.param .b64 value) {
      .local .align 8 .b8 __local_depot1[8];
      mov.u64 %SPL, __local_depot1;
      ld.param.u64 %rd1, [value];
      add.s64 %rd2, %rd1, %rd1;
      st.local.u64 [%SPL], %rd2;
      st.param.b64 [result+0], %rd2;
      ret; })",
                         1, {0, 0});
  EXPECT_EQ(words, (std::vector<uint64_t>{82, 40})) << "caller and callee have different local memory";
}

TEST_F(PtxTest, AccessesOutsideOfMemoryAreErrors) {
  const auto with = [&](const std::string& statement) {
    Run(".visible .entry k(.param .u64 p) { .shared .align 8 .b8 s[8]; ld.param.u64 %rd1, [p]; mov.u64 %rd2, s; " +
            statement + " ret; }",
        1, std::vector<uint64_t>(64));
    return code_;
  };
  EXPECT_EQ(with("ld.global.u64 %rd3, [%rd1+504];"), 0);
  EXPECT_EQ(with("ld.global.u64 %rd3, [%rd1+512];"), kIllegalAddress);
  EXPECT_EQ(with("ld.global.u64 %rd3, [%rd1+-8];"), kIllegalAddress);
  EXPECT_EQ(with("ld.global.u64 %rd3, [%rd1+4];"), kMisalignedAddress);
  EXPECT_EQ(with("ld.shared.u64 %rd3, [%rd2];"), 0);
  EXPECT_EQ(with("st.shared.u64 [%rd2+8], 1;"), kIllegalAddress);
  EXPECT_EQ(with("mov.u64 %rd4, 0; ld.global.u64 %rd3, [%rd4];"), kIllegalAddress);
}

TEST_F(PtxTest, OtherTextsAreRefusedWithTheLine) {
  const auto error_of = [&](const std::string& text) {
    std::string error;
    EXPECT_EQ(ParsePtx(text, &memory_, &error), nullptr);
    return error;
  };
  EXPECT_EQ(error_of("hello"), "line 1: found no .version, expected PTX");
  const std::string head = ".version 7.8\n.target sm_90\n.address_size 64\n";
  EXPECT_EQ(error_of(head + ".entry k() {\n add.q7 %r1, %r2, %r3;\n}"),
            "line 5: the test double does not know 'add.q7'");
  EXPECT_EQ(error_of(head + ".entry k() {\n bra $nowhere;\n}"),
            "line 6: found no label '$nowhere', expected one in the function");
  EXPECT_EQ(error_of(head + ".entry k() {\n add.s32 %r1,"), "line 5: the text ends in the middle of a statement");
  EXPECT_EQ(error_of(head + ".entry k() {\n call.uni f, ();\n ret;\n}\n"),
            "line 5: found no function 'f', expected one in the module");
  EXPECT_EQ(error_of(head + ".func f() {\n ret;\n}\n.entry k() {\n call.uni f, (%r1);\n ret;\n}\n"),
            "line 8: a call of 'f' and its definition have different numbers of values");
  const std::string large = head + ".entry k(.param .align 8 .b8 x[";
  EXPECT_EQ(error_of(large + "4104]) {\n ret;\n}\n"), "line 4: found 4104 bytes of parameters, expected at most 4096");
  std::string error;
  EXPECT_NE(ParsePtx(large + "4096]) {\n ret;\n}\n", &memory_, &error), nullptr) << error;
}

}  // namespace
}  // namespace xlad::cuda_double
