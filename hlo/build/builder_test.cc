// The builder infers shapes, copies metadata from the template, and makes valid instructions.
#include "hlo/build/builder.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hlo/eval/evaluate.h"
#include "hlo/verify/verifier.h"

namespace xlad::hlo {
namespace {

using ::testing::ElementsAre;

const Shape kMatrix(ElementType::kF32, {4, 6});
const Shape kScalar(ElementType::kF32, {});

struct Program {
  Module module{"m"};
  Computation* entry = module.Add(std::make_unique<Computation>("main"));
  Builder builder{entry};
  Program() {
    module.set_entry(entry);
    module.num_partitions = 8;
  }
  absl::Status VerifyWithRoot(Instruction* root) {
    entry->set_root(root);
    module.SortComputations();
    return Verify(module);
  }
};

TEST(BuilderTest, EveryMethodMakesAValidInstruction) {
  Program p;
  Builder& b = p.builder;
  Computation* const add = ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32);
  Instruction* const x = b.Parameter(0, kMatrix, "x");
  Instruction* const i = b.Parameter(1, Shape(ElementType::kS32, {}), "i");
  Instruction* const zero = b.Scalar(ElementType::kF32, 0);
  ReplicaGroups pairs;
  pairs.iota = {{4, 2}, {8}, {}};
  const std::vector<Instruction*> made = {
      b.Zero(kMatrix),
      b.Zero(kScalar),
      b.Full(kMatrix, zero),
      b.Iota(kMatrix, 1),
      b.Unary(Opcode::kTanh, x),
      b.Binary(Opcode::kAdd, x, x),
      b.Select(b.Compare(Comparison::kLt, x, x), x, x),
      b.Convert(ElementType::kBF16, x),
      b.Broadcast(x, {4, 2, 6}, {0, 2}),
      b.Reshape(x, {24}),
      b.Transpose(x, {1, 0}),
      b.Slice(x, {0, 1}, {4, 6}, {1, 2}),
      b.Slice(x, {0, 1}, {4, 6}),
      b.DynamicSlice(x, {i, i}, {1, 6}),
      b.DynamicUpdateSlice(x, b.Slice(x, {0, 0}, {1, 1}), {i, i}),
      b.Pad(x, zero, {{1, 0, 0}, {0, -1, 1}}),
      b.Concatenate({x, x, x}, 0),
      b.Dot(x, x, {{}, {}, {1}, {1}}, ElementType::kF64),
      b.Reduce(x, zero, {0}, add),
      b.PartitionId(),
      b.Call(add, {zero, zero}),
      b.AllReduce(x, add, {}, 1),
      b.AllGather(x, 1, pairs, 2),
      b.ReduceScatter(x, 0, add, pairs, 3),
      b.AllToAll(x, 0, 1, pairs, 4),
      b.AllToAll(x, 1, 0, pairs, 5),
      b.AllToAll(x, 1, 1, pairs, 6),
      b.CollectivePermute(x, {{0, 1}, {1, 0}}, 7),
  };
  Instruction* const tuple = b.Tuple(made);
  EXPECT_TRUE(p.VerifyWithRoot(b.GetTupleElement(tuple, 3)).ok()) << Verify(p.module);
  const std::string all = tuple->shape().ToString(false);
  EXPECT_THAT(all, ::testing::HasSubstr("f32[4,3], f32[4,5], f32[1,6], f32[4,6], f32[5,10], f32[12,6], f64[4,4]"));
  EXPECT_THAT(all, ::testing::HasSubstr("f32[4,12], f32[2,6], f32[2,12], f32[8,3], f32[4,6]"));
}

TEST(BuilderTest, ConvertToKeepsAValueOfTheType) {
  Program p;
  Instruction* const x = p.builder.Parameter(0, kMatrix, "x");
  EXPECT_EQ(p.builder.ConvertTo(ElementType::kF32, x), x);
  EXPECT_EQ(p.builder.ConvertTo(ElementType::kS8, x)->opcode(), Opcode::kConvert);
}

TEST(BuilderTest, DimensionsAreSplitAndMoved) {
  Program p;
  Instruction* const x = p.builder.Parameter(0, Shape(ElementType::kF32, {2, 3, 8}), "x");
  Instruction* const split = p.builder.SplitDimension(x, 2, 4);
  EXPECT_THAT(split->shape().dims(), ElementsAre(2, 3, 4, 2));
  Instruction* const front = p.builder.MoveToFront(split, 2);
  EXPECT_THAT(front->shape().dims(), ElementsAre(4, 2, 3, 2));
  EXPECT_THAT(front->dimensions(), ElementsAre(2, 0, 1, 3));
  EXPECT_THAT(p.builder.MoveFromFront(front, 2)->dimensions(), ElementsAre(1, 2, 0, 3));
  Instruction* const element = p.builder.Element(front, 3);
  EXPECT_THAT(element->shape().dims(), ElementsAre(2, 3, 2));
  EXPECT_EQ(element->operand(0)->attributes().slice[0], (SliceDimension{3, 4, 1}));
  EXPECT_TRUE(p.VerifyWithRoot(element).ok());
}

// Without groups, a gather is over all devices of all replicas, and an all-to-all over the partitions of a replica.
TEST(BuilderTest, CollectivesWithoutGroupsOnReplicas) {
  Program p;
  p.module.replica_count = 2;
  p.module.num_partitions = 3;
  Computation* const add = ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32);
  Instruction* const x = p.builder.Parameter(0, Shape(ElementType::kF32, {6, 6}), "x");
  Instruction* const tuple =
      p.builder.Tuple({p.builder.AllGather(x, 0, {}, 1), p.builder.ReduceScatter(x, 1, add, {}, 2),
                       p.builder.AllToAll(x, 0, 1, {}, 3)});
  EXPECT_TRUE(p.VerifyWithRoot(tuple).ok()) << Verify(p.module);
  EXPECT_EQ(tuple->shape().ToString(false), "(f32[36,6], f32[6,1], f32[2,18])");
}

TEST(BuilderTest, ScalarsOfEveryType) {
  Program p;
  const auto bytes = [&](ElementType type, double value) {
    const auto span = p.builder.Scalar(type, value)->literal()->array.bytes();
    std::vector<int> result;
    for (const std::byte b : span) result.push_back(static_cast<int>(b));
    return result;
  };
  EXPECT_THAT(bytes(ElementType::kPred, 1), ElementsAre(1));
  EXPECT_THAT(bytes(ElementType::kS8, -2), ElementsAre(0xFE));
  EXPECT_THAT(bytes(ElementType::kU16, 258), ElementsAre(2, 1));
  EXPECT_THAT(bytes(ElementType::kS64, -1), ::testing::Each(0xFF));
  EXPECT_THAT(bytes(ElementType::kU64, 0x1p63), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0x80));
  EXPECT_THAT(bytes(ElementType::kF16, 1), ElementsAre(0, 0x3C));
  EXPECT_THAT(bytes(ElementType::kBF16, -1), ElementsAre(0x80, 0xBF));
  EXPECT_THAT(bytes(ElementType::kF8E4M3FN, 1), ElementsAre(0x38));
  EXPECT_THAT(bytes(ElementType::kF32, 1), ElementsAre(0, 0, 0x80, 0x3F));
  EXPECT_THAT(bytes(ElementType::kF64, -2), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0xC0));
  EXPECT_THAT(bytes(ElementType::kC64, 1), ElementsAre(0, 0, 0x80, 0x3F, 0, 0, 0, 0));
  EXPECT_EQ(bytes(ElementType::kC128, 0).size(), 16u);
}

// A double has 53 bits.
TEST(BuilderTest, IntegersAreExact) {
  Program p;
  for (const int64_t value : {(int64_t{1} << 53) + 1, std::numeric_limits<int64_t>::max(),
                              std::numeric_limits<int64_t>::min() + 1, int64_t{-1}}) {
    EXPECT_EQ(p.builder.Scalar(ElementType::kS64, value)->literal()->array.values<int64_t>()[0], value);
    const uint64_t bits = static_cast<uint64_t>(value);
    EXPECT_EQ(p.builder.Scalar(ElementType::kU64, bits)->literal()->array.values<uint64_t>()[0], bits);
    EXPECT_EQ(p.builder.Scalar(ElementType::kF64, value)->literal()->array.values<double>()[0],
              static_cast<double>(value));
  }
  EXPECT_EQ(p.builder.Scalar(ElementType::kF64, uint64_t{1} << 63)->literal()->array.values<double>()[0], 0x1p63);
}

TEST(BuilderTest, TheTemplateSetsNameAndMetadata) {
  Program p;
  Instruction* const x = p.builder.Parameter(0, kMatrix, "x");
  Instruction* const like = p.builder.Unary(Opcode::kTanh, x);
  like->set_name("activation");
  like->mutable_metadata().op_name = "jit(f)/tanh";
  p.builder.set_template(like);
  Instruction* const made = p.builder.Unary(Opcode::kNegate, x);
  EXPECT_EQ(made->name().substr(0, 10), "activation");
  EXPECT_EQ(made->metadata().op_name, "jit(f)/tanh");
  p.builder.set_template(nullptr);
  EXPECT_EQ(p.builder.Unary(Opcode::kNegate, x)->metadata().op_name, "");
}

TEST(BuilderDeathTest, RefusesInvalidSizesAndPermutations) {
  Program p;
  Instruction* const x = p.builder.Parameter(0, kMatrix, "x");
  EXPECT_DEATH(p.builder.Reshape(x, {25}), "reshape-elements");
  EXPECT_DEATH(p.builder.Transpose(x, {0, 0}), "transpose-permutation");
}

TEST(ScalarReducerTest, IsMadeOnceAndRecognized) {
  Program p;
  Computation* const add = ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32);
  EXPECT_EQ(ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF32), add);
  EXPECT_NE(ScalarReducer(&p.module, Opcode::kAdd, ElementType::kF64), add);
  EXPECT_NE(ScalarReducer(&p.module, Opcode::kMaximum, ElementType::kF32), add);
  EXPECT_EQ(ReducerOpcode(*add), Opcode::kAdd);
  // Swapping the operands does not change an addition, but it changes a subtraction.
  for (const auto& [opcode, expected] : std::vector<std::pair<Opcode, std::optional<Opcode>>>{
           {Opcode::kAdd, Opcode::kAdd}, {Opcode::kSubtract, std::nullopt}}) {
    Computation* const swapped = p.module.Add(std::make_unique<Computation>("swapped"));
    Builder b(swapped);
    Instruction* const x = b.Parameter(0, kScalar);
    Instruction* const y = b.Parameter(1, kScalar);
    swapped->set_root(b.Binary(opcode, y, x));
    EXPECT_EQ(ReducerOpcode(*swapped), expected);
  }
  Computation* const compare = p.module.Add(std::make_unique<Computation>("compare"));
  Builder b(compare);
  Instruction* const x = b.Parameter(0, kScalar);
  Instruction* const y = b.Parameter(1, kScalar);
  compare->set_root(b.Compare(Comparison::kLt, x, y));
  EXPECT_EQ(ReducerOpcode(*compare), std::nullopt);
  Computation* const twice = p.module.Add(std::make_unique<Computation>("twice"));
  Builder c(twice);
  Instruction* const z = c.Parameter(0, kScalar);
  c.Parameter(1, kScalar);
  twice->set_root(c.Binary(Opcode::kAdd, z, z));
  EXPECT_EQ(ReducerOpcode(*twice), std::nullopt);
}

// An all-to-all over two different dimensions becomes several instructions. Their results must match the definition.
TEST(BuilderTest, AllToAllAcrossDimensions) {
  for (const auto& [split, concat] : {std::pair{0, 1}, {1, 0}, {0, 2}, {2, 1}, {1, 1}}) {
    Program p;
    p.module.num_partitions = 2;
    const Dims dims = {2, 4, 6};
    const Shape shape(ElementType::kS32, dims);
    Instruction* const x = p.builder.Parameter(0, shape, "x");
    ASSERT_TRUE(p.VerifyWithRoot(p.builder.AllToAll(x, split, concat, {}, 1)).ok());
    std::vector<std::vector<Literal>> inputs;
    for (int device = 0; device < 2; ++device) {
      std::vector<int32_t> values(48);
      for (int k = 0; k < 48; ++k) values[k] = 100 * device + k;
      inputs.push_back({Literal(tensor::Array::FromValues(ElementType::kS32, dims, values))});
    }
    const auto results = Evaluate({&p.module, &p.module}, inputs);
    ASSERT_TRUE(results.ok()) << results.status();
    const Dims& out = p.entry->root()->shape().dims();
    for (int64_t device = 0; device < 2; ++device) {
      const auto values = (*results)[device].array.values<int32_t>();
      Dims index(3, 0);
      do {
        // The sender, and the position in its operand.
        const int64_t part = out[concat] / 2;
        const int64_t sender = index[concat] / part;
        Dims from = index;
        from[concat] %= part;
        from[split] += device * (dims[split] / 2);
        EXPECT_EQ(values[tensor::LinearIndex(out, index)],
                  100 * sender + tensor::LinearIndex(dims, from));
      } while (tensor::NextIndex(out, absl::MakeSpan(index)));
    }
  }
}

}  // namespace
}  // namespace xlad::hlo
