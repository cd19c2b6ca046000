// The checking mode of gpu_sim on kernels of all forms: intact kernels have no errors, damaged kernels have the
// expected errors, and the reported memory traffic is correct.
#include <gtest/gtest.h>

#include "compiler/kernel/build_kernel.h"
#include "compiler/kernel/gpu_target.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "tests/compiled/checked_run.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

// Kernels of all forms: a program with one instruction besides its parameters, or a fusion.
const char* Softmax() {
  static const auto* const text = new std::string(hlo::TestText("tests/compiled/testdata/softmax.hlo"));
  return text->c_str();
}
// Both loops over the columns read a value that is computed once per row.
const char* const kCentered = R"(
HloModule centered
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[48,1000] parameter(0)
  m = f32[48] parameter(1)
  zero = f32[] constant(0)
  mb = f32[48,1000] broadcast(m), dimensions={0}
  d = f32[48,1000] subtract(x, mb)
  q = f32[48,1000] multiply(d, d)
  v = f32[48] reduce(q, zero), dimensions={1}, to_apply=add
  vb = f32[48,1000] broadcast(v), dimensions={0}
  ROOT y = f32[48,1000] divide(d, vb)
})";
const char* const kElementwise = R"(
HloModule elementwise
ENTRY main {
  x = f32[64,1024] parameter(0)
  y = f32[64,1024] parameter(1)
  p = f32[64,1024] multiply(x, y)
  ROOT t = f32[64,1024] tanh(p)
})";
const char* const kRows = R"(
HloModule rows
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[64,1024] parameter(0)
  zero = f32[] parameter(1)
  ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
})";
const char* const kColumns = R"(
HloModule columns
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[64,1024] parameter(0)
  zero = f32[] parameter(1)
  ROOT s = f32[1024] reduce(x, zero), dimensions={0}, to_apply=add
})";
const char* const kTranspose = R"(
HloModule transposed
ENTRY main {
  x = f32[6,96,160] parameter(0)
  ROOT t = f32[6,160,96] transpose(x), dimensions={0,2,1}
})";
const char* const kScatter = R"(
HloModule scattered
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[20,64] parameter(0)
  i = s32[50,1] parameter(1)
  u = f32[50,64] parameter(2)
  ROOT s = f32[20,64] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
      scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add
})";
const char* const kUpdate = R"(
HloModule updated
ENTRY main {
  x = f32[20,64] parameter(0)
  u = f32[3,64] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT s = f32[20,64] dynamic-update-slice(x, u, i, j)
})";
const char* const kSort = R"(
HloModule sorted
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main {
  x = f32[7,33] parameter(0)
  ROOT s = f32[7,33] sort(x), dimensions={1}, to_apply=less
})";
const char* const kTopk = R"(
HloModule best
ENTRY main {
  x = f32[3,301] parameter(0)
  ROOT r = (f32[3,70], s32[3,70]) topk(x), k=70, largest=true
})";
const char* const kScan = R"(
HloModule scanned
step {
  x = f32[7] parameter(0)
  c = f32[7] parameter(1)
  s = f32[7] add(x, c)
  ROOT t = (f32[7], f32[7]) tuple(s, s)
}
ENTRY main {
  x = f32[7,101] parameter(0)
  c = f32[7] parameter(1)
  ROOT r = (f32[7,101], f32[7]) scan(x, c), dimensions={1}, num_carries=1, to_apply=step
})";
const char* const kRandom = R"(
HloModule drawn
ENTRY main {
  s = u64[2] parameter(0)
  ROOT r = (u64[2], u32[7,91]) rng-bit-generator(s), algorithm=rng_three_fry
})";
const char* const kPooled = R"(
HloModule pooled
ge { x = f32[] parameter(0) y = f32[] parameter(1) ROOT g = pred[] compare(x, y), direction=GE }
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY main {
  x = f32[3,9,9,5] parameter(0)
  s = f32[3,4,4,5] parameter(1)
  z = f32[] parameter(2)
  ROOT r = f32[3,9,9,5] select-and-scatter(x, s, z), window={size=1x3x3x1 stride=1x2x2x1}, select=ge, scatter=add
})";
const char* const kBatchNorm = R"(
HloModule normed
ENTRY main {
  x = f32[6,5,5,3] parameter(0)
  s = f32[3] parameter(1)
  o = f32[3] parameter(2)
  ROOT r = (f32[6,5,5,3], f32[3], f32[3]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=3
})";
const char* const kBatchNormGradient = R"(
HloModule normed_back
ENTRY main {
  x = f32[6,5,5,3] parameter(0)
  s = f32[3] parameter(1)
  m = f32[3] parameter(2)
  v = f32[3] parameter(3)
  g = f32[6,5,5,3] parameter(4)
  ROOT r = (f32[6,5,5,3], f32[3], f32[3]) batch-norm-grad(x, s, m, v, g), epsilon=20, feature_index=3
})";
const char* const kDot = R"(
HloModule multiplied
ENTRY main {
  x = f64[9,11] parameter(0)
  y = f64[11,37] parameter(1)
  ROOT r = f64[9,37] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})";
std::vector<const char*> AllPrograms() {
  return {Softmax(), kCentered, kElementwise, kRows,   kColumns, kTranspose, kScatter,           kUpdate,
          kSort,     kTopk,     kScan,        kRandom, kPooled,  kBatchNorm, kBatchNormGradient, kDot};
}

// Compiles a program as one kernel, damages it as `options` say, runs it and returns the report.
runtime::LaunchReport Check(const std::string& text, const HostOptions& options) {
  auto module = *hlo::ParseText(text);
  KernelRequest request;
  request.root = AsKernel(module.get());
  request.symbol = "checked";
  request.kernel = ScheduleFusion(*request.root, kOneRowTiles);
  const auto run = RunChecked(request, RandomOperands(request, 1), options);
  EXPECT_TRUE(run.ok()) << run.status();
  return run->report;
}

TEST(GpuCheck, NoKernelHasErrors) {
  for (const char* text : AllPrograms()) {
    for (const bool descending : {false, true}) {
      EXPECT_EQ(Check(text, {.descending = descending}).message, "") << text;
    }
  }
}

// The bytes of the operands and results of a program.
int64_t LeastBytes(const std::string& text) {
  const auto module = *hlo::ParseText(text);
  int64_t bytes = module->entry()->root()->shape().array().bytes();
  for (const hlo::Instruction* parameter : module->entry()->parameters()) bytes += parameter->shape().array().bytes();
  return bytes;
}

TEST(GpuCheck, KernelsMoveEachByteOnce) {
  for (const char* text : {Softmax(), kElementwise, kRows, kColumns, kTranspose}) {
    const runtime::LaunchReport report = Check(text, {});
    const auto moved = static_cast<double>(report.loaded_bytes + report.stored_bytes);
    const auto least = static_cast<double>(LeastBytes(text));
    EXPECT_GE(moved, least) << text;
    EXPECT_LE(moved, 1.05 * least) << text;
  }
}

runtime::LaunchReport CheckDamaged(const char* text, Mutation::Kind kind, int64_t number) {
  return Check(text, {.mutation = {kind, number}});
}

void ExpectWords(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST(GpuCheck, WithoutABarrierThereIsARace) {
  const runtime::LaunchReport report = CheckDamaged(kTranspose, Mutation::Kind::kNoBarrier, 0);
  // The first thread reads elements that the other threads have not written. This error is found first.
  EXPECT_EQ(report.error, runtime::AccessError::kUninitialized);
  ExpectWords(report.message, {"kernel checked", "block 0, thread 0", "shared memory", "which no thread has written"});
  Places places;
  Check(Softmax(), {.places = &places});
  int races = 0;
  for (int64_t b = 0; b < places.barriers; ++b) {
    const runtime::LaunchReport without = CheckDamaged(Softmax(), Mutation::Kind::kNoBarrier, b);
    EXPECT_NE(without.error, runtime::AccessError::kNone) << b;
    if (without.error != runtime::AccessError::kRace) continue;
    ++races;
    ExpectWords(without.message, {"kernel checked", "race", "block", "thread", "expected a barrier"});
  }
  EXPECT_GT(races, 0);
}

TEST(GpuCheck, AccessesOutsideOfABufferAreErrors) {
  // The last thread stores to or loads from one element beyond the buffer.
  for (int64_t access = 0; access < 3; ++access) {
    for (const Mutation::Kind kind : {Mutation::Kind::kNextElement, Mutation::Kind::kNextLane}) {
      const runtime::LaunchReport report = CheckDamaged(kElementwise, kind, access);
      EXPECT_EQ(report.error, runtime::AccessError::kOutside);
      ExpectWords(
          report.message,
          {"kernel checked: block 255, thread 255", access < 2 ? "reads 4 bytes" : "writes 4 bytes", "at byte 262144",
           absl::StrCat(access < 2 ? "operand " : "result ", access % 2), "expected one of its 262144 bytes"});
    }
  }
}

}  // namespace
}  // namespace xlad::compiler
