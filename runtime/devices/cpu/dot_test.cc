// Compares dots of all kinds with a direct sum.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "base/random.h"
#include "base/testing/case_count.h"
#include "runtime/devices/cpu/dot_shape.h"
#include "runtime/devices/cpu/library_op.h"
#include "runtime/devices/cpu/small_dot.h"
#include "tensor/array.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

using tensor::Array;
using tensor::Dims;
using tensor::ElementType;

void SetShape(ElementType type, const Dims& dims, ArrayShape* shape) {
  shape->set_element_type(static_cast<int>(type));
  shape->mutable_dims()->Add(dims.begin(), dims.end());
}

struct Numbers {
  Dims lhs, rhs, lhs_batch, rhs_batch, lhs_contracting, rhs_contracting;
};

DotOp MakeOp(const Numbers& numbers, ElementType lhs, ElementType rhs, ElementType result) {
  DotOp op;
  SetShape(lhs, numbers.lhs, op.mutable_lhs());
  SetShape(rhs, numbers.rhs, op.mutable_rhs());
  Dims out;
  const auto has = [](const Dims& dims, size_t d) {
    return std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
  };
  for (const int64_t d : numbers.lhs_batch) out.push_back(numbers.lhs[d]);
  for (size_t d = 0; d < numbers.lhs.size(); ++d) {
    if (!has(numbers.lhs_batch, d) && !has(numbers.lhs_contracting, d)) out.push_back(numbers.lhs[d]);
  }
  for (size_t d = 0; d < numbers.rhs.size(); ++d) {
    if (!has(numbers.rhs_batch, d) && !has(numbers.rhs_contracting, d)) out.push_back(numbers.rhs[d]);
  }
  SetShape(result, out, op.mutable_result());
  op.mutable_lhs_batch()->Add(numbers.lhs_batch.begin(), numbers.lhs_batch.end());
  op.mutable_rhs_batch()->Add(numbers.rhs_batch.begin(), numbers.rhs_batch.end());
  op.mutable_lhs_contracting()->Add(numbers.lhs_contracting.begin(), numbers.lhs_contracting.end());
  op.mutable_rhs_contracting()->Add(numbers.rhs_contracting.begin(), numbers.rhs_contracting.end());
  return op;
}

void SetFloat(Array* array, size_t i, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (array->shape().type == ElementType::kF32) array->values<float>()[i] = value;
  if (array->shape().type == ElementType::kBF16) array->values<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
  if (array->shape().type == ElementType::kF16) array->values<_Float16>()[i] = static_cast<_Float16>(value);
  if (array->shape().type == ElementType::kF64) array->values<double>()[i] = static_cast<double>(value);
  if (array->shape().type == ElementType::kS8) array->values<int8_t>()[i] = static_cast<int8_t>(value * 8);
}

float GetFloat(const Array& array, size_t i) {
  if (array.shape().type == ElementType::kF32) return array.values<float>()[i];
  if (array.shape().type == ElementType::kF16) return static_cast<float>(array.values<_Float16>()[i]);
  if (array.shape().type == ElementType::kF64) return static_cast<float>(array.values<double>()[i]);
  if (array.shape().type == ElementType::kS8) return array.values<int8_t>()[i];
  if (array.shape().type == ElementType::kS32) return static_cast<float>(array.values<int32_t>()[i]);
  const uint32_t bits = static_cast<uint32_t>(array.values<uint16_t>()[i]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

Array RandomArray(Random& random, const ArrayShape& shape) {
  Array array(tensor::ShapeFromWire(shape));
  // Values are multiples of 1/8, or of 1 in s8. They are exact in every type, and their sums are exact in f32.
  for (size_t i = 0; i < static_cast<size_t>(array.elements()); ++i) {
    SetFloat(&array, i, static_cast<float>(static_cast<int>(random.Below(17)) - 8) / 8);
  }
  return array;
}

// Returns the positions of nested loops, in order. Each has the element offsets in the three arrays, and size 1.
std::vector<DotLoop> Positions(const std::vector<DotLoop>& loops) {
  std::vector<DotLoop> positions;
  Dims sizes, index(loops.size(), 0);
  for (const DotLoop& loop : loops) sizes.push_back(loop.size);
  if (tensor::Product(sizes) == 0) return positions;
  do {
    DotLoop& at = positions.emplace_back(DotLoop{.size = 1});
    for (size_t i = 0; i < loops.size(); ++i) {
      at.lhs += index[i] * loops[i].lhs;
      at.rhs += index[i] * loops[i].rhs;
      at.result += index[i] * loops[i].result;
    }
  } while (tensor::NextIndex(sizes, absl::MakeSpan(index)));
  return positions;
}

std::vector<double> Doubles(const Array& array) {
  std::vector<double> values(static_cast<size_t>(array.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(GetFloat(array, i));
  return values;
}

// Computes a dot in double, by loops over the strides of ReadDotShape.
std::vector<double> Expected(const DotOp& op, const Array& lhs, const Array& rhs) {
  const DotShape shape = *ReadDotShape(op);
  std::vector<double> result(
      shape.Elements(shape.batch) * shape.Elements(shape.m) * shape.Elements(shape.n));
  std::vector<DotLoop> outer;
  for (const auto* group : {&shape.batch, &shape.m, &shape.n}) outer.insert(outer.end(), group->begin(), group->end());
  const std::vector<double> l = Doubles(lhs), r = Doubles(rhs);
  const std::vector<DotLoop> contracted = Positions(shape.k);
  for (const DotLoop& at : Positions(outer)) {
    // This uses pointers, because tests are compiled without optimization and the loop has many millions of iterations.
    const double* const row = l.data() + at.lhs;
    const double* const column = r.data() + at.rhs;
    const DotLoop* const end = contracted.data() + contracted.size();
    double sum = 0;
    for (const DotLoop* k = contracted.data(); k != end; ++k) sum += row[k->lhs] * column[k->rhs];
    result[at.result] += sum;
  }
  return result;
}

std::vector<char> Scratch(const PreparedLibraryOp& dot, int threads, char** aligned) {
  std::vector<char> memory(static_cast<size_t>(dot.scratch_bytes(threads)) + 64);
  *aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  return memory;
}

void* Address(const Array& array) { return const_cast<std::byte*>(array.bytes().data()); }

void Check(const Numbers& numbers, ElementType lhs_type, ElementType rhs_type, ElementType result_type) {
  const DotOp op = MakeOp(numbers, lhs_type, rhs_type, result_type);
  const std::unique_ptr<Random> random = SeededRandom(7);
  const Array lhs = RandomArray(*random, op.lhs()), rhs = RandomArray(*random, op.rhs());
  const auto dot = PrepareDot(op);
  ASSERT_TRUE(dot.ok()) << dot.status() << op.ShortDebugString();
  Array result(tensor::Shape{result_type, Dims(op.result().dims().begin(), op.result().dims().end())});
  std::vector<std::byte> of_one_thread;
  for (const int threads : {1, 2, 3, 7}) {
    ThreadTeam team(threads);
    const auto call = (*dot)->MakeCall(threads);
    ASSERT_TRUE(call.ok()) << call.status();
    char* aligned;
    const std::vector<char> scratch = Scratch(**dot, threads, &aligned);
    for (int again = 0; again < 2; ++again) {
      std::memset(Address(result), 0xff, result.bytes().size());
      ASSERT_TRUE((*call)->Run({Address(lhs), Address(rhs), Address(result)}, aligned, team).ok());
      if (of_one_thread.empty()) of_one_thread.assign(result.bytes().begin(), result.bytes().end());
      ASSERT_TRUE(std::equal(of_one_thread.begin(), of_one_thread.end(), result.bytes().begin()))
          << threads << " threads: the bits differ from those of one thread: " << (*dot)->Description() << " "
          << op.ShortDebugString();
    }
  }
  const std::vector<double> expected = Expected(op, lhs, rhs);
  const double tolerance = result_type == ElementType::kF16 ? 1e-3 : result_type == ElementType::kBF16 ? 8e-3 : 1e-6;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(GetFloat(result, i), expected[i], tolerance * std::max(1.0, std::fabs(expected[i])))
        << (*dot)->Description() << " element " << i << " " << op.ShortDebugString();
  }
}

const std::vector<Numbers>& Kinds() {
  static const auto* const kinds = new std::vector<Numbers>{
      {{5, 7}, {7, 3}, {}, {}, {1}, {0}},
      {{7, 5}, {7, 3}, {}, {}, {0}, {0}},
      {{5, 7}, {3, 7}, {}, {}, {1}, {1}},
      {{7, 5}, {3, 7}, {}, {}, {0}, {1}},
      {{64, 128}, {128, 96}, {}, {}, {1}, {0}},
      {{1, 128}, {128, 1}, {}, {}, {1}, {0}},
      {{128}, {128}, {}, {}, {0}, {0}},
      {{128}, {128, 5}, {}, {}, {0}, {0}},
      {{5, 128}, {128}, {}, {}, {1}, {0}},
      {{5}, {3}, {}, {}, {}, {}},
      {{}, {}, {}, {}, {}, {}},
      {{}, {3, 2}, {}, {}, {}, {}},
      {{4, 5, 6}, {4, 6, 3}, {0}, {0}, {2}, {1}},
      {{5, 4, 6}, {6, 3, 4}, {1}, {2}, {2}, {0}},
      {{2, 16, 4, 8}, {2, 16, 4, 8}, {0, 2}, {0, 2}, {3}, {3}},   // Attention scores.
      {{2, 4, 16, 16}, {2, 16, 4, 8}, {0, 1}, {0, 2}, {3}, {1}},  // Attention values.
      {{2, 16, 4, 8}, {2, 16, 4, 8}, {0, 2}, {0, 2}, {1}, {1}},
      {{3, 4, 5}, {4, 5, 6}, {}, {}, {1, 2}, {0, 1}},
      {{3, 4, 5}, {5, 4, 6}, {}, {}, {1, 2}, {1, 0}},
      {{4, 3, 5}, {4, 6, 5}, {}, {}, {0, 2}, {0, 2}},
      {{2, 3, 4, 5}, {4, 6, 2}, {}, {}, {0, 2}, {2, 0}},
      {{0, 4}, {4, 3}, {}, {}, {1}, {0}},
      {{3, 0}, {0, 4}, {}, {}, {1}, {0}},
      {{1, 1, 1}, {1, 1}, {0}, {1}, {2}, {0}},
      {{1, 6, 1}, {1, 1, 5}, {0}, {0}, {2}, {1}},
      {{2, 2, 2, 3, 4}, {2, 2, 2, 4, 5}, {0, 1, 2}, {2, 1, 0}, {4}, {3}},
  };
  return *kinds;
}

TEST(Dot, EveryKind) {
  for (const Numbers& numbers : Kinds()) {
    Check(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32);
    Check(numbers, ElementType::kBF16, ElementType::kBF16, ElementType::kBF16);
    Check(numbers, ElementType::kBF16, ElementType::kBF16, ElementType::kF32);
    Check(numbers, ElementType::kF16, ElementType::kF16, ElementType::kF16);
    Check(numbers, ElementType::kBF16, ElementType::kF32, ElementType::kF32);
    Check(numbers, ElementType::kF64, ElementType::kF64, ElementType::kF64);
    Check(numbers, ElementType::kS8, ElementType::kS8, ElementType::kS32);
  }
}

// A GPU that computes such a dot itself prepares it, too. Tables of the loops of this dot would need petabytes.
TEST(Dot, PreparesLargeDotsOfF64WithoutTables) {
  const int64_t size = int64_t{1} << 50;
  for (const Numbers& numbers : std::vector<Numbers>{{{size}, {size}, {}, {}, {0}, {0}},
                                                     {{size, 1}, {1, 1}, {}, {}, {1}, {0}},
                                                     {{1, 1}, {1, size}, {}, {}, {1}, {0}},
                                                     {{size, 1}, {size, 1}, {0}, {0}, {1}, {1}}}) {
    const auto dot = PrepareDot(MakeOp(numbers, ElementType::kF64, ElementType::kF64, ElementType::kF64));
    EXPECT_TRUE(dot.ok()) << dot.status();
  }
}

TEST(Dot, UsesFastImplementations) {
  for (const Numbers& numbers : Kinds()) {
    const auto dot = PrepareDot(MakeOp(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32));
    ASSERT_TRUE(dot.ok());
    if (tensor::Product(numbers.lhs) * tensor::Product(numbers.rhs) < 1000) continue;
    EXPECT_EQ((*dot)->Description().find("ref"), std::string::npos) << (*dot)->Description();
  }
}

TEST(Dot, RefusesShapesThatDoNotMatch) {
  const auto refused = [](Numbers numbers, const char* words) {
    DotOp op = MakeOp({{5, 7}, {7, 3}, {}, {}, {1}, {0}}, ElementType::kF32, ElementType::kF32, ElementType::kF32);
    op.clear_lhs_contracting();
    op.mutable_lhs_contracting()->Add(numbers.lhs_contracting.begin(), numbers.lhs_contracting.end());
    op.mutable_lhs_batch()->Add(numbers.lhs_batch.begin(), numbers.lhs_batch.end());
    const auto dot = PrepareDot(op);
    ASSERT_FALSE(dot.ok());
    EXPECT_EQ(dot.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(dot.status().message().find(words), absl::string_view::npos) << dot.status();
  };
  refused({{}, {}, {}, {}, {2}, {}}, "dimension 2");
  refused({{}, {}, {}, {}, {-1}, {}}, "dimension -1");
  refused({{}, {}, {}, {}, {0}, {}}, "shapes");
  refused({{}, {}, {}, {}, {}, {}}, "different numbers");
  refused({{}, {}, {1}, {}, {1}, {}}, "dimension 1");
  const auto other =
      PrepareDot(MakeOp({{2}, {2}, {}, {}, {0}, {0}}, ElementType::kS32, ElementType::kS32, ElementType::kS32));
  EXPECT_EQ(other.status().code(), absl::StatusCode::kUnimplemented);
}

// The dimensions of one operand: for each of its dimensions the number of a loop.
struct Side {
  std::vector<size_t> loops;
  Dims Sizes(const Dims& of_loops) const {
    Dims sizes;
    for (const size_t loop : loops) sizes.push_back(of_loops[loop]);
    return sizes;
  }
  int64_t Find(size_t loop) const { return std::find(loops.begin(), loops.end(), loop) - loops.begin(); }
};

void Shuffle(Random& random, std::vector<size_t>* order) {
  for (size_t i = order->size(); i > 1; --i) std::swap((*order)[i - 1], (*order)[random.Below(i)]);
}

// A dot with up to two batch, row, column and contracted dimensions each, whose operands have them in any order.
Numbers RandomNumbers(Random& random) {
  constexpr int64_t kSizes[] = {1, 2, 3, 4, 7, 8, 10, 16, 17, 32, 48};
  Numbers numbers;
  Side lhs, rhs;
  Dims sizes;
  std::vector<size_t> batch, contracted;
  int64_t work = 1;
  for (int kind = 0; kind < 4; ++kind) {
    for (uint64_t count = random.Below(3); count > 0; --count) {
      int64_t size = kSizes[random.Below(std::size(kSizes))];
      if (work * size > 100000) size = 2;
      work *= size;
      const size_t loop = sizes.size();
      sizes.push_back(size);
      if (kind != 2) lhs.loops.push_back(loop);
      if (kind != 1) rhs.loops.push_back(loop);
      if (kind == 0) batch.push_back(loop);
      if (kind == 3) contracted.push_back(loop);
    }
  }
  for (std::vector<size_t>* order : {&lhs.loops, &rhs.loops, &batch, &contracted}) Shuffle(random, order);
  numbers.lhs = lhs.Sizes(sizes);
  numbers.rhs = rhs.Sizes(sizes);
  for (const size_t loop : batch) {
    numbers.lhs_batch.push_back(lhs.Find(loop));
    numbers.rhs_batch.push_back(rhs.Find(loop));
  }
  for (const size_t loop : contracted) {
    numbers.lhs_contracting.push_back(lhs.Find(loop));
    numbers.rhs_contracting.push_back(rhs.Find(loop));
  }
  return numbers;
}

TEST(Dot, RandomDimensions) {
  const std::unique_ptr<Random> random = SeededRandom(11);
  for (int i = 0; i < 300; ++i) {
    Check(RandomNumbers(*random), ElementType::kF32, ElementType::kF32, ElementType::kF32);
    if (HasFatalFailure()) return;
  }
}

// A product of s8 is at most 2^14, so a sum of 2^18 products is 2^32, which wraps around to 0.
TEST(Dot, SumsOfS32WrapAround) {
  const int64_t depth = (1 << 18) + 1;
  const DotOp op = MakeOp({{depth}, {depth}, {}, {}, {0}, {0}}, ElementType::kS8, ElementType::kS8, ElementType::kS32);
  const auto dot = PrepareDot(op);
  ASSERT_TRUE(dot.ok()) << dot.status();
  const std::vector<int8_t> operand(static_cast<size_t>(depth), -128);
  int32_t sum = -1;
  ThreadTeam team(1);
  void* const from = const_cast<int8_t*>(operand.data());
  ASSERT_TRUE((*(*dot)->MakeCall(1))->Run({from, from, &sum}, nullptr, team).ok());
  EXPECT_EQ(sum, 1 << 14);
}

// Computes random dots by small_dot.h, including those for which oneDNN is preferred.
TEST(Dot, SmallDotsOfAllShapes) {
  const std::unique_ptr<Random> random = SeededRandom(12);
  for (int i = 0; i < 300; ++i) {
    const DotOp op = MakeOp(RandomNumbers(*random), ElementType::kF32, ElementType::kF32, ElementType::kF32);
    DotShape shape = *ReadDotShape(op);
    shape.Merge();
    const std::unique_ptr<PreparedLibraryOp> dot = MakeSmallDot(shape);
    const Array lhs = RandomArray(*random, op.lhs()), rhs = RandomArray(*random, op.rhs());
    const std::vector<double> expected = Expected(op, lhs, rhs);
    // The element after the result must not change.
    std::vector<float> result(expected.size() + 1, -1);
    ThreadTeam team(2);
    char* aligned;
    const std::vector<char> scratch = Scratch(*dot, 2, &aligned);
    ASSERT_TRUE((*dot->MakeCall(2))->Run({Address(lhs), Address(rhs), result.data()}, aligned, team).ok());
    for (size_t e = 0; e < expected.size(); ++e) {
      ASSERT_EQ(result[e], static_cast<float>(expected[e])) << dot->Description() << " " << op.ShortDebugString();
    }
    ASSERT_EQ(result.back(), -1) << op.ShortDebugString();
  }
}

TEST(Dot, ComputesSmallDotsByItsOwnLoops) {
  const auto own = [](const Numbers& numbers, ElementType type) {
    return (*PrepareDot(MakeOp(numbers, type, type, type)))->Description().rfind("xlad", 0) == 0;
  };
  EXPECT_TRUE(own({{64, 64}, {64, 64}, {}, {}, {1}, {0}}, ElementType::kF32));
  EXPECT_TRUE(own({{2, 4, 64, 64}, {2, 64, 4, 16}, {0, 1}, {0, 2}, {3}, {1}}, ElementType::kF32));
  EXPECT_TRUE(own({{3, 64, 16}, {3, 32, 16}, {}, {}, {0, 2}, {0, 2}}, ElementType::kF32)) << "k is two loops";
  EXPECT_FALSE(own({{64, 64}, {64, 64}, {}, {}, {1}, {0}}, ElementType::kBF16));
  EXPECT_TRUE(own({{64, 64}, {64, 64}, {}, {}, {1}, {1}}, ElementType::kF32)) << "rhs is transposed";
  EXPECT_FALSE(own({{16, 64}, {64, 64}, {}, {}, {1}, {1}}, ElementType::kF32)) << "a copy of rhs would serve few rows";
  EXPECT_FALSE(own({{64, 1024}, {64, 1024}, {}, {}, {1}, {1}}, ElementType::kF32)) << "the columns are long";
  EXPECT_FALSE(own({{64, 64}, {64, 10}, {}, {}, {1}, {0}}, ElementType::kF32)) << "rows are not whole vectors";
  EXPECT_FALSE(own({{256, 1024}, {1024, 1024}, {}, {}, {1}, {0}}, ElementType::kF32)) << "rhs is large";
  EXPECT_TRUE(own({{16, 3, 5}, {16, 5, 4}, {0}, {0}, {2}, {1}}, ElementType::kF32)) << "a batch of tiny products";
  EXPECT_TRUE(own({{16, 3, 5}, {16, 4, 5}, {0}, {0}, {2}, {2}}, ElementType::kF32)) << "the same, rhs is transposed";
  EXPECT_FALSE(own({{15, 3, 5}, {15, 5, 4}, {0}, {0}, {2}, {1}}, ElementType::kF32)) << "there are few products";
  EXPECT_FALSE(own({{16, 17, 5}, {16, 5, 4}, {0}, {0}, {2}, {1}}, ElementType::kF32)) << "lhs is not tiny";
}

TEST(Dot, NeedsMatrixCodeIfItIsLarge) {
  const auto prepared = [](const Numbers& numbers) {
    return *PrepareDot(MakeOp(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32));
  };
  EXPECT_FALSE(prepared({{64, 64}, {64, 64}, {}, {}, {1}, {0}})->needs_matrix_code());
  const auto large = prepared({{256, 1024}, {1024, 1024}, {}, {}, {1}, {0}});
  // With AVX-512, oneDNN may choose an implementation that does not use this code.
  if (!absl::StrContains(large->Description(), "gemm")) GTEST_SKIP() << large->Description();
  EXPECT_TRUE(large->needs_matrix_code());
}

// Operands of panels of 32 columns are read in place, whatever their size.
TEST(Dot, ReadsPanelsInPlace) {
  int64_t position = 0;
  const std::unique_ptr<Random> random = SeededRandom(13);
  for (const int64_t k : {1, 3, 16, 100, 257, 1100}) {
    for (const int64_t panels : {2, 3, 8}) {
      ++position;
      for (const int64_t m : {1, 2, 7, 12, 13, 33}) {
        const Numbers rows = {{m, k}, {panels, k, 32}, {}, {}, {1}, {1}};
        const Numbers columns = {{k, m}, {panels, k, 32}, {}, {}, {0}, {1}};
        const Numbers batches = {{2, m, k}, {2, panels, k, 32}, {0}, {0}, {2}, {2}};
        for (const Numbers& numbers : {rows, columns, batches}) {
          if (!TriesCase(position++, 2)) continue;
          const DotOp op = MakeOp(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32);
          const auto dot = PrepareDot(op);
          ASSERT_TRUE(dot.ok()) << dot.status();
          const std::string how = (*dot)->Description();
          if (k > 1) EXPECT_TRUE(how.rfind("xlad", 0) == 0 && how.find("packed") == std::string::npos) << how;
          Check(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// The number of threads of this process. A thread still counts for a moment after a join has returned.
int Threads() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

// By default, bf16 and f16 are tried in turn.
TEST(Dot, LargeProductsHaveTheSameBitsOnAnyNumberOfThreads) {
  bool is_bf16 = false;
  for (const Numbers& numbers : std::vector<Numbers>{
           {{300, 170}, {170, 700}, {}, {}, {1}, {0}},
           {{170, 300}, {170, 700}, {}, {}, {0}, {0}},
           {{513, 97}, {401, 97}, {}, {}, {1}, {1}},
           {{1, 1000}, {1000, 3001}, {}, {}, {1}, {0}},
           {{5, 130, 64}, {5, 64, 129}, {0}, {0}, {2}, {1}},
           {{130, 5, 64}, {129, 5, 64}, {1}, {1}, {2}, {2}},
           {{700, 3, 40}, {40, 3, 192}, {}, {}, {2, 1}, {0, 1}},
           {{3, 40, 700}, {40, 3, 193}, {}, {}, {0, 1}, {1, 0}},
           {{40, 4, 6, 160}, {6, 40, 128}, {2}, {0}, {0}, {1}},
       }) {
    Check(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32);
    is_bf16 = !is_bf16;
    if (AllCases() || is_bf16) Check(numbers, ElementType::kBF16, ElementType::kBF16, ElementType::kBF16);
    if (AllCases() || !is_bf16) Check(numbers, ElementType::kF16, ElementType::kF16, ElementType::kF32);
  }
}

TEST(Dot, GridsCoverTheProductAndDependOnTheShapeAlone) {
  DotShape shape;
  shape.m = {{4096, 768, 0, 3072}};
  shape.n = {{3072, 0, 1, 1}};
  shape.k = {{768, 1, 3072, 0}};
  const DotGrid large = ChooseGrid(shape);
  EXPECT_EQ(large.n % 64, 0);
  EXPECT_EQ(large.m % 16, 0);
  EXPECT_GE((4096 / large.m) * (3072 / large.n), 16);
  shape.m[0].size = shape.n[0].size = shape.k[0].size = 32;
  const DotGrid small = ChooseGrid(shape);
  EXPECT_EQ(small.m, 32) << "starting threads would take longer than the product";
  EXPECT_EQ(small.n, 32);
}

// The first transposed product is computed by xlad's own loops, the second by oneDNN.
TEST(Dot, OnlyProductsThatTakeLongEnoughAreDivided) {
  const auto tiles = [](const Numbers& numbers) {
    const std::string description =
        (*PrepareDot(MakeOp(numbers, ElementType::kF32, ElementType::kF32, ElementType::kF32)))->Description();
    const size_t end = description.find(" tiles");
    return end == std::string::npos ? 1 : std::stoi(description.substr(description.rfind(' ', end - 1)));
  };
  EXPECT_EQ(tiles({{64, 64}, {64, 64}, {}, {}, {1}, {0}}), 1);
  EXPECT_GE(tiles({{64, 192}, {192, 96}, {}, {}, {1}, {0}}), 2) << "by columns";
  EXPECT_EQ(tiles({{192, 192}, {192, 16}, {}, {}, {1}, {0}}), 1) << "less than the time of two tiles";
  EXPECT_GE(tiles({{960, 64}, {64, 32}, {}, {}, {1}, {0}}), 3) << "by rows";
  EXPECT_GE(tiles({{128, 256}, {256, 256}, {}, {}, {1}, {1}}), 4);
  EXPECT_EQ(tiles({{128, 512}, {256, 512}, {}, {}, {1}, {1}}), 2);
  EXPECT_EQ(tiles({{512, 256}, {512, 10}, {}, {}, {0}, {0}}), 1);
  EXPECT_GE(tiles({{16, 32, 4, 16}, {16, 32, 4, 16}, {0, 2}, {0, 2}, {3}, {3}}), 2) << "by batches";
}

TEST(Dot, LeavesNoThreads) {
  const auto fall_to = [](int expected) {
    for (int tries = 0; tries < 60'000 && Threads() > expected; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LE(Threads(), expected) << "the threads of teams have ended";
  };
  const int before = Threads();
  Check({{256, 256}, {256, 256}, {}, {}, {1}, {0}}, ElementType::kF32, ElementType::kF32, ElementType::kF32);
  fall_to(before);
  std::thread([&] {
    Check({{256, 256}, {256, 256}, {}, {}, {1}, {0}}, ElementType::kF32, ElementType::kF32, ElementType::kF32);
    fall_to(before + 1);
  }).join();
}

TEST(Dot, RunsOnSeveralThreadsAtOnce) {
  const DotOp op =
      MakeOp({{33, 65}, {65, 17}, {}, {}, {1}, {0}}, ElementType::kF32, ElementType::kF32, ElementType::kF32);
  const auto dot = PrepareDot(op);
  ASSERT_TRUE(dot.ok());
  const std::unique_ptr<Random> random = SeededRandom(3);
  const Array lhs = RandomArray(*random, op.lhs()), rhs = RandomArray(*random, op.rhs());
  const std::vector<double> expected = Expected(op, lhs, rhs);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      ThreadTeam team(1);
      const auto call = (*dot)->MakeCall(1);
      char* aligned;
      const std::vector<char> scratch = Scratch(**dot, 1, &aligned);
      std::vector<float> result(33 * 17);
      for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE((*call)->Run({Address(lhs), Address(rhs), result.data()}, aligned, team).ok());
        for (size_t e = 0; e < result.size(); ++e) ASSERT_EQ(result[e], static_cast<float>(expected[e]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace xlad::runtime
