// The cost of kernels: products on systolic arrays, vector operations, bytes.
#include "simulate/kernel_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "hlo/read/read.h"
#include "simulate/systolic.h"

namespace xlad::simulate {
namespace {

machine::Chip ChipOf(const char* name) { return *machine::BuiltInChip(name); }

double PeakUs(const MatrixProduct& p, const machine::Chip& chip) {
  return 2 * p.batch * p.m * p.n * p.k * p.passes / chip.bf16_flops * 1e6;
}

TEST(Systolic, LargeProductsReachThePeak) {
  for (const std::string& name : machine::BuiltInChipNames()) {
    const machine::Chip chip = ChipOf(name.c_str());
    const MatrixProduct product{.m = 8192, .n = 8192, .k = 8192};
    EXPECT_NEAR(MxuUs(product, chip) / PeakUs(product, chip), 1, 0.01) << name;
  }
}

TEST(Systolic, NoProductIsFasterThanThePeakAndPaddingCosts) {
  const machine::Chip chip = ChipOf("v5e");
  for (const double m : {1, 7, 8, 100, 128, 1000, 4096}) {
    for (const double n : {1, 127, 128, 129, 2048}) {
      for (const double k : {1, 128, 200, 1024}) {
        for (const double batch : {1, 3, 64}) {
          const MatrixProduct p{.batch = batch, .m = m, .n = n, .k = k};
          EXPECT_GE(MxuUs(p, chip), PeakUs(p, chip)) << m << " " << n << " " << k;
          // The product of the transposes has the same size.
          EXPECT_DOUBLE_EQ(MxuUs(p, chip), MxuUs({.batch = batch, .m = n, .n = m, .k = k}, chip));
          EXPECT_LE(MxuUs(p, chip), MxuUs({.batch = batch, .m = m, .n = n + 128, .k = k}, chip));
        }
      }
    }
  }
  EXPECT_DOUBLE_EQ(MxuUs({.m = 4096, .n = 4096, .k = 129}, chip), MxuUs({.m = 4096, .n = 4096, .k = 256}, chip));
  EXPECT_EQ(MxuUs({.m = 0, .n = 128, .k = 128}, chip), 0);
}

// If the chip has twice the rate, the time is half as long.
TEST(Systolic, TimeIsInverseToTheRate) {
  machine::Chip chip = ChipOf("v5e");
  const MatrixProduct product{.m = 100, .n = 300, .k = 500};
  const double us = MxuUs(product, chip);
  chip.bf16_flops *= 2;
  EXPECT_DOUBLE_EQ(MxuUs(product, chip), us / 2);
}

class KernelCostTest : public testing::Test {
 protected:
  // The cost of the root of the entry.
  KernelCost Cost(const std::string& text) {
    auto module = hlo::ReadModule(text);
    EXPECT_TRUE(module.ok()) << module.status();
    module_ = *std::move(module);
    return CostOf(*module_->entry()->root(), chip_);
  }
  MatrixProduct Product(const std::string& text) {
    Cost(text);
    return ProductOf(*module_->entry()->root());
  }

  machine::Chip chip_ = ChipOf("v5e");
  std::unique_ptr<hlo::Module> module_;
};

TEST_F(KernelCostTest, ElementsOf64BitsAreTwoWords) {
  const auto us = [&](const char* type, const char* result, const char* op) {
    return Cost(absl::Substitute("HloModule m\nENTRY e {\n  a = $0[64,1024] parameter(0)\n  ROOT r = $1[64,1024] $2\n}",
                                 type, result, op))
        .vpu_us;
  };
  const double word = us("f32", "f32", "add(a, a)");
  EXPECT_GT(word, 0);
  EXPECT_DOUBLE_EQ(us("s32", "s32", "add(a, a)"), word);
  EXPECT_DOUBLE_EQ(us("bf16", "bf16", "add(a, a)"), word);
  EXPECT_DOUBLE_EQ(us("f64", "f64", "add(a, a)"), 2 * word);
  EXPECT_DOUBLE_EQ(us("c128", "c128", "add(a, a)"), 4 * word);
  const char* const compare = "compare(a, a), direction=LT";
  EXPECT_DOUBLE_EQ(us("s64", "pred", compare), 2 * us("s32", "pred", compare));
  const char* const fft = "fft(a), fft_type=FFT, fft_length={1024}";
  EXPECT_DOUBLE_EQ(us("c128", "c128", fft), 2 * us("c64", "c64", fft));
}

TEST_F(KernelCostTest, WordsOfOperandsAndResultsAreAdded) {
  const auto bits = [&](const char* type) {
    return Cost(absl::Substitute("HloModule m\nENTRY e {\n  s = u64[2] parameter(0)\n  ROOT r = (u64[2], $0[4096]) "
                                 "rng-bit-generator(s), algorithm=rng_three_fry\n}",
                                 type))
        .vpu_us;
  };
  // The state has four words.
  EXPECT_DOUBLE_EQ(bits("u64") / bits("u32"), (4.0 + 2 * 4096) / (4 + 4096));

  const auto us = [&](const char* a, const char* b, const char* text) {
    return Cost(absl::Substitute(text, a, b)).vpu_us;
  };
  const char* const sort = R"(HloModule m
less {
  a = $0[] parameter(0)
  b = $0[] parameter(1)
  c = $1[] parameter(2)
  d = $1[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY e {
  a = $0[8,1024] parameter(0)
  b = $1[8,1024] parameter(1)
  ROOT r = ($0[8,1024], $1[8,1024]) sort(a, b), dimensions={1}, to_apply=less
})";
  const char* const reduce = R"(HloModule m
both {
  a = $0[] parameter(0)
  b = $1[] parameter(1)
  c = $0[] parameter(2)
  d = $1[] parameter(3)
  e = $0[] add(a, c)
  f = $1[] add(b, d)
  ROOT r = ($0[], $1[]) tuple(e, f)
}
ENTRY e {
  a = $0[8,1024] parameter(0)
  b = $1[8,1024] parameter(1)
  c = $0[] constant(0)
  d = $1[] constant(0)
  ROOT r = ($0[8], $1[8]) reduce(a, b, c, d), dimensions={1}, to_apply=both
})";
  for (const char* const text : {sort, reduce}) {
    const double words = us("f32", "s32", text);
    EXPECT_GT(words, 0);
    EXPECT_DOUBLE_EQ(us("f32", "s64", text), 1.5 * words);
    EXPECT_DOUBLE_EQ(us("f64", "s32", text), 1.5 * words);
    EXPECT_DOUBLE_EQ(us("f64", "s64", text), 2 * words);
  }
}

TEST_F(KernelCostTest, DotsAreProducts) {
  const MatrixProduct dot = Product(R"(HloModule m
ENTRY e {
  a = f32[4,32,48] parameter(0)
  b = f32[4,48,80] parameter(1)
  ROOT d = f32[4,32,80] dot(a, b), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
    rhs_contracting_dims={1}, operand_precision={high,default}
})");
  EXPECT_EQ(dot.batch, 4);
  EXPECT_EQ(dot.m, 32);
  EXPECT_EQ(dot.n, 80);
  EXPECT_EQ(dot.k, 48);
  EXPECT_EQ(dot.passes, 3);
}

TEST_F(KernelCostTest, ConvolutionsAreProducts) {
  const MatrixProduct conv = Product(R"(HloModule m
ENTRY e {
  x = bf16[8,16,16,32] parameter(0)
  k = bf16[3,3,32,64] parameter(1)
  ROOT c = bf16[8,16,16,64] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
})");
  EXPECT_EQ(conv.m, 8 * 16 * 16);
  EXPECT_EQ(conv.n, 64);
  EXPECT_EQ(conv.k, 9 * 32);
  EXPECT_EQ(conv.passes, 1);
}

TEST_F(KernelCostTest, FusionsReadAndWriteWhatTheyNeed) {
  const KernelCost cost = Cost(R"(HloModule m
f {
  p = f32[100,1024] parameter(0)
  q = f32[1024] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  row = f32[1,1024] dynamic-slice(p, i, zero), dynamic_slice_sizes={1,1024}
  r = f32[1024] reshape(row)
  ROOT s = f32[1024] add(r, q)
}
ENTRY e {
  a = f32[100,1024] parameter(0)
  b = f32[1024] parameter(1)
  c = s32[] parameter(2)
  ROOT f = f32[1024] fusion(a, b, c), kind=kLoop, calls=f
})");
  EXPECT_EQ(cost.bytes(), 3 * 4096 + 4);
  EXPECT_GT(cost.vpu_us, 0);
  EXPECT_EQ(cost.mxu_us, 0);
}

TEST_F(KernelCostTest, SelectAndScatterReadsTheWindowOfEachElementOfTheSource) {
  const auto vpu_us = [&](int64_t side) {
    return Cost(absl::Substitute(R"(HloModule m
ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  x = f32[64,1024] parameter(0)
  dy = f32[$0,1024] parameter(1)
  zero = f32[] parameter(2)
  ROOT s = f32[64,1024] select-and-scatter(x, dy, zero), window={size=$1x1 stride=$1x1}, select=ge, scatter=add
})", 64 / side, side)).vpu_us;
  };
  EXPECT_GT(vpu_us(1), 0);
  EXPECT_DOUBLE_EQ(vpu_us(8), vpu_us(1)) << "windows that do not overlap read each element once";
  EXPECT_DOUBLE_EQ(vpu_us(2), vpu_us(1));
}

TEST_F(KernelCostTest, UpdatesInPlaceWriteTheUpdate) {
  const KernelCost cost = Cost(R"(HloModule m
f {
  p = f32[100,1024] parameter(0)
  q = f32[1,1024] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  n = f32[1,1024] negate(q)
  ROOT u = f32[100,1024] dynamic-update-slice(p, n, i, zero)
}
ENTRY e {
  a = f32[100,1024] parameter(0)
  b = f32[1,1024] parameter(1)
  c = s32[] parameter(2)
  ROOT f = f32[100,1024] fusion(a, b, c), kind=kLoop, calls=f
})");
  EXPECT_EQ(cost.bytes(), 2 * 4096 + 4);
}

TEST_F(KernelCostTest, ArraysArePaddedToTiles) {
  const auto padded = [](const char* text) {
    auto module = *hlo::ReadModule(absl::StrCat("HloModule m\nENTRY e { ROOT p = ", text, " parameter(0) }"));
    return PaddedElements(module->entry()->root()->shape());
  };
  EXPECT_EQ(padded("f32[8,128]"), 1024);
  EXPECT_EQ(padded("f32[9,128]"), 2048);
  EXPECT_EQ(padded("f32[]"), 1024);
  EXPECT_EQ(padded("f32[1025]"), 2048);
  EXPECT_EQ(padded("f32[1024,3]"), 8192);  // The large dimension is along the lanes.
  EXPECT_EQ(padded("f32[0,3]"), 0);
  EXPECT_EQ(padded("(f32[8,128], f32[16,128])"), 2048);
}

// Each operand is read at least once. If VMEM is small, large products read their operands more often.
TEST(Systolic, ProductsReadMoreIfVmemIsSmall) {
  machine::Chip chip = ChipOf("v5e");
  const MatrixProduct product{.m = 16384, .n = 16384, .k = 16384};
  const double bytes = 2.0 * 16384 * 16384;
  const auto read = [&](const MatrixProduct& p, double size) {
    const OperandBytes operands = ReadBytes(p, {size, size}, chip);
    return operands.lhs + operands.rhs;
  };
  const double large = read(product, bytes);
  EXPECT_EQ(read({.m = 64, .n = 64, .k = 64}, 8192), 2 * 8192);
  chip.vmem_bytes /= 16;
  EXPECT_GE(large, 2 * bytes);
  EXPECT_NEAR(read(product, bytes) / large, 4, 1);
}

}  // namespace
}  // namespace xlad::simulate
