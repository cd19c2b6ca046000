// Dots and ragged dots of random shapes, orders of dimensions and element types. Batch runs each as one tile and as
// several, on several numbers of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/case_count.h"
#include "hlo/text/text.h"
#include "tests/compiled/test_harness.h"

namespace xlad::compiler {
namespace {

using tensor::Array;
using tensor::Dims;

// The element types of the operands and of the result.
struct Types {
  const char *lhs, *rhs, *result;
  double tolerance;
};
constexpr Types kTypes[] = {
    {"f64", "f64", "f64", 1e-9},         {"c64", "c64", "c64", 1e-3},         {"c128", "c128", "c128", 1e-9},
    {"s8", "s8", "s32", 0},              {"u8", "u8", "u32", 0},              {"s8", "s8", "s8", 0},
    {"u8", "u8", "u8", 0},               {"s16", "s16", "s16", 0},            {"u16", "u16", "u16", 0},
    {"s16", "s16", "s32", 0},            {"u16", "u16", "u32", 0},            {"s32", "s32", "s32", 0},
    {"u32", "u32", "u32", 0},            {"s64", "s64", "s64", 0},            {"u64", "u64", "u64", 0},
    {"s4", "s4", "s32", 0},              {"u4", "u4", "s16", 0},              {"s32", "s32", "s64", 0},
    {"f8e4m3fn", "f8e5m2", "f32", 1e-3}, {"f8e5m2", "f8e5m2", "bf16", 2e-2},  {"bf16", "f32", "f32", 1e-3},
    {"f32", "f32", "f64", 1e-9},         {"f16", "f16", "f16", 2e-2},         {"f32", "f32", "f32", 1e-3},
    {"pred", "pred", "pred", 0},
};

// The entry for these types: "s8 s8 s32", for example.
const Types& TypesNamed(const std::string& names) {
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const Types& types) {
    return names == absl::StrCat(types.lhs, " ", types.rhs, " ", types.result);
  });
  XLAD_CHECK(found != std::end(kTypes)) << names;
  return *found;
}

// A dimension of an operand: its size, and its number among those of its kind.
enum class Kind { kBatch, kLine, kDepth, kGroup };
struct Dimension {
  Kind kind;
  int64_t number, size;
};

class Shapes {
 public:
  explicit Shapes(uint64_t seed) : random_(SeededRandom(seed)) {}

  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_->Below(static_cast<uint64_t>(limit))); }
  int64_t PickOf(const Dims& sizes) { return sizes[Below(std::ssize(sizes))]; }
  // One or two dimensions with about `size` elements.
  void AddOneOrTwo(Kind kind, int64_t size, std::vector<Dimension>* dimensions) {
    const int64_t first = size > 3 && Below(3) == 0 ? 2 + Below(2) : 0;
    if (first != 0) dimensions->push_back({kind, 0, first});
    dimensions->push_back({kind, first != 0 ? 1 : 0, first != 0 ? (size + first - 1) / first : size});
  }
  void Shuffle(std::vector<Dimension>* dimensions) {
    for (int64_t i = std::ssize(*dimensions); i > 1; --i) std::swap((*dimensions)[i - 1], (*dimensions)[Below(i)]);
  }
  Random* random() { return random_.get(); }

 private:
  std::unique_ptr<Random> random_;
};

std::string ShapeText(const std::string& type, const std::vector<Dimension>& dimensions) {
  Dims sizes;
  for (const Dimension& d : dimensions) sizes.push_back(d.size);
  return absl::StrCat(type, "[", absl::StrJoin(sizes, ","), "]");
}

// The positions of the dimensions of a kind, in the order of their numbers.
std::string PositionsOf(Kind kind, const std::vector<Dimension>& dimensions) {
  Dims positions;
  for (int64_t number = 0; number < 2; ++number) {
    for (size_t d = 0; d < dimensions.size(); ++d) {
      if (dimensions[d].kind == kind && dimensions[d].number == number) positions.push_back(static_cast<int64_t>(d));
    }
  }
  return absl::StrJoin(positions, ",");
}

void AppendResult(const std::vector<Dimension>& from, Kind kind, std::vector<Dimension>* result) {
  for (int64_t number = 0; number < 2 && kind == Kind::kBatch; ++number) {
    for (const Dimension& d : from) {
      if (d.kind == kind && d.number == number) result->push_back(d);
    }
  }
  for (const Dimension& d : from) {
    if (kind != Kind::kBatch && d.kind == kind) result->push_back(d);
  }
}

// Random values. Integers have any bits. Small floats without a type in C++ are between 1/16 and 2 in absolute value.
Array ValuesOf(Random& random, const tensor::Shape& shape) {
  Array array = RandomArray(random, shape, /*specials=*/tensor::IsInteger(shape.type));
  if (tensor::BitWidth(shape.type) != 8 || tensor::IsInteger(shape.type) || shape.type == tensor::ElementType::kPred) {
    return array;
  }
  for (std::byte& byte : array.bytes()) byte = (byte & std::byte{0x8f}) | std::byte{0x30};
  return array;
}

void AddRandom(const std::string& text, double tolerance, Random& random, Batch* batch) {
  const auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  std::vector<Array> inputs;
  for (const hlo::Instruction* parameter : (*module)->entry()->parameters()) {
    inputs.push_back(ValuesOf(random, parameter->shape().array()));
  }
  batch->AddOn(text, std::move(inputs), tolerance == 0 ? hlo::Tolerance{} : Close(tolerance));
}

// A dot of random dimensions, with about sizes[0] rows, sizes[1] columns and sums of sizes[2] terms, sometimes in a
// batch. If `computed` is true, the left operand is the result of another instruction.
std::string RandomDot(Shapes& shapes, const Types& types, const Dims& sizes, bool computed) {
  std::vector<Dimension> lhs, rhs, result;
  if (shapes.Below(3) == 0) shapes.AddOneOrTwo(Kind::kBatch, 1 + shapes.Below(4), &lhs);
  shapes.AddOneOrTwo(Kind::kDepth, sizes[2], &lhs);
  rhs = lhs;
  shapes.AddOneOrTwo(Kind::kLine, sizes[0], &lhs);
  shapes.AddOneOrTwo(Kind::kLine, sizes[1], &rhs);
  shapes.Shuffle(&lhs);
  shapes.Shuffle(&rhs);
  AppendResult(lhs, Kind::kBatch, &result);
  AppendResult(lhs, Kind::kLine, &result);
  AppendResult(rhs, Kind::kLine, &result);
  const std::string left = ShapeText(types.lhs, lhs);
  return absl::StrCat("HloModule m\nENTRY e {\n x = ", left, " parameter(0)\n y = ", ShapeText(types.rhs, rhs),
                      " parameter(1)\n", computed ? absl::StrCat(" n = ", left, " negate(x)\n") : "", " ROOT r = ",
                      ShapeText(types.result, result), " dot(", computed ? "n" : "x", ", y), lhs_batch_dims={",
                      PositionsOf(Kind::kBatch, lhs), "}, rhs_batch_dims={", PositionsOf(Kind::kBatch, rhs),
                      "}, lhs_contracting_dims={", PositionsOf(Kind::kDepth, lhs), "}, rhs_contracting_dims={",
                      PositionsOf(Kind::kDepth, rhs), "}\n}\n");
}

TEST(BlockedDot, RandomShapesOfAllTypes) {
  Shapes shapes(3);
  Batch batch;
  const Dims lines = {1, 4, 8, 9, 13, 33, 70, 131}, depths = {0, 1, 3, 8, 17, 64, 97, 131};
  for (const Types& types : kTypes) {
    for (uint64_t i = 0; i < CaseCount(3, 5); ++i) {
      const Dims sizes = {shapes.PickOf(lines), shapes.PickOf(lines), shapes.PickOf(depths)};
      const bool computed = shapes.Below(4) == 0 && types.lhs[0] != 'p' && types.lhs[0] != 'u';
      AddRandom(RandomDot(shapes, types, sizes, computed), types.tolerance, *shapes.random(), &batch);
    }
  }
  batch.Run();
}

// With more rows than columns, the lines of rhs are the rows of blocks.
TEST(BlockedDot, FewColumns) {
  Shapes shapes(4);
  Batch batch;
  for (const char* const names : {"f64 f64 f64", "c64 c64 c64", "s8 s8 s32", "s32 s32 s32", "f8e5m2 f8e5m2 bf16"}) {
    const Types& types = TypesNamed(names);
    for (const int64_t columns : {4, 8, 11}) {
      AddRandom(RandomDot(shapes, types, {150, columns, 70}, false), types.tolerance, *shapes.random(), &batch);
    }
  }
  batch.Run();
}

// One dimension has 1 to 3 elements, and the other one has many.
TEST(BlockedDot, ThinProducts) {
  Shapes shapes(6);
  Batch batch;
  for (const char* const names : {"f64 f64 f64", "f32 f32 f32", "c64 c64 c64", "s8 s8 s32", "s32 s32 s32",
                                  "f8e5m2 f8e5m2 bf16", "pred pred pred"}) {
    const Types& types = TypesNamed(names);
    for (const int64_t lines : {1, 2, 3}) {
      AddRandom(RandomDot(shapes, types, {150, lines, 70}, false), types.tolerance, *shapes.random(), &batch);
      AddRandom(RandomDot(shapes, types, {lines, 150, 70}, false), types.tolerance, *shapes.random(), &batch);
    }
  }
  batch.Run();
}

// The interpreter ignores `atom` and `stage`, so only compiled code shows whether they keep the order of the sums.
TEST(BlockedDot, CandidatesHaveTheSameBits) {
  Shapes shapes(8);
  Batch batch;
  for (const char* const names : {"f64 f64 f64", "f32 f32 f32", "c64 c64 c64", "s8 s8 s32", "f16 f16 f16",
                                  "bf16 f32 f32", "f8e5m2 f8e5m2 bf16", "pred pred pred"}) {
    const Types& types = TypesNamed(names);
    const Dims sizes = {9 + shapes.Below(100), 9 + shapes.Below(100), 30 + shapes.Below(300)};
    AddRandom(RandomDot(shapes, types, sizes, false), types.tolerance, *shapes.random(), &batch);
    batch.WithCandidates();
  }
  batch.Run();
}

// In f64, no product or sum of the special values of RandomArray overflows. A fused multiply-add does not round its
// product, so its result could differ from the evaluator's if a product overflowed.
TEST(BlockedDot, SpecialValues) {
  Batch batch;
  for (const int seed : {1, 2, 3}) {
    batch.AddOrdinaryAndSpecial(
        absl::StrCat("HloModule m", seed, "\nENTRY e {\n x = f64[9,20] parameter(0)\n y = f64[20,12] parameter(1)\n",
                     " ROOT r = f64[9,12] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"),
        Close(1e-9));
  }
  batch.Run();
}

// The sizes of groups: random, with empty groups, and with a total that is less or more than the ragged dimension.
Array GroupSizes(Shapes& shapes, int64_t groups, int64_t extent) {
  Array array({tensor::ElementType::kS32, {groups}});
  for (int32_t& size : array.values<int32_t>()) {
    size = shapes.Below(4) == 0 ? 0 : static_cast<int32_t>(shapes.Below(2 * extent / groups + 2));
  }
  return array;
}

// A ragged dot. The ragged dimension of lhs is a line or the depth.
void AddRaggedDot(Shapes& shapes, const Types& types, bool by_depth, Batch* batch) {
  const Dims extents = {1, 7, 40, 131}, lines = {1, 5, 16, 33};
  const int64_t extent = shapes.PickOf(extents), groups = 1 + shapes.Below(4);
  std::vector<Dimension> lhs, rhs, result;
  if (shapes.Below(3) == 0) lhs.push_back({Kind::kBatch, 0, 1 + shapes.Below(3)});
  lhs.push_back({Kind::kDepth, 0, by_depth ? extent : shapes.PickOf(lines)});
  if (by_depth && shapes.Below(4) == 0) lhs.push_back({Kind::kDepth, 1, 2});
  rhs = lhs;
  lhs.push_back({Kind::kLine, 0, by_depth ? shapes.PickOf(lines) : extent});
  if (shapes.Below(3) == 0) lhs.push_back({Kind::kLine, 1, 1 + shapes.Below(3)});
  shapes.AddOneOrTwo(Kind::kLine, shapes.PickOf(lines), &rhs);
  if (!by_depth) rhs.push_back({Kind::kGroup, 0, groups});
  shapes.Shuffle(&lhs);
  shapes.Shuffle(&rhs);
  if (by_depth) result.push_back({Kind::kGroup, 0, groups});
  AppendResult(lhs, Kind::kBatch, &result);
  AppendResult(lhs, Kind::kLine, &result);
  AppendResult(rhs, Kind::kLine, &result);
  const std::string ragged = PositionsOf(by_depth ? Kind::kDepth : Kind::kLine, lhs);
  const std::string text = absl::StrCat(
      "HloModule m\nENTRY e {\n x = ", ShapeText(types.lhs, lhs), " parameter(0)\n y = ", ShapeText(types.rhs, rhs),
      " parameter(1)\n s = s32[", groups, "] parameter(2)\n ROOT r = ", ShapeText(types.result, result),
      " ragged-dot(x, y, s), lhs_batch_dims={", PositionsOf(Kind::kBatch, lhs), "}, rhs_batch_dims={",
      PositionsOf(Kind::kBatch, rhs), "}, lhs_contracting_dims={", PositionsOf(Kind::kDepth, lhs),
      "}, rhs_contracting_dims={", PositionsOf(Kind::kDepth, rhs), "}, lhs_ragged_dims={",
      ragged.substr(0, ragged.find(',')), "}, rhs_group_dims={", PositionsOf(Kind::kGroup, rhs), "}\n}\n");
  const auto module = hlo::ParseText(text);
  ASSERT_TRUE(module.ok()) << module.status() << "\n" << text;
  std::vector<Array> inputs;
  for (int i = 0; i < 2; ++i) {
    inputs.push_back(ValuesOf(*shapes.random(), (*module)->entry()->parameter(i)->shape().array()));
  }
  inputs.push_back(GroupSizes(shapes, groups, extent));
  batch->AddOn(text, std::move(inputs), types.tolerance == 0 ? hlo::Tolerance{} : Close(types.tolerance));
}

TEST(BlockedDot, RaggedRowsAndDepth) {
  Shapes shapes(5);
  Batch batch;
  for (const char* const names : {"f64 f64 f64", "c64 c64 c64", "s8 s8 s32", "s32 s32 s32", "f8e5m2 f8e5m2 bf16",
                                  "f32 f32 f32"}) {
    for (uint64_t i = 0; i < CaseCount(8, 12); ++i) AddRaggedDot(shapes, TypesNamed(names), i % 2 == 1, &batch);
  }
  batch.Run();
}

}  // namespace
}  // namespace xlad::compiler
