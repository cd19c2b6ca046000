// Opcodes, shapes, literals and replica groups. Modules, computations and instructions: consistency of operands and
// users, removal, order, copies and names.
#include "hlo/module.h"

#include <algorithm>
#include <random>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/analysis/leaves.h"
#include "hlo/build/builder.h"
#include "hlo/threefry.h"

namespace xlad::hlo {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Shape kVector(ElementType::kF32, {4});

struct MainProgram {
  Module module{"m"};
  Computation* entry = module.Add(std::make_unique<Computation>("main"));
  Builder builder{entry};
  MainProgram() { module.set_entry(entry); }
};

// The users of an instruction are exactly the instructions that have it as an operand, each once.
void ExpectConsistentUsers(const Computation& computation) {
  for (const auto& instruction : computation.instructions()) {
    std::set<const Instruction*> users;
    for (const auto& other : computation.instructions()) {
      const auto operands = other->operands();
      if (std::find(operands.begin(), operands.end(), instruction.get()) != operands.end()) users.insert(other.get());
    }
    const auto listed = instruction->users();
    EXPECT_EQ(users.size(), listed.size()) << instruction->name();
    EXPECT_EQ(users, std::set<const Instruction*>(listed.begin(), listed.end())) << instruction->name();
  }
}

void ExpectOperandsFirst(const Computation& computation) {
  std::set<const Instruction*> seen;
  for (const auto& instruction : computation.instructions()) {
    for (const Instruction* const operand : instruction->operands()) EXPECT_TRUE(seen.contains(operand));
    seen.insert(instruction.get());
  }
}

TEST(OpcodeTest, EveryOpcodeIsReadBackFromItsText) {
  std::set<std::string> names;
  for (int i = 0; i < OpcodeCount(); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const std::string name(ToString(opcode));
    EXPECT_EQ(ParseOpcode(name), opcode);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_GE(Arity(opcode), kVariadic);
  }
  EXPECT_EQ(ParseOpcode("no-such-opcode"), std::nullopt);
  EXPECT_EQ(ParseOpcode(""), std::nullopt);
}

TEST(ShapeTest, TheTextHasLayoutAndExtents) {
  Shape matrix(ElementType::kBF16, {2, 3});
  EXPECT_EQ(matrix.ToString(), "bf16[2,3]");
  matrix.set_layout({{1, 0}, ""});
  EXPECT_EQ(matrix.ToString(), "bf16[2,3]{1,0}");
  EXPECT_EQ(matrix.ToString(false), "bf16[2,3]");
  matrix.set_layout({{0, 1}, "T(8,128)S(1)"});
  matrix.set_extents({Shape::Extent::kFixed, Shape::Extent::kBounded});
  EXPECT_EQ(matrix.ToString(), "bf16[2,<=3]{0,1:T(8,128)S(1)}");
  EXPECT_FALSE(matrix.has_unbounded());
  matrix = Shape(ElementType::kBF16, {0, 0});
  matrix.set_extents({Shape::Extent::kUnbounded, Shape::Extent::kFixed});
  EXPECT_EQ(matrix.ToString(), "bf16[?,0]");
  EXPECT_TRUE(Shape::Tuple({Shape(), matrix}).has_unbounded());
  matrix.set_extents({Shape::Extent::kFixed, Shape::Extent::kFixed});
  EXPECT_EQ(matrix, Shape(ElementType::kBF16, {0, 0}));
  EXPECT_EQ(Shape(ElementType::kS32, {}).ToString(), "s32[]");
  EXPECT_EQ(Shape().ToString(), "()");
  EXPECT_EQ(Shape::Marker(Shape::Kind::kToken).ToString(), "token[]");
  const std::vector<Shape> six(6, Shape(ElementType::kPred, {}));
  EXPECT_EQ(Shape::Tuple(six).ToString(), "(pred[], pred[], pred[], pred[], pred[], /*index=5*/pred[])");
  EXPECT_EQ(Shape::Tuple(six).ToString(false), "(pred[], pred[], pred[], pred[], pred[], pred[])");
}

TEST(ShapeTest, EqualityAndLayouts) {
  Shape a(ElementType::kF32, {2, 3}), b = a;
  EXPECT_EQ(a, b);
  a.set_layout({{1, 0}, ""});
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a.SameIgnoringLayout(b));
  Shape tuple = Shape::Tuple({a, Shape::Tuple({a})});
  const Shape bare = Shape::Tuple({b, Shape::Tuple({b})});
  EXPECT_FALSE(tuple == bare);
  EXPECT_TRUE(tuple.SameIgnoringLayout(bare));
  tuple.clear_layout();
  EXPECT_EQ(tuple, bare);
  EXPECT_EQ(tuple.bytes(), 48);
  EXPECT_FALSE(Shape().SameIgnoringLayout(Shape::Marker(Shape::Kind::kToken)));
  EXPECT_FALSE(Shape(ElementType::kF32, {2}).SameIgnoringLayout(Shape(ElementType::kS32, {2})));
}

TEST(ShapeTest, PartsOfATuple) {
  const Shape element(ElementType::kF32, {2});
  const Shape tuple = Shape::Tuple({element, Shape::Tuple({Shape(ElementType::kS32, {}), element})});
  EXPECT_EQ(PartAt(tuple, {}), &tuple);
  EXPECT_EQ(PartAt(tuple, {1, 0}), &tuple.tuple()[1].tuple()[0]);
  EXPECT_EQ(PartAt(element, {}), &element);
  for (const Dims& index : std::vector<Dims>{{2}, {-1}, {0, 0}, {1, 2}}) EXPECT_EQ(PartAt(tuple, index), nullptr);
}

TEST(ThreefryTest, PairsAlongTheFirstEvenOrTheLongestDimension) {
  EXPECT_EQ(ThreefryPairDimension({}), 0);
  EXPECT_EQ(ThreefryPairDimension({3, 4, 8}), 1);
  EXPECT_EQ(ThreefryPairDimension({3, 7, 0}), 2);
  EXPECT_EQ(ThreefryPairDimension({3, 7, 7, 5}), 1);
}

TEST(LiteralTest, ATupleHasTheShapesOfItsElements) {
  const Literal one(tensor::Array::FromValues<float>(ElementType::kF32, {2}, {1, 2}));
  const Literal tuple = Literal::Tuple({one, Literal::Tuple({})});
  EXPECT_EQ(tuple.shape().ToString(), "(f32[2], ())");
  EXPECT_EQ(tuple, Literal::Tuple({one, Literal::Tuple({})}));
  EXPECT_FALSE(tuple == one);
}

TEST(ReplicaGroupsTest, EveryFormExpandsToLists) {
  using Groups = std::vector<std::vector<int64_t>>;
  ReplicaGroups groups;
  EXPECT_EQ(groups.Expand(3), (Groups{{0, 1, 2}}));
  groups.groups = {{0, 2}, {1, 3}};
  EXPECT_EQ(groups.Expand(4), (Groups{{0, 2}, {1, 3}}));
  ReplicaGroups iota;
  iota.iota = {{2, 4}, {8}, {}};
  EXPECT_EQ(iota.Expand(8), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  iota.iota = {{2, 4}, {4, 2}, {1, 0}};
  EXPECT_EQ(iota.Expand(8), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  iota.iota = {{4, 2}, {2, 2, 2}, {0, 2, 1}};
  EXPECT_EQ(iota.Expand(8), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
}

TEST(ReplicaGroupsTest, MeshAxesExpandToLists) {
  using Groups = std::vector<std::vector<int64_t>>;
  ReplicaGroups groups;
  groups.mesh_axes.emplace();
  auto& axes = *groups.mesh_axes;
  axes.mesh = {{"a", 2}, {"b", 4}};
  axes.axes = {{"b"}};
  EXPECT_EQ(groups.Expand(8), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  axes.axes = {{"a"}};
  EXPECT_EQ(groups.Expand(8), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  axes.axes = {{"b"}, {"a"}};  // Axis b is major, axis a is minor.
  EXPECT_EQ(groups.Expand(8), (Groups{{0, 4, 1, 5, 2, 6, 3, 7}}));
  axes.axes = {{"b", 1, 2}};  // The major part of b.
  EXPECT_EQ(groups.Expand(8), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  axes.axes = {{"b", 2, 2}};  // The minor part of b.
  EXPECT_EQ(groups.Expand(8), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  axes.axes = {{"b", 2, 2}};
  axes.device_ids = {7, 6, 5, 4, 3, 2, 1, 0};
  EXPECT_EQ(groups.Expand(8), (Groups{{7, 6}, {5, 4}, {3, 2}, {1, 0}}));
  axes.device_ids.clear();
  for (const auto& bad : std::vector<std::vector<ReplicaGroups::MeshAxes::Axis>>{
           {{"c"}}, {{"b", 3, 2}}, {{"b", 1, 4}, {"b", 2, 2}}, {{"b", 1, 3}}}) {
    axes.axes = bad;
    EXPECT_THAT(groups.Expand(8), IsEmpty());
  }
}

TEST(InstructionTest, UsersOnceInOrderOfUse) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const square = p.builder.Binary(Opcode::kMultiply, x, x);
  Instruction* const sum = p.builder.Binary(Opcode::kAdd, square, x);
  EXPECT_THAT(x->users(), ElementsAre(square, sum));
  EXPECT_EQ(x->users().size(), 2u);
  sum->ReplaceOperand(1, square);
  EXPECT_THAT(x->users(), ElementsAre(square));
  EXPECT_THAT(square->users(), ElementsAre(sum));
  square->ReplaceOperand(0, x);  // No change.
  EXPECT_THAT(x->users(), ElementsAre(square));
  ExpectConsistentUsers(*p.entry);
}

TEST(InstructionTest, ReplaceAllUsesWith) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const y = p.builder.Parameter(1, kVector);
  Instruction* const sum = p.builder.Binary(Opcode::kAdd, x, x);
  Instruction* const both = p.builder.Binary(Opcode::kSubtract, x, y);
  p.entry->set_root(both);
  x->ReplaceAllUsesWith(y);
  EXPECT_THAT(sum->operands(), ElementsAre(y, y));
  EXPECT_THAT(both->operands(), ElementsAre(y, y));
  EXPECT_THAT(x->users(), IsEmpty());
  EXPECT_THAT(y->users(), ElementsAre(both, sum));
  both->ReplaceAllUsesWith(sum);
  EXPECT_EQ(p.entry->root(), sum);
  ExpectConsistentUsers(*p.entry);
}

TEST(InstructionTest, ReplacementMayUseTheReplacedInstruction) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const negated = p.builder.Unary(Opcode::kNegate, x);
  Instruction* const wrapped = p.builder.Unary(Opcode::kAbs, x);
  p.entry->set_root(negated);
  x->ReplaceAllUsesWith(wrapped);
  EXPECT_EQ(wrapped->operand(0), x);
  EXPECT_EQ(negated->operand(0), wrapped);
  p.entry->SortTopologically();
  ExpectOperandsFirst(*p.entry);
  ExpectConsistentUsers(*p.entry);
}

TEST(ComputationTest, RemoveDeadKeepsParametersAndSideEffects) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const unused = p.builder.Parameter(1, kVector);
  Instruction* const dead = p.builder.Unary(Opcode::kExponential, x);
  p.builder.Unary(Opcode::kNegate, dead);
  auto call = std::make_unique<Instruction>(Opcode::kCustomCall, kVector);
  call->mutable_attributes().custom_call_target = "print";
  call->mutable_attributes().has_side_effect = true;
  Instruction* const effect = p.entry->Add(std::move(call), {x});
  p.entry->set_root(p.builder.Unary(Opcode::kAbs, x));
  EXPECT_EQ(p.entry->RemoveDead(), 2);
  EXPECT_EQ(p.entry->instructions().size(), 4u);
  EXPECT_THAT(x->users(), ElementsAre(effect, p.entry->root()));
  EXPECT_THAT(p.entry->parameters(), ElementsAre(x, unused));
  EXPECT_EQ(p.entry->RemoveDead(), 0);
  ExpectConsistentUsers(*p.entry);
}

TEST(ComputationTest, RemoveDeadLooksIntoCalledComputations) {
  MainProgram p;
  Computation* const callee = p.module.Add(std::make_unique<Computation>("callee"));
  Builder inner(callee);
  Instruction* const y = inner.Parameter(0, kVector);
  callee->set_root(y);
  Computation* const printer = p.module.Add(std::make_unique<Computation>("printer"));
  Builder printing(printer);
  Instruction* const z = printing.Parameter(0, kVector);
  auto call = std::make_unique<Instruction>(Opcode::kCustomCall, kVector);
  call->mutable_attributes().has_side_effect = true;
  printer->set_root(printer->Add(std::move(call), {z}));
  Instruction* const x = p.builder.Parameter(0, kVector);
  p.builder.Call(callee, {x});
  Instruction* const kept = p.builder.Call(printer, {x});
  p.entry->set_root(x);
  EXPECT_EQ(p.entry->RemoveDead(), 1);
  EXPECT_THAT(x->users(), ElementsAre(kept));
  p.module.SortComputations();
  EXPECT_EQ(p.module.RemoveUnusedComputations(), 1);
  EXPECT_EQ(p.module.computations().back().get(), p.entry);
  EXPECT_EQ(p.module.computations().size(), 2u);
}

TEST(ComputationTest, RemoveDropsTheUse) {
  MainProgram p;
  Instruction* const a = p.builder.Parameter(0, kVector);
  Instruction* const sum = p.builder.Binary(Opcode::kAdd, a, a);
  Instruction* const dead = p.builder.Unary(Opcode::kNegate, sum);
  p.entry->set_root(sum);
  p.entry->Remove(dead);
  EXPECT_THAT(sum->users(), IsEmpty());
  EXPECT_EQ(p.entry->instructions().size(), 2u);
  ExpectConsistentUsers(*p.entry);
}

TEST(ComputationTest, RemoveAllRemovesUsersTogetherWithTheirOperands) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    MainProgram program;
    std::vector<Instruction*> values = {program.builder.Parameter(0, kVector, "p")};
    for (int i = 0; i < 20; ++i) {
      Instruction* const operand = values[random() % values.size()];
      values.push_back(program.builder.Binary(Opcode::kAdd, operand, values[random() % values.size()]));
    }
    program.entry->set_root(values[0]);
    // A set of instructions that includes all of their users.
    absl::flat_hash_set<const Instruction*> gone;
    for (size_t i = values.size(); i-- > 1;) {
      const auto users = values[i]->users();
      const bool is_used = !std::all_of(users.begin(), users.end(), [&](const auto* u) { return gone.contains(u); });
      if (!is_used && random() % 2 == 0) gone.insert(values[i]);
    }
    for (Instruction* const value : values) {
      if (!gone.contains(value)) value->AddControlPredecessor(values[1 + random() % 20]);
    }
    program.entry->RemoveAll(gone);
    EXPECT_EQ(program.entry->instructions().size(), values.size() - gone.size());
    ExpectConsistentUsers(*program.entry);
    ExpectOperandsFirst(*program.entry);
    for (const auto& instruction : program.entry->instructions()) {
      EXPECT_FALSE(gone.contains(instruction.get()));
      for (const Instruction* before : instruction->control_predecessors()) EXPECT_FALSE(gone.contains(before));
    }
  }
}

TEST(ComputationTest, SortKeepsAValidOrder) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  std::vector<Instruction*> made = {x};
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    made.push_back(p.builder.Binary(Opcode::kAdd, made[random() % made.size()], made[random() % made.size()]));
  }
  p.entry->set_root(made.back());
  std::vector<const Instruction*> before;
  for (const auto& instruction : p.entry->instructions()) before.push_back(instruction.get());
  p.entry->SortTopologically();
  std::vector<const Instruction*> after;
  for (const auto& instruction : p.entry->instructions()) after.push_back(instruction.get());
  EXPECT_EQ(before, after);
}

TEST(ComputationTest, SortAfterRandomEdits) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    MainProgram p;
    std::vector<Instruction*> made = {p.builder.Parameter(0, kVector)};
    for (int i = 0; i < 30; ++i) {
      made.push_back(p.builder.Binary(Opcode::kAdd, made[random() % made.size()], made[random() % made.size()]));
    }
    // Appends an instruction and makes it an operand of an earlier one.
    for (int i = 0; i < 5; ++i) {
      Instruction* const target = made[1 + random() % (made.size() - 1)];
      Instruction* const inserted = p.builder.Unary(Opcode::kNegate, target->operand(0));
      target->ReplaceOperand(0, inserted);
    }
    p.entry->set_root(made.back());
    p.entry->SortTopologically();
    ExpectOperandsFirst(*p.entry);
    ExpectConsistentUsers(*p.entry);
    p.entry->RemoveDead();
    ExpectOperandsFirst(*p.entry);
    ExpectConsistentUsers(*p.entry);
  }
}

TEST(ComputationTest, SortFollowsControlPredecessors) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const first = p.builder.Unary(Opcode::kNegate, x);
  Instruction* const second = p.builder.Unary(Opcode::kAbs, x);
  first->AddControlPredecessor(second);
  p.entry->set_root(first);
  p.entry->SortTopologically();
  EXPECT_EQ(p.entry->instructions()[1].get(), second);
  EXPECT_EQ(p.entry->RemoveDead(), 0);
}

TEST(ComputationDeathTest, SortRefusesACycle) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const a = p.builder.Unary(Opcode::kNegate, x);
  Instruction* const b = p.builder.Unary(Opcode::kNegate, a);
  a->ReplaceOperand(0, b);
  EXPECT_DEATH(p.entry->SortTopologically(), "cycle");
}

TEST(ComputationTest, ParametersInAnyOrder) {
  MainProgram p;
  constexpr int64_t kCount = 700;
  for (int64_t n = kCount; n-- > 0;) p.builder.Parameter(n, kVector);
  ASSERT_EQ(p.entry->parameters().size(), static_cast<size_t>(kCount));
  for (int64_t n = 0; n < kCount; ++n) EXPECT_EQ(p.entry->parameter(n)->number(), n);
}

TEST(ComputationTest, ALargeParameterNumberAllocatesLittleMemory) {
  MainProgram p;
  for (const int64_t number : {int64_t{1} << 62, int64_t{-1}, int64_t{999999999}}) {
    p.builder.Parameter(number, kVector);
  }
  EXPECT_LT(p.entry->parameters().size(), 100u);
}

TEST(ModuleTest, UniqueNames) {
  Module module("m");
  EXPECT_EQ(module.UniqueName("add"), "add");
  EXPECT_EQ(module.UniqueName("add"), "add.1");
  EXPECT_EQ(module.UniqueName("add"), "add.2");
  EXPECT_EQ(module.UniqueName("add.2"), "add.3");
  EXPECT_EQ(module.UniqueName("mul.7"), "mul.7");
  EXPECT_EQ(module.UniqueName("mul.7"), "mul.1");
  EXPECT_EQ(module.UniqueName("mul"), "mul");
  EXPECT_EQ(module.UniqueName("7"), "7");
  EXPECT_EQ(module.UniqueName("7"), "7.1");
  EXPECT_EQ(module.UniqueName(".7"), ".7");
  EXPECT_EQ(module.UniqueName(".7"), ".7.1");
}

TEST(ModuleTest, NamesAreUniqueAfterAdd) {
  Module module("m");
  for (int i = 0; i < 3; ++i) {
    auto computation = std::make_unique<Computation>("f");
    Builder builder(computation.get());
    builder.Parameter(0, kVector, "x");
    builder.Parameter(1, kVector, "x");
    module.Add(std::move(computation));
  }
  std::set<std::string> computations, instructions;
  for (const auto& computation : module.computations()) {
    EXPECT_TRUE(computations.insert(computation->name()).second);
    for (const auto& instruction : computation->instructions()) {
      EXPECT_TRUE(instructions.insert(instruction->name()).second) << instruction->name();
    }
  }
}

TEST(ModuleTest, CloneIsDeepAndEqual) {
  MainProgram p;
  p.module.num_partitions = 4;
  p.module.input_output_alias = {{{}, 0, {}, true}};
  p.module.frontend_attributes["k"] = "v";
  Computation* const add = ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32);
  Instruction* const x = p.builder.Parameter(0, kVector);
  Instruction* const zero = p.builder.Scalar(ElementType::kF32, 0);
  Instruction* const sum = p.builder.Reduce(x, zero, {0}, add);
  sum->mutable_metadata().op_name = "sum";
  sum->set_sharding(std::make_unique<OpSharding>());
  p.entry->set_root(sum);
  const std::unique_ptr<Module> clone = p.module.Clone();
  ASSERT_EQ(clone->computations().size(), 2u);
  const Computation& entry = *clone->entry();
  EXPECT_NE(&entry, p.entry);
  EXPECT_EQ(entry.parent(), clone.get());
  EXPECT_EQ(entry.name(), "main");
  EXPECT_EQ(clone->num_partitions, 4);
  EXPECT_EQ(clone->input_output_alias, p.module.input_output_alias);
  EXPECT_EQ(clone->frontend_attributes, p.module.frontend_attributes);
  ASSERT_EQ(entry.instructions().size(), p.entry->instructions().size());
  for (size_t i = 0; i < entry.instructions().size(); ++i) {
    EXPECT_EQ(entry.instructions()[i]->name(), p.entry->instructions()[i]->name());
    EXPECT_NE(entry.instructions()[i], p.entry->instructions()[i]);
  }
  ASSERT_EQ(entry.root()->called().size(), 1u);
  EXPECT_EQ(entry.root()->called()[0]->parent(), clone.get());
  EXPECT_EQ(entry.root()->metadata().op_name, "sum");
  ASSERT_NE(entry.root()->sharding(), nullptr);
  EXPECT_NE(entry.root()->sharding(), sum->sharding());
  EXPECT_EQ(entry.root()->operand(0), entry.parameter(0));
  ExpectConsistentUsers(entry);
  EXPECT_EQ(clone->UniqueName("main.1"), p.module.UniqueName("main.1"));
}

TEST(ModuleTest, CloneComputationCopiesItsCallees) {
  MainProgram p;
  Computation* const add = ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32);
  Instruction* const x = p.builder.Parameter(0, kVector);
  p.entry->set_root(p.builder.Reduce(x, p.builder.Scalar(ElementType::kF32, 0), {0}, add));
  Module other("other");
  Computation* const copy = other.CloneComputation(*p.entry, "copy");
  EXPECT_EQ(copy->name(), "copy");
  ASSERT_EQ(other.computations().size(), 2u);
  EXPECT_EQ(copy->root()->called()[0], other.computations()[0].get());
  EXPECT_NE(copy->root()->called()[0], add);
  // A copy within the same module gets new names.
  Computation* const twin = p.module.CloneComputation(*p.entry, "main");
  EXPECT_EQ(twin->name(), "main.1");
  EXPECT_NE(twin->root()->name(), p.entry->root()->name());
}

TEST(ModuleTest, WithoutALineTheSourceIsAnOperation) {
  MainProgram p;
  Instruction* const x = p.builder.Parameter(0, kVector);
  EXPECT_EQ(p.module.SourceOf(*x), "");
  x->mutable_metadata().op_name = "jit(step)/add";
  EXPECT_EQ(p.module.SourceOf(*x), "jit(step)/add");
  x->mutable_metadata().source_file = "models/model.py";
  x->mutable_metadata().source_line = 12;
  EXPECT_EQ(p.module.SourceOf(*x), "model.py:12");
  p.module.stack_frames.file_names = {"/a/train.py", "/a/model.py"};
  p.module.stack_frames.function_names = {"main", "Mlp.step"};
  p.module.stack_frames.locations = {{1, 1, 3, 3, 1, 2}, {2, 2, 57, 57, 4, 9}};
  p.module.stack_frames.frames = {{1, 0}, {2, 1}};
  x->mutable_metadata().stack_frame_id = 2;
  EXPECT_EQ(p.module.SourceOf(*x), "model.py:57 (Mlp.step)");
  x->mutable_metadata().stack_frame_id = 99;
  EXPECT_EQ(p.module.SourceOf(*x), "model.py:12");
}

}  // namespace
}  // namespace xlad::hlo
