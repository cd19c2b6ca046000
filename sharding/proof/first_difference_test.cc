// A fault that is inserted into a partitioned program is found at its instruction.
#include "sharding/proof/first_difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hlo/build/builder.h"
#include "hlo/testing/test_material.h"
#include "hlo/text/text.h"
#include "sharding/partition/ops/families.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

constexpr const char* kProgram = "sharding/proof/testdata/loop_and_branches.hlo";

struct Made : MappedProgram {
  std::vector<hlo::Literal> inputs;
};

Made Make(const std::string& text = hlo::TestText(kProgram)) {
  std::unique_ptr<hlo::Module> module = *hlo::ParseText(text);
  Made made;
  made.inputs = SampleInputs(*module);
  absl::StatusOr<PipelineResult> result = RunPipeline(std::move(module), {});
  EXPECT_TRUE(result.ok()) << result.status();
  made.whole = std::move(result->propagated);
  absl::StatusOr<PartitionedProgram> program = Partition(made.whole, FamilyOf, &made.source_map);
  EXPECT_TRUE(program.ok()) << program.status();
  made.program = *std::move(program);
  return made;
}

// Negates the local value of the instruction with this name, for all its users.
void Corrupt(Made& made, absl::string_view name) {
  for (const auto& [source, place] : made.source_map.arrays) {
    if (source->name() != name) continue;
    auto* local = const_cast<hlo::Instruction*>(place.local);
    hlo::Computation* computation = local->parent();
    hlo::Instruction* wrong = hlo::Builder(computation).Unary(hlo::Opcode::kNegate, local);
    local->ReplaceAllUsesWith(wrong);
    wrong->ReplaceOperand(0, local);
    if (computation->root() == local) computation->set_root(wrong);
    computation->SortTopologically();
    made.source_map.arrays[source].local = wrong;
    return;
  }
  FAIL() << "no instruction " << name;
}

TEST(FirstDifference, NoneInASoundProgram) {
  Made made = Make();
  auto found = FirstDifference(made, nullptr, made.inputs, 1e-5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value()) << (*found)->ToString();
}

// If the terms of a sum cancel, the rounding errors may be as large as the sum itself.
TEST(FirstDifference, RoundingIsNotADifference) {
  const char* text = R"(HloModule m,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=4]>}"}
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[64,8] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
  z = f32[] constant(0)
  n = f32[] constant(0.015625)
  s = f32[8] reduce(x, z), dimensions={0}, to_apply=add
  ns = f32[8] broadcast(n), dimensions={}
  m = f32[8] multiply(s, ns)
  b = f32[64,8] broadcast(m), dimensions={1}
  d = f32[64,8] subtract(x, b)
  t = f32[8] reduce(d, z), dimensions={0}, to_apply=add
  ROOT r = f32[8] negate(t)
})";
  Made made = Make(text);
  auto found = FirstDifference(made, nullptr, made.inputs, 1e-5);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value()) << (*found)->ToString();
  Corrupt(made, "d");
  found = FirstDifference(made, nullptr, made.inputs, 1e-5);
  ASSERT_TRUE(found.ok() && found->has_value());
  EXPECT_EQ((*found)->instruction, "d (subtract)");
}

struct Fault {
  const char* at;
  const char* instruction;
  std::vector<std::string> inside;
};

TEST(FirstDifference, NamesTheInstructionThatWasCorrupted) {
  const std::string loop = "iteration 0 of l";
  for (const Fault& fault : std::vector<Fault>{{"e", "e (exponential)", {}},
                                               {"d", "d (dot)", {loop}},
                                               {"x2", "x2 (sine)", {loop}},
                                               {"u", "u (tanh)", {"branch 1 of s"}},
                                               {"r", "r (negate)", {}}}) {
    SCOPED_TRACE(fault.at);
    Made made = Make();
    Corrupt(made, fault.at);
    auto found = FirstDifference(made, nullptr, made.inputs, 1e-5);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->instruction, fault.instruction);
    EXPECT_EQ((*found)->inside, fault.inside);
    EXPECT_EQ((*found)->index, (Dims{0, 0}));
    EXPECT_EQ((*found)->device, 0);
    EXPECT_NE((*found)->whole, (*found)->partitioned);
  }
}

TEST(FirstDifference, AnInfinityAgreesOnlyWithItself) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto array = [](const std::vector<float>& values) {
    return tensor::Array::FromValues<float>(tensor::ElementType::kF32, {3}, values);
  };
  const tensor::Array whole = array({1, -kInfinity, 100});
  const double allowed = AllowedDifference(whole, array({1.00001f, -kInfinity, 100}), 1e-6);
  EXPECT_GT(allowed, 1e-4);
  EXPECT_LT(allowed, 1e-2);
  EXPECT_EQ(AllowedDifference(whole, array({1.00001f, -kInfinity, kInfinity}), 1e-6), allowed)
      << "an element that overflows only for the nudged inputs says nothing about the others";
  const auto agrees = [&](const std::vector<float>& found) {
    return LargestDifference(array(found), whole) <= allowed;
  };
  EXPECT_TRUE(agrees({1, -kInfinity, 100.0001f}));
  EXPECT_FALSE(agrees({2, -kInfinity, 100}));
  EXPECT_FALSE(agrees({1, kInfinity, 100}));
  EXPECT_FALSE(agrees({1, -1e30f, 100}));
  EXPECT_FALSE(agrees({kInfinity, -kInfinity, 100}));
  EXPECT_FALSE(agrees({NAN, -kInfinity, 100}));
}

constexpr const char* kManual = "sharding/proof/testdata/manual_loop.hlo";

TEST(FirstDifference, ComparesManualComputationsDeviceByDevice) {
  auto reference = PartitionManualOnly(*hlo::ParseText(hlo::TestText(kManual)), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const Fault& fault : std::vector<Fault>{{"", "", {}},
                                               {"e", "e (exponential)", {}},
                                               {"wave", "wave (cosine)", {"iteration 0 of w.1"}},
                                               {"h.1", "h.1 (tanh)", {}},
                                               {"o", "o (negate)", {}}}) {
    SCOPED_TRACE(fault.at);
    Made made = Make(hlo::TestText(kManual));
    const std::string at = fault.at;
    if (!at.empty()) Corrupt(made, at);
    auto found = FirstDifference(made, &*reference, made.inputs, 1e-5);
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->has_value(), !at.empty());
    if (at.empty()) continue;
    EXPECT_EQ((*found)->instruction, fault.instruction);
    EXPECT_EQ((*found)->inside, fault.inside);
  }
}

}  // namespace
}  // namespace xlad::sharding
