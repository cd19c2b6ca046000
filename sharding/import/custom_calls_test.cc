// The shapes of a custom-call are what the user wrote: they need not fit its target.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hlo/eval/evaluate.h"
#include "hlo/text/text.h"
#include "hlo/verify/verifier.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

constexpr const char* kTargets[] = {
    "unknown",       "TopK",           "mhlo.topk",      "mhlo.erf",      "X64Combine",   "X64SplitLow",
    "MoveToHost",    "Sharding",       "lapack_strsm_ffi", "lapack_spotrf_ffi", "lapack_sgeqrf_ffi",
    "xla.sdy.FuncResultSharding",      "xla.sdy.ShardingGroup",           "xla.sdy.PropagationBarrier",
    "xla.sdy.GlobalToLocalShape",      "xla.sdy.LocalToGlobalShape",      "SPMDFullToShardShape",
};
constexpr const char* kShapes[] = {"f32[]",    "f32[4]",           "f32[8]",           "f32[4,4]", "f32[4,2]", "f32[0]",
                                   "(f32[4])", "(f32[4], s32[4])", "((f32[4,4]), s32[])", "()",   "token[]"};

// A program that calls `target`, copies the result, and returns both. Its first parameter is split if it can be.
std::string Call(absl::string_view target, const std::vector<std::string>& operands, const std::string& result) {
  std::vector<std::string> names, parameters;
  for (const std::string& shape : operands) {
    const size_t i = names.size();
    names.push_back(absl::StrCat("p", i));
    const std::string rest = absl::StrContains(shape, ',') ? ", {}" : "";
    const bool split = i == 0 && shape[0] == 'f' && shape != "f32[]";
    parameters.push_back(absl::StrCat("p", i, " = ", shape, " parameter(", i, ")",
                                      split ? absl::StrCat(", frontend_attributes={xla.sdy.sharding=\"#sdy.sharding<"
                                                           "@mesh, [{\\\"dp\\\"}", rest, "]>\"}")
                                            : ""));
  }
  return absl::StrReplaceAll(R"(HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["dp"=2]>}}
ENTRY e {
  $parameters
  c = $result custom-call($names), custom_call_target="$target", frontend_attributes={
    xla.sdy.sharding_group_id="1", xla.sdy.allowed_direction="0", xla.sdy.manual_axes="#sdy<manual_axes{\"dp\"}>",
    xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{\"dp\"}]>]>",
    xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{\"dp\"}]>]>"}
  ROOT r = ($result, $result) tuple(c, c)
})",
                             {{"$parameters", absl::StrJoin(parameters, "\n  ")},
                              {"$names", absl::StrJoin(names, ", ")},
                              {"$result", result},
                              {"$target", target}});
}

// Partitions and evaluates the program. Returns whether both accept it.
bool Try(const std::string& text) {
  SCOPED_TRACE(text);
  absl::StatusOr<std::unique_ptr<hlo::Module>> module = hlo::ParseText(text);
  EXPECT_TRUE(module.ok()) << module.status();
  if (!module.ok() || !hlo::Verify(**module).ok()) return false;
  const absl::StatusOr<PipelineResult> result = RunPipeline((*module)->Clone(), {});
  if (absl::StrContains(text, "token[] parameter")) return false;
  const std::vector<hlo::Literal> inputs = SampleInputs(**module);
  const absl::StatusOr<hlo::Literal> whole = hlo::Evaluate(**module, inputs);
  if (!result.ok() || !whole.ok()) return false;
  const absl::StatusOr<hlo::Literal> joined = EvaluatePartitioned(result->partitioned, inputs);
  EXPECT_TRUE(joined.ok()) << joined.status();
  if (joined.ok()) EXPECT_TRUE(CompareValues(*joined, *whole, 1e-5).ok()) << CompareValues(*joined, *whole, 1e-5);
  return true;
}

TEST(CustomCalls, ShapesThatDoNotFitTheTarget) {
  int accepted = 0;
  for (const char* target : kTargets) {
    for (const char* result : kShapes) {
      accepted += Try(Call(target, {}, result)) ? 1 : 0;
      for (const char* first : kShapes) {
        accepted += Try(Call(target, {first}, result)) ? 1 : 0;
        accepted += Try(Call(target, {first, "f32[4,2]"}, result)) ? 1 : 0;
      }
    }
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace xlad::sharding
