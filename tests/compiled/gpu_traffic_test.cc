// Simulated GPUs count the bytes of global memory that kernels load and store. For kernels that load and store each
// element only once, the sum is close to the sizes of operands and results, for any shape and element type.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/text/text.h"
#include "tests/compiled/checked_run.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

std::string Elementwise(absl::string_view shape) {
  return absl::StrReplaceAll(R"(HloModule elementwise
ENTRY main {
  x = SHAPE parameter(0)
  y = SHAPE parameter(1)
  z = SHAPE parameter(2)
  p = SHAPE multiply(x, y)
  ROOT s = SHAPE subtract(p, z)
})",
                             {{"SHAPE", shape}});
}

std::string Reduce(absl::string_view type, absl::string_view from, absl::string_view to, absl::string_view dimensions) {
  return absl::StrReplaceAll(R"(HloModule reduced
add { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT s = TYPE[] add(a, b) }
ENTRY main {
  x = TYPE[FROM] parameter(0)
  zero = TYPE[] constant(0)
  ROOT s = TYPE[TO] reduce(x, zero), dimensions={DIMENSIONS}, to_apply=add
})",
                             {{"TYPE", type}, {"FROM", from}, {"TO", to}, {"DIMENSIONS", dimensions}});
}

std::string Transpose(absl::string_view from, absl::string_view to, absl::string_view permutation) {
  return absl::StrCat("HloModule transposed\nENTRY main {\n  x = ", from, " parameter(0)\n  ROOT t = ", to,
                      " transpose(x), dimensions={", permutation, "}\n}");
}

std::string Softmax(absl::string_view rows, absl::string_view row) {
  return absl::StrReplaceAll(R"(HloModule softmax
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[ROWS,LENGTH] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[ROWS] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[ROWS,LENGTH] broadcast(m), dimensions={0}
  d = f32[ROWS,LENGTH] subtract(x, mb)
  e = f32[ROWS,LENGTH] exponential(d)
  s = f32[ROWS] reduce(e, zero), dimensions={1}, to_apply=add
  sb = f32[ROWS,LENGTH] broadcast(s), dimensions={0}
  ROOT y = f32[ROWS,LENGTH] divide(e, sb)
})",
                             {{"ROWS", rows}, {"LENGTH", row}});
}

// The bytes that the kernel of the program loads and stores, divided by the sizes of its operands and its result. The
// result of a transpose must be that of the evaluator.
double Excess(const std::string& text) {
  auto module = *hlo::ParseText(text);
  int64_t least = module->entry()->root()->shape().array().bytes();
  for (const hlo::Instruction* parameter : module->entry()->parameters()) least += parameter->shape().array().bytes();
  const auto original = *hlo::ParseText(text);
  KernelRequest request;
  request.root = AsKernel(module.get());
  request.symbol = "checked";
  request.kernel = ScheduleFusion(*request.root, kOneRowTiles);
  const std::vector<tensor::Array> inputs = RandomOperands(request, 1);
  const auto run = RunChecked(request, inputs, {});
  EXPECT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->report.message, "") << text;
  if (original->entry()->root()->opcode() == hlo::Opcode::kTranspose) {
    EXPECT_TRUE(SameBits(run->results, *RunEvaluated(*original, inputs))) << text;
  }
  return static_cast<double>(run->report.loaded_bytes + run->report.stored_bytes) / static_cast<double>(least);
}

void ExpectTraffic(double most, const std::vector<std::string>& programs) {
  for (const std::string& program : programs) {
    const double excess = Excess(program);
    EXPECT_GE(excess, 1) << program;
    EXPECT_LE(excess, most) << program;
  }
}

constexpr double kOnce = 1.05;

TEST(GpuTraffic, Elementwise) {
  ExpectTraffic(kOnce, {Elementwise("f32[7,131]"), Elementwise("bf16[999]"), Elementwise("f64[3,5,77]"),
                        Elementwise("f32[1,4096]"), Elementwise("s8[10001]")});
}

TEST(GpuTraffic, Reductions) {
  ExpectTraffic(kOnce, {Reduce("f32", "33,1024", "33", "1"), Reduce("f32", "1001,32", "32", "0"),
                        Reduce("f32", "5,60,72", "5,72", "1"), Reduce("f32", "20,30,40", "30", "0,2"),
                        Reduce("f32", "20,30,40", "20", "1,2"), Reduce("f32", "20,30,40", "40", "0,1"),
                        Reduce("bf16", "64,640", "64", "1"), Reduce("f64", "100,100", "100", "0"),
                        Reduce("f32", "10007", "", "0"), Reduce("f32", "100,101", "", "0,1"),
                        Reduce("s32", "6,50,3,40", "6,3", "1,3")});
}

TEST(GpuTraffic, Transposes) {
  ExpectTraffic(kOnce, {Transpose("f32[64,96]", "f32[96,64]", "1,0"),
                        Transpose("f32[5,32,72]", "f32[5,72,32]", "0,2,1"),
                        Transpose("f32[4,12,16,64]", "f32[4,16,12,64]", "0,2,1,3"),
                        Transpose("pred[64,96]", "pred[96,64]", "1,0"), Transpose("f64[40,60]", "f64[60,40]", "1,0")});
}

// Tiles have all elements of a dimension with fewer than 32 elements, such as the channels of images.
TEST(GpuTraffic, TransposesOfNarrowArrays) {
  ExpectTraffic(kOnce, {Transpose("f32[8,32,64]", "f32[64,32,8]", "2,1,0"),
                        Transpose("bf16[512,3]", "bf16[3,512]", "1,0"), Transpose("f32[3,512]", "f32[512,3]", "1,0"),
                        Transpose("f32[2,64,64,3]", "f32[2,3,64,64]", "0,3,1,2"),
                        Transpose("f32[2,3,64,64]", "f32[2,64,64,3]", "0,2,3,1"),
                        Transpose("f32[24,160]", "f32[160,24]", "1,0"), Transpose("u8[2,256]", "u8[256,2]", "1,0"),
                        Transpose("f64[4,28,72]", "f64[4,72,28]", "0,2,1")});
}

TEST(GpuTraffic, Softmax) {
  ExpectTraffic(kOnce, {Softmax("7", "64"), Softmax("3", "4096"), Softmax("100", "8"), Softmax("5", "2000")});
}

// Memory is moved in sectors of 32 bytes. If the rows of an array do not begin at sectors, two warps move the sectors
// in which their parts of a row end.
TEST(GpuTraffic, RowsThatDoNotBeginAtSectors) {
  ExpectTraffic(1.4, {Reduce("f32", "33,1001", "33", "1"), Reduce("f32", "1001,33", "33", "0"),
                      Reduce("f32", "5,60,70", "5,70", "1"), Softmax("7", "33"), Softmax("3", "4097"),
                      Transpose("f32[33,97]", "f32[97,33]", "1,0"),
                      Transpose("f32[5,33,70]", "f32[5,70,33]", "0,2,1"),
                      Transpose("f64[2,3,40,50]", "f64[40,2,50,3]", "2,0,3,1")});
  ExpectTraffic(2, {Transpose("f32[5,33,70]", "f32[70,33,5]", "2,1,0"), Transpose("bf16[200,3]", "bf16[3,200]", "1,0"),
                    Transpose("pred[64,65]", "pred[65,64]", "1,0"), Transpose("f32[7,63]", "f32[63,7]", "1,0")});
}

}  // namespace
}  // namespace xlad::compiler
