// The two orders of propagation, and which of them the pipeline chooses.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/testing/test_folder.h"
#include "hlo/text/text.h"
#include "sharding/explain/step_cost.h"
#include "sharding/partition/ops/families.h"
#include "sharding/pipeline.h"

namespace xlad::sharding {
namespace {

// Weights w, fed by the first result, and the batch x are operands of one elementwise op; both may be split by "dp".
std::string WeightsAndBatch(absl::string_view product, absl::string_view of_weights, absl::string_view of_batch) {
  const auto annotated = [](absl::string_view dims) {
    return absl::StrCat(", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<@mesh, ", dims, ">\"}\n");
  };
  return absl::StrCat(R"(HloModule m, frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=4, \"tp\"=2]>}"}
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  w = f32[64,32] parameter(0))",
                      annotated(of_weights), "  x = f32[64,32] parameter(1)", annotated(of_batch),
                      "  m = f32[64,32] ", product, R"(
  s = f32[64,32] sine(m)
  t = f32[64,32] cosine(s)
  n = f32[64,32] subtract(w, t)
  ROOT all = (f32[64,32]) tuple(n)
})");
}

ImportOptions Fed() {
  ImportOptions options;
  options.feeds = {{0, 0}};
  return options;
}

std::unique_ptr<hlo::Module> Parsed(const std::string& text) {
  auto module = hlo::ParseText(text);
  XLAD_CHECK(module.ok()) << module.status() << text;
  return *std::move(module);
}

double CostOf(const std::string& text, PropagationOrder order) {
  ShardedModule sharded = *Import(Parsed(text), Fed());
  XLAD_CHECK(Propagate(&sharded, order).ok());
  return *StepCost(*Partition(sharded, FamilyOf));
}

constexpr char kRows[] = "[{\\\"dp\\\"}, {}]", kColumns[] = "[{}, {\\\"dp\\\"}]", kOther[] = "[{}, {\\\"tp\\\"}]";

TEST(PropagationOrder, BatchComesFirst) {
  for (const char* product : {"multiply(w, x)", "multiply(x, w)"}) {
    ShardedModule sharded = *Import(Parsed(WeightsAndBatch(product, kColumns, kRows)), Fed());
    EXPECT_TRUE(OrderCanMatter(sharded));
    ASSERT_TRUE(Propagate(&sharded, PropagationOrder::kStateLast).ok());
    for (const auto& [instruction, shardings] : sharded.shardings) {
      if (instruction->name() == "m" || instruction->name() == "s") {
        EXPECT_FALSE(shardings[0].dims[0].axes.empty()) << instruction->name();
        EXPECT_TRUE(shardings[0].dims[1].axes.empty()) << instruction->name();
      }
      if (instruction->name() == "w") EXPECT_FALSE(shardings[0].dims[1].axes.empty()) << "as annotated";
    }
    EXPECT_FALSE(sharded.results[0].dims[1].axes.empty()) << "as the parameter that it feeds";
  }
}

TEST(PropagationOrder, CannotMatterWithoutAConflict) {
  EXPECT_FALSE(OrderCanMatter(*Import(Parsed(WeightsAndBatch("multiply(w, x)", kOther, kRows)), Fed())));
  EXPECT_FALSE(OrderCanMatter(*Import(Parsed(WeightsAndBatch("multiply(w, x)", kColumns, kRows)), {}))) << "no state";
  EXPECT_FALSE(
      OrderCanMatter(*Import(Parsed(WeightsAndBatch("multiply(w, x)", kColumns, "[{\\\"dp\\\"}p1, {}]")), Fed())))
      << "the user's own order";
}

TEST(PropagationOrder, PipelineChoosesTheCheaperOrder) {
  for (const char* product : {"multiply(w, x)", "multiply(x, w)"}) {
    for (const char* of_weights : {kColumns, kRows, kOther}) {
      const std::string text = WeightsAndBatch(product, of_weights, kRows);
      PipelineOptions options;
      options.import = Fed();
      auto result = RunPipeline(Parsed(text), options);
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(*StepCost(result->partitioned),
                std::min(CostOf(text, PropagationOrder::kAllAtOnce), CostOf(text, PropagationOrder::kStateLast)));
    }
  }
}

// Each file has the program that its pass changed.
TEST(PropagationOrder, DumpsShowBothPrograms) {
  const std::string text = WeightsAndBatch("multiply(w, x)", kColumns, kRows);
  PipelineOptions options;
  options.import = Fed();
  const TestFolder folder;
  options.dump_directory = folder.path();
  const auto result = RunPipeline(Parsed(text), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto dump = [&](const char* file) { return *RealFileSystem().Read(JoinPath(options.dump_directory, file)); };
  const struct {
    PropagationOrder order;
    const char *propagated, *partitioned;
  } cases[] = {{PropagationOrder::kAllAtOnce, "2.propagate.hlo", "3.partition.hlo"},
               {PropagationOrder::kStateLast, "4.propagate-alternative.hlo", "5.partition-alternative.hlo"}};
  for (const auto& [order, propagated, partitioned] : cases) {
    ShardedModule sharded = *Import(Parsed(text), Fed());
    ASSERT_TRUE(Propagate(&sharded, order).ok());
    EXPECT_EQ(dump(propagated), PrintPropagated(sharded)) << propagated;
    EXPECT_EQ(dump(partitioned), hlo::PrintText(*Partition(sharded, FamilyOf)->variants[0].module)) << partitioned;
  }
  EXPECT_NE(dump("2.propagate.hlo"), dump("4.propagate-alternative.hlo"));
  EXPECT_EQ(dump("6.choose.hlo"), hlo::PrintText(*result->partitioned.variants[0].module));
}

}  // namespace
}  // namespace xlad::sharding
