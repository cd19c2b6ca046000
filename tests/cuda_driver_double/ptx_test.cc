// Tests of the PTX interpreter: single instructions, and kernels with barriers, shuffles, calls and branch tables.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "tests/cuda_driver_double/window_memory.h"

namespace xlad::cuda_double {
namespace {

uint64_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
uint64_t Bits(double value) { return std::bit_cast<uint64_t>(value); }

class PtxTest : public ::testing::Test {
 protected:
  // Runs one block of a kernel with one parameter, the address of `words` words.
  std::vector<uint64_t> Run(const std::string& ptx, uint32_t threads, std::vector<uint64_t> words) {
    std::string error;
    program_ = ParsePtx(".version 7.8\n.target sm_90\n.address_size 64\n" + ptx, &memory_, &error);
    EXPECT_NE(program_, nullptr) << error;
    if (program_ == nullptr) return {};
    const size_t bytes = words.size() * sizeof(uint64_t);
    const uint64_t address = memory_.Allocate(bytes);
    std::memcpy(memory_.Range(address, bytes), words.data(), bytes);
    code_ = RunBlock(*program_->functions.at("k"), memory_, reinterpret_cast<const std::byte*>(&address),
                     {0, threads, 0, 1});
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
  EXPECT_EQ(Execute("cvt.rni.f32.f32", {"f32", "f32"}, {Bits(2.5f)}), Bits(2.0f));
  EXPECT_EQ(Execute("cvt.rmi.f64.f64", {"f64", "f64"}, {Bits(-0.5)}), Bits(-1.0));
  EXPECT_EQ(Execute("cvt.s64.s32", {"u64", "u32"}, {static_cast<uint32_t>(-5)}), static_cast<uint64_t>(-5));
  EXPECT_EQ(Execute("cvt.u64.u32", {"u64", "u32"}, {static_cast<uint32_t>(-5)}), 0xfffffffbu);
  EXPECT_EQ(Execute("cvt.s8.s64", {"u32", "u64"}, {0x1ff}), 0xffffffffu);
  EXPECT_EQ(Execute("cvt.f32.f16", {"f32", "u16"}, {0x3c00}), Bits(1.0f));
  EXPECT_EQ(Execute("cvt.rn.f16.f32", {"u16", "f32"}, {Bits(-2.0f)}), 0xc000u);
  EXPECT_EQ(Execute("cvt.f64.f32", {"f64", "f32"}, {Bits(0.1f)}), Bits(static_cast<double>(0.1f)));
}

// A sum of 128 bits: the carry of one addition is an input of the next.
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
  EXPECT_EQ(words, (std::vector<uint64_t>{82, 40})) << "the local memory of the caller is not that of the callee";
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
  EXPECT_EQ(error_of(head + ".entry k() {\n bra $nowhere;\n}"), "line 6: no label '$nowhere'");
  EXPECT_EQ(error_of(head + ".entry k() {\n add.s32 %r1,"), "line 5: the text ends in the middle of a statement");
}

}  // namespace
}  // namespace xlad::cuda_double
