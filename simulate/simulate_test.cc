// Whole predictions: rates, overlap, loops, slices of 8,960 chips, user chips, published measurements.
#include "simulate/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/file_system.h"
#include "hlo/read/read.h"
#include "hlo/testing/test_material.h"
#include "simulate/testing/slice_of.h"

namespace xlad::simulate {
namespace {

using ::testing::HasSubstr;

PreparedProgram PrepareText(const std::string& text, const std::string& mesh = "") {
  auto module = hlo::ReadModule(text);
  EXPECT_TRUE(module.ok()) << module.status();
  sharding::ImportOptions import;
  if (!mesh.empty()) import.rebind = *sharding::ParseMesh(mesh);
  auto prepared = PrepareProgram(*std::move(module), import);
  EXPECT_TRUE(prepared.ok()) << prepared.status();
  return *std::move(prepared);
}

Prediction PredictOn(const PreparedProgram& program, const Slice& slice, const char* assign = "") {
  auto prediction = Predict(program, slice, assign);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return *std::move(prediction);
}

std::string Sharding(const char* dimensions) {
  return absl::StrCat("frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, [", dimensions, "]>\"}");
}

// y = x w, where x is split over dp along its rows and w over tp along its columns.
std::string Product(const char* mesh, int64_t m, int64_t k, int64_t n) {
  return absl::StrFormat(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<[%s]>}}
ENTRY main {
  x = bf16[%d,%d] parameter(0), %s
  w = bf16[%d,%d] parameter(1), %s
  ROOT y = bf16[%d,%d] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
})",
                         mesh, m, k, Sharding(R"({\"dp\"}, {})"), k, n, Sharding(R"({}, {\"tp\"})"), m, n);
}

// `layers` times: x = x + tanh(x a) b, with Megatron's sharding: one all-reduce over tp in each layer.
std::string Layers(const char* mesh, int64_t layers, int64_t batch, int64_t width) {
  const std::string text = absl::StrReplaceAll(
      hlo::TestText("simulate/testdata/layers.hlo"),
      {{"MESH", mesh},
       {"LAYERS", absl::StrCat(layers)},
       {"XS", Sharding(R"({\"dp\"}, {})")},
       {"AS", Sharding(R"({}, {\"tp\"})")},
       {"BS", Sharding(R"({\"tp\"}, {})")}});
  return absl::StrReplaceAll(text, {{"[B,W]", absl::StrCat("[", batch, ",", width, "]")},
                                    {"[B,V]", absl::StrCat("[", batch, ",", 4 * width, "]")},
                                    {"[W,V]", absl::StrCat("[", width, ",", 4 * width, "]")},
                                    {"[V,W]", absl::StrCat("[", 4 * width, ",", width, "]")}});
}

TEST(Simulate, DoubleRatesHalveAStepThatComputes) {
  const PreparedProgram program = PrepareText(Product(R"("dp"=4, "tp"=4)", 65536, 8192, 32768));
  Slice slice = SliceOf("v5e-4x4");
  const Prediction before = PredictOn(program, slice);
  EXPECT_GT(before.mfu, 0.95);
  EXPECT_LE(before.mfu, 1);
  EXPECT_EQ(program.flops, 2.0 * 65536 * 8192 * 32768);
  slice.chip.bf16_flops *= 2;
  EXPECT_NEAR(before.step.us / PredictOn(program, slice).step.us, 2, 0.02);
}

TEST(Simulate, StepsThatReadMemoryFollowItsRate) {
  // A product of eight rows and a matrix reads little more than the bytes of the matrix.
  const PreparedProgram program = PrepareText(Product(R"("dp"=1, "tp"=4)", 8, 16384, 65536));
  Slice slice = SliceOf("v5e-2x2");
  const Prediction before = PredictOn(program, slice);
  const double bytes = 2.0 * 16384 * 65536 / 4;
  EXPECT_NEAR(before.step.us / (bytes / slice.chip.hbm_bytes_per_s * 1e6), 1, 0.02);
  EXPECT_NEAR(before.step.hbm_bytes / bytes, 1, 0.02);
  slice.chip.hbm_bytes_per_s /= 2;
  EXPECT_NEAR(PredictOn(program, slice).step.us / before.step.us, 2, 0.02);
}

// Predicts the same program for the chip file of v5e and for a copy of this file with changes.
TEST(Simulate, ChipsOfUsersChangeThePrediction) {
  const std::string v5e = *RealFileSystem().Read("deploy/chips/v5e.toml");
  const std::string mine =
      absl::StrReplaceAll(v5e, {{"\"v5e\"", "\"mine\""}, {"197 TFLOP/s", "98.5 TFLOP/s"}, {"819 GB/s", "8190 GB/s"}});
  const PreparedProgram program = PrepareText(Product(R"("dp"=2, "tp"=2)", 16384, 8192, 16384));
  const Slice slow = *ParseSlice("2x2", *machine::ParseChip(mine, "mine.toml"));
  EXPECT_NEAR(PredictOn(program, slow).step.us / PredictOn(program, SliceOf("v5e-2x2")).step.us, 2, 0.02);
}

TEST(Simulate, LoopsTakeTheirTrips) {
  const Slice slice = SliceOf("v5e-2x4");
  const Prediction two = PredictOn(PrepareText(Layers(R"("dp"=4, "tp"=2)", 40, 4096, 1024)), slice);
  const Prediction four = PredictOn(PrepareText(Layers(R"("dp"=4, "tp"=2)", 80, 4096, 1024)), slice);
  EXPECT_NEAR(four.step.us / two.step.us, 2, 0.02);
  EXPECT_NEAR(four.step.mxu_us / two.step.mxu_us, 2, 1e-9);
  EXPECT_NEAR(four.step.hbm_bytes / two.step.hbm_bytes, 2, 0.05);
  ASSERT_FALSE(four.step.collectives.empty());
  EXPECT_EQ(four.step.collectives[0].trips, 80);
  EXPECT_EQ(four.step.collectives[0].kind, "all_reduce");
  EXPECT_EQ(four.step.collectives[0].axes, "tp");
  EXPECT_TRUE(four.step.warnings.empty());
}

// No unit is busy longer than the step, the cores do not wait longer than the links are busy, and the timeline is not
// longer than the step.
TEST(Simulate, TimesAddUp) {
  for (const char* const topology : {"v5e-2x4", "v4-2x2x2", "v6e-8x1"}) {
    const PreparedProgram program = PrepareText(Layers(R"("dp"=2, "tp"=4)", 10, 512, 512));
    const Prediction p = PredictOn(program, SliceOf(topology));
    EXPECT_LE(p.step.mxu_us, p.step.us);
    EXPECT_LE(p.step.vpu_us, p.step.us);
    EXPECT_LE(p.step.ici_us, p.step.us * 1.0001);
    EXPECT_LE(p.step.stall_us, p.step.ici_us * 1.0001);
    for (const double busy : p.step.link_us) EXPECT_LE(busy, p.step.us);
    double end = 0;
    for (const TimelineEvent& event : p.step.timeline) end = std::max(end, event.start_us + event.duration_us);
    EXPECT_LE(end, p.step.us * 1.0001);
    const auto trace = nlohmann::json::parse(TraceJson(p.step));
    EXPECT_EQ(trace["traceEvents"].size(), p.step.timeline.size() + 2);
  }
}

// Names in HLO are bytes, and JSON has only UTF-8.
TEST(Simulate, TracesHaveNamesThatAreNotUtf8) {
  StepTime step;
  step.timeline.push_back({"fusion\xff", Unit::kCore, 0, 1});
  const auto trace = nlohmann::json::parse(TraceJson(step));
  EXPECT_EQ(trace["traceEvents"][2]["name"], "fusion\xef\xbf\xbd");
}

// A collective whose result is used only at the end overlaps with the computation on the cores.
TEST(Simulate, CollectivesOverlapWithComputation) {
  const auto text = [](bool depends) {
    return absl::StrCat(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=16]>}}
ENTRY main {
  g = f32[16,4194304] parameter(0), )",
                        Sharding(R"({\"dp\"}, {})"), R"(
  x = bf16[8192,8192] parameter(1)
  zero = f32[] constant(0)
  sum = f32[4194304] reduce(g, zero), dimensions={0}, to_apply=add
  part = f32[1] slice(sum), slice={[0:1]}
  scale = bf16[1] convert(part)
  )",
                        depends ? "s = bf16[] reshape(scale)\n" : "s = bf16[] constant(2)\n", R"(
  b = bf16[8192,8192] broadcast(s), dimensions={}
  xs = bf16[8192,8192] multiply(x, b)
  y = bf16[8192,8192] dot(xs, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[8192,8192] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[4194304], bf16[8192,8192]) tuple(sum, z)
}
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
})");
  };
  const auto program_of = [&](bool depends) {
    // Moves the reducer before its use.
    std::string program = text(depends);
    const size_t at = program.find("add {");
    const std::string reducer = program.substr(at);
    program = program.substr(0, at);
    return PrepareText(program.insert(program.find("ENTRY"), reducer + "\n"));
  };
  const Slice slice = SliceOf("v5e-16x1");
  const Prediction free = PredictOn(program_of(false), slice);
  const Prediction bound = PredictOn(program_of(true), slice);
  ASSERT_GT(free.step.ici_us, 100);
  EXPECT_NEAR(bound.step.us - free.step.us, free.step.ici_us, 0.1 * free.step.ici_us);
  EXPECT_NEAR(bound.step.stall_us - free.step.stall_us, free.step.ici_us, 0.1 * free.step.ici_us);
}

// A loop with collectives waits until the links are free. The cores, which have no other work, stall.
TEST(Simulate, LoopsThatWaitForTheLinksStall) {
  const std::string text = absl::StrReplaceAll(hlo::TestText("simulate/testdata/loop_after_collective.hlo"),
                                               {{"ROWS", Sharding(R"({\"dp\"}, {})")}});
  const StepTime step = PredictOn(PrepareText(text), SliceOf("v5e-16x1")).step;
  double large = 0;
  for (const CollectiveUse& use : step.collectives) large = std::max(large, use.us);
  ASSERT_EQ(step.collectives.size(), 2u);
  ASSERT_GT(large, 100);
  EXPECT_GE(step.us, step.ici_us);
  EXPECT_GE(step.stall_us, large);
  EXPECT_LE(step.stall_us, step.ici_us * 1.0001);
}

TEST(Simulate, ThousandsOfChips) {
  const PreparedProgram program = PrepareText(Layers(R"("dp"=2240, "tp"=4)", 80, 2240 * 512, 8192));
  const Slice slice = SliceOf("v5p-16x20x28");
  const Prediction p = PredictOn(program, slice);
  EXPECT_GT(p.mfu, 0.2);
  EXPECT_LT(p.mfu, 1);
  // The all-reduce of a layer is among four neighbors by default, and slower between distant chips.
  EXPECT_THAT(p.placement, HasSubstr("tp="));
  const Prediction far = PredictOn(program, slice, "dp=x4yz,tp=x4");
  EXPECT_GT(far.step.ici_us, 1.5 * p.step.ici_us);
  EXPECT_GE(far.step.us, p.step.us);
}

TEST(Simulate, ErrorsOfTheMesh) {
  const PreparedProgram program = PrepareText(Product(R"("dp"=4, "tp"=4)", 64, 64, 64));
  EXPECT_THAT(std::string(Predict(program, SliceOf("v5e-2x4"), "").status().message()),
              HasSubstr("mesh dp=4,tp=4 of 16 devices"));
}

TEST(Simulate, PeakMemoryIsThatOfTheBufferPlan) {
  const PreparedProgram program = PrepareText(Product(R"("dp"=4, "tp"=4)", 4096, 1024, 8192));
  EXPECT_EQ(program.peak_bytes, 2 * (1024 * 1024 + 1024 * 2048 + 1024 * 2048));
}

// On CPUs, the loop would also carry a packed copy of its weights.
TEST(Simulate, LoopsCarryNoOperandsThatOnlyCpusPack) {
  const PreparedProgram program = PrepareText(hlo::TestText("simulate/testdata/recurrence.hlo"));
  const int64_t weights = int64_t{4} * 512 * 512;
  EXPECT_GE(program.peak_bytes, weights);
  EXPECT_LT(program.peak_bytes, 2 * weights);
}

TEST(Simulate, SlicesThatAreNotBuilt) {
  const auto warnings = [](const char* topology, const char* mesh) {
    return PredictOn(PrepareText(Product(mesh, 4096, 64, 4096)), SliceOf(topology)).step.warnings;
  };
  EXPECT_THAT(warnings("v5e-16x16", R"("dp"=16, "tp"=16)"), testing::IsEmpty());
  EXPECT_THAT(warnings("v5e-16x32", R"("dp"=32, "tp"=16)"),
              testing::ElementsAre("topology v5e-16x32: found a slice of 512 chips, expected at most 256, the largest "
                                   "slice of v5e; 2xv5e-SIZES is 2 slices that a network connects"));
  EXPECT_THAT(warnings("2xv5e-16x32", R"("dp"=64, "tp"=16)"),
              testing::ElementsAre(testing::HasSubstr("; 4xv5e-SIZES is 4 slices that a network connects")));
  // The chip file has no figures of a network between slices.
  EXPECT_THAT(warnings("v2-16x32", R"("dp"=32, "tp"=16)"), testing::ElementsAre(testing::EndsWith("slice of v2")));
  EXPECT_THAT(warnings("2xv5e-16x16", R"("dp"=32, "tp"=16)"), testing::IsEmpty());
}

TEST(MeshesLike, AllFactorizations) {
  std::vector<std::string> texts;
  for (const sharding::Mesh& mesh : MeshesLike(*sharding::ParseMesh("dp=1,tp=1"), 12, 100)) {
    texts.push_back(mesh.ToString());
  }
  EXPECT_THAT(texts,
              testing::ElementsAre("dp=1,tp=12", "dp=2,tp=6", "dp=3,tp=4", "dp=4,tp=3", "dp=6,tp=2", "dp=12,tp=1"));
  EXPECT_EQ(MeshesLike(*sharding::ParseMesh("a=1,b=1,c=1"), 5040, 10).size(), 10u);
}

// "How to Scale Your Model" measured bf16[32,1024,8192] x [8192,32768] on 8 cores of TPU v2, split 4 x 2: 96 ms; and a
// reduce-scatter of 134 MB between two neighbors: 1.13 ms.
TEST(Simulate, PublishedMeasurementsOnV2) {
  machine::Chip core = *machine::BuiltInChip("v2");
  core.cores = 1;  // Each core is a device.
  core.bf16_flops /= 2;
  core.hbm_bytes_per_s /= 2;
  const Slice slice = *ParseSlice("4x2", core);
  const PreparedProgram program = PrepareText(Product(R"("dp"=4, "tp"=2)", 32 * 1024, 8192, 32768));
  EXPECT_NEAR(PredictOn(program, slice).step.us, 96e3, 0.05 * 96e3);
  GroupTimer timer(slice);
  const auto scatter = timer.TimeOf({collectives::CollectiveKind::kReduceScatter, 134'217'728, {{1, 2, 1, false}}});
  ASSERT_TRUE(scatter.ok());
  EXPECT_NEAR((*scatter)->us, 1130, 0.05 * 1130);
}

}  // namespace
}  // namespace xlad::simulate
