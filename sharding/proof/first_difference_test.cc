// A fault that is inserted into a partitioned program is found at its instruction.
#include "sharding/proof/first_difference.h"

#include <gtest/gtest.h>

#include "hlo/build/builder.h"
#include "hlo/text/text.h"
#include "sharding/partition/ops/families.h"
#include "sharding/pipeline.h"
#include "sharding/proof/equivalence.h"

namespace xlad::sharding {
namespace {

constexpr const char* kProgram = R"(HloModule m,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=2, \"tp\"=2]>}"}
body {
  p = (s32[], f32[4,6], f32[8,4], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  g = f32[4,6] get-tuple-element(p), index=1
  x = f32[8,4] get-tuple-element(p), index=2
  y = f32[8,6] get-tuple-element(p), index=3
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  x2 = f32[8,4] sine(x)
  d = f32[4,6] dot(x2, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  g2 = f32[4,6] add(g, d)
  ROOT t = (s32[], f32[4,6], f32[8,4], f32[8,6]) tuple(i2, g2, x2, y)
}
condition {
  p = (s32[], f32[4,6], f32[8,4], f32[8,6]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  five = s32[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT
}
yes { a = f32[4,6] parameter(0) ROOT b = f32[4,6] cosine(a) }
no { a = f32[4,6] parameter(0) ROOT u = f32[4,6] tanh(a) }
ENTRY main {
  x = f32[8,4] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
  y = f32[8,6] parameter(1), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {\"tp\"}]>"}
  z = f32[] constant(0)
  e = f32[8,4] exponential(x)
  g = f32[4,6] broadcast(z), dimensions={}
  i = s32[] constant(0)
  t = (s32[], f32[4,6], f32[8,4], f32[8,6]) tuple(i, g, e, y)
  l = (s32[], f32[4,6], f32[8,4], f32[8,6]) while(t), condition=condition, body=body
  o = f32[4,6] get-tuple-element(l), index=1
  q = pred[] constant(false)
  s = f32[4,6] conditional(q, o, o), true_computation=yes, false_computation=no
  ROOT r = f32[4,6] negate(s)
})";

struct Made : MappedProgram {
  std::vector<hlo::Literal> inputs;
};

Made Make(const char* text = kProgram) {
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

// A sum of terms that cancel consists of rounding errors, so its largest value does not measure them.
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

// Inside the loop, "tp" is split by hand and "dp" by xlad.
constexpr const char* kManual = R"(HloModule m, num_partitions=4,
  frontend_attributes={xla.sdy.meshes="{mesh = #sdy.mesh<[\"dp\"=2, \"tp\"=2]>}"}
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
body {
  p = (s32[], f32[4,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4,3] get-tuple-element(p), index=1
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  wave = f32[4,3] cosine(x)
  ROOT t = (s32[], f32[4,3]) tuple(i2, wave)
}
condition {
  p = (s32[], f32[4,3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT go = pred[] compare(i, three), direction=LT
}
shmap_body {
  x = f32[4,3] parameter(0)
  y = f32[3,5] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[4,3]) tuple(zero, x)
  w = (s32[], f32[4,3]) while(t), condition=condition, body=body
  u = f32[4,3] get-tuple-element(w), index=1
  d = f32[4,5] dot(u, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[4,5] all-reduce(d), channel_id=1, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=add
  ROOT h = f32[4,5] tanh(s)
}
ENTRY main {
  x = f32[4,6] parameter(0), frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\"dp\"}, {}]>"}
  y = f32[6,5] parameter(1)
  e = f32[4,6] exponential(x)
  in = (f32[4,3], f32[3,5]) custom-call(e, y), custom_call_target="xla.sdy.GlobalToLocalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"tp\"}>",
    xla.sdy.in_shardings="#sdy.sharding_per_value<[<@mesh, [{?}, {\"tp\"}]>, <@mesh, [{\"tp\"}, {?}]>]>"}
  l = f32[4,3] get-tuple-element(in), index=0
  r = f32[3,5] get-tuple-element(in), index=1
  k = f32[4,5] call(l, r), to_apply=shmap_body
  g = f32[4,5] custom-call(k), custom_call_target="xla.sdy.LocalToGlobalShape", frontend_attributes={
    xla.sdy.manual_axes="#sdy<manual_axes{\"tp\"}>",
    xla.sdy.out_shardings="#sdy.sharding_per_value<[<@mesh, [{?}, {?}]>]>"}
  ROOT o = f32[4,5] negate(g)
})";

TEST(FirstDifference, ComparesManualComputationsDeviceByDevice) {
  auto reference = PartitionManualOnly(*hlo::ParseText(kManual), {});
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const Fault& fault : std::vector<Fault>{{"", "", {}},
                                               {"e", "e (exponential)", {}},
                                               {"wave", "wave (cosine)", {"iteration 0 of w.1"}},
                                               {"h.1", "h.1 (tanh)", {}},
                                               {"o", "o (negate)", {}}}) {
    SCOPED_TRACE(fault.at);
    Made made = Make(kManual);
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
