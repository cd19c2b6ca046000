// Compares every reduction of the types in kTypes, for 0 to 263 elements and 2, 3 and 5 ranks, with a scalar
// definition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/testing/group_fixture.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/testing/make_spec.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;
using ::testing::HasSubstr;

constexpr ElementType kTypes[] = {ElementType::kF64,      ElementType::kF32,    ElementType::kF16, ElementType::kBF16,
                                  ElementType::kF8E4M3FN, ElementType::kF8E5M2, ElementType::kS8,  ElementType::kS16,
                                  ElementType::kS32,      ElementType::kS64,    ElementType::kU8,  ElementType::kU16,
                                  ElementType::kU32,      ElementType::kU64,    ElementType::kPred};
constexpr Reduction kReductions[] = {Reduction::kSum,     Reduction::kProduct, Reduction::kMin, Reduction::kMax,
                                     Reduction::kAverage, Reduction::kAnd,     Reduction::kOr,  Reduction::kXor};
constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
                                     CollectiveKind::kReduce};

bool HasMeaning(ElementType type, Reduction reduction) {
  const bool bitwise = reduction == Reduction::kAnd || reduction == Reduction::kOr || reduction == Reduction::kXor;
  if (tensor::IsFloating(type)) return !bitwise;
  return type != ElementType::kPred || reduction != Reduction::kAverage;
}

// Combines two values of a type T in which elements are accumulated: f64, f32, 64-bit integers or bool.
template <typename T>
T CombineTwo(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return std::is_same_v<T, bool> ? (a || b) : a + b;
    case Reduction::kProduct:
      return a * b;
    case Reduction::kMin:
    case Reduction::kMax:
      if constexpr (std::is_floating_point_v<T>) {
        if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
        if (a == b) return std::signbit(a) == (reduction == Reduction::kMin) ? a : b;  // -0 is less than +0.
      }
      return (reduction == Reduction::kMin) == (a < b) ? a : b;
    default:
      if constexpr (!std::is_floating_point_v<T>) {
        if (reduction == Reduction::kAnd) return a & b;
        return reduction == Reduction::kOr ? a | b : a ^ b;
      }
      return a;
  }
}

// Reduces the values of all ranks, from left to right or as the canonical tree. The number of values in the left half
// of the tree is the largest power of two below the number of all values.
template <typename T>
T CombineAll(Reduction reduction, bool is_tree, absl::Span<const T> values) {
  if (values.size() == 1) return values[0];
  const size_t half = is_tree ? std::bit_floor(values.size() - 1) : values.size() - 1;
  return CombineTwo<T>(reduction, CombineAll<T>(reduction, is_tree, values.first(half)),
                       CombineAll<T>(reduction, is_tree, values.subspan(half)));
}

// Returns the result for one element, whose bits on the ranks are `bits`, for floats that are accumulated in T.
template <typename T, typename Decode>
T DefineFloat(const CollectiveSpec& spec, const std::vector<uint64_t>& bits, const Decode& decode) {
  std::vector<T> values;
  for (const uint64_t element : bits) values.push_back(decode(element));
  const T result = CombineAll<T>(spec.reduction, spec.mode == ReductionMode::kCanonical, values);
  return spec.reduction == Reduction::kAverage ? result / static_cast<T>(values.size()) : result;
}

template <typename Wide>
uint64_t DefineInteger(const CollectiveSpec& spec, const std::vector<uint64_t>& bits) {
  const int unused = 64 - tensor::BitWidth(spec.type);
  const auto cut = [&](uint64_t value) { return static_cast<Wide>(value << unused) >> unused; };
  std::vector<Wide> values;
  for (const uint64_t element : bits) values.push_back(cut(element));
  // Sums and products wrap around, so they are computed in unsigned arithmetic.
  const std::vector<uint64_t> plain(values.begin(), values.end());
  const bool is_ordered = spec.reduction == Reduction::kMin || spec.reduction == Reduction::kMax;
  Wide result = is_ordered ? CombineAll<Wide>(spec.reduction, false, values)
                           : cut(CombineAll<uint64_t>(spec.reduction, false, plain));
  if (spec.reduction == Reduction::kAverage) result /= static_cast<Wide>(values.size());
  return static_cast<uint64_t>(result) & (~uint64_t{0} >> unused);
}

uint64_t DefinePred(const CollectiveSpec& spec, const std::vector<uint64_t>& bits) {
  bool result = bits[0] != 0;
  for (size_t i = 1; i < bits.size(); ++i) result = CombineTwo<bool>(spec.reduction, result, bits[i] != 0);
  return result ? 1 : 0;
}

// Returns the result for one element by definition. Floats below 32 bits are accumulated in f32 and rounded once.
// Integers are truncated to their type before an average divides.
uint64_t Defined(const CollectiveSpec& spec, const std::vector<uint64_t>& bits) {
  switch (spec.type) {
    case ElementType::kF64:
      return std::bit_cast<uint64_t>(
          DefineFloat<double>(spec, bits, [](uint64_t element) { return std::bit_cast<double>(element); }));
    case ElementType::kF32:
      return std::bit_cast<uint32_t>(DefineFloat<float>(
          spec, bits, [](uint64_t element) { return std::bit_cast<float>(static_cast<uint32_t>(element)); }));
    case ElementType::kPred:
      return DefinePred(spec, bits);
    default:
      break;
  }
  if (tensor::IsFloating(spec.type)) {
    return tensor::EncodeSmallFloat(spec.type, DefineFloat<float>(spec, bits, [&](uint64_t element) {
                                      return tensor::DecodeSmallFloat(spec.type, static_cast<uint16_t>(element));
                                    }));
  }
  return tensor::IsSigned(spec.type) ? DefineInteger<int64_t>(spec, bits) : DefineInteger<uint64_t>(spec, bits);
}

bool IsNan(ElementType type, uint64_t bits) {
  if (!tensor::IsFloating(type)) return false;
  if (type == ElementType::kF64) return std::isnan(std::bit_cast<double>(bits));
  if (type == ElementType::kF32) return std::isnan(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return std::isnan(tensor::DecodeSmallFloat(type, static_cast<uint16_t>(bits)));
}

uint64_t ElementAt(const std::vector<std::byte>& buffer, int64_t width, int64_t i) {
  uint64_t bits = 0;
  std::memcpy(&bits, buffer.data() + i * width, width);
  return bits;
}

// By rank: elements of one type.
using Elements = std::vector<std::vector<std::byte>>;

// Random bits, which include infinities, NaNs, subnormal numbers and both zeros. Every second element has a moderate
// magnitude, so that not all sums overflow.
std::vector<std::byte> RandomElements(ElementType type, int rank, int64_t count) {
  const int64_t width = tensor::ByteWidth(type);
  const std::unique_ptr<Random> random = SeededRandom(1000 * rank + static_cast<int>(type));
  std::vector<std::byte> input(count * width + 1);
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = random->Next();
    const double moderate = (random->Unit() - 0.5) * std::ldexp(1.0, static_cast<int>(random->Below(8)));
    if (i % 2 == 0 && type == ElementType::kF64) bits = std::bit_cast<uint64_t>(moderate);
    if (i % 2 == 0 && type == ElementType::kF32) bits = std::bit_cast<uint32_t>(static_cast<float>(moderate));
    if (i % 2 == 0 && tensor::IsSmallFloat(type)) bits = tensor::EncodeSmallFloat(type, moderate);
    if (type == ElementType::kPred) bits %= 2;
    std::memcpy(input.data() + i * width, &bits, width);
  }
  return input;
}

// Elements of each type in kTypes. Each collective of a test uses the first elements, as many as its operand has.
// Therefore the definition of each element is evaluated once for all kinds, counts, plans and ranks.
struct SweepValues {
  std::map<ElementType, Elements> inputs;
  // The elements of the results, by type, reduction and whether the mode is canonical.
  std::map<std::tuple<ElementType, Reduction, bool>, std::vector<uint64_t>> defined;
};

// Returns `count` elements per rank, and their results in some modes.
SweepValues MakeSweepValues(int ranks, int64_t count, const std::vector<ReductionMode>& modes) {
  SweepValues values;
  for (const ElementType type : kTypes) {
    Elements& inputs = values.inputs[type];
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(RandomElements(type, rank, count));
    const int64_t width = tensor::ByteWidth(type);
    std::vector<uint64_t> bits(ranks);
    for (const Reduction reduction : kReductions) {
      if (!HasMeaning(type, reduction)) continue;
      for (const ReductionMode mode : modes) {
        CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, ranks, count);
        spec.type = type;
        spec.reduction = reduction;
        spec.mode = mode;
        std::vector<uint64_t>& defined = values.defined[{type, reduction, mode == ReductionMode::kCanonical}];
        for (int64_t i = 0; i < count; ++i) {
          for (int rank = 0; rank < ranks; ++rank) bits[rank] = ElementAt(inputs[rank], width, i);
          defined.push_back(Defined(spec, bits));
        }
      }
    }
  }
  return values;
}

// Runs the spec on the group of one rank and compares each element of its output with the definition. `plan` is an
// argument of Prepare, if any.
template <typename Group, typename... Plan>
void RunAndCompare(Group* group, const CollectiveSpec& spec, const SweepValues& values, const Plan&... plan) {
  const int rank = group->rank();
  SCOPED_TRACE(absl::StrCat(spec.ToString(), ", ", plan..., ", rank ", rank));
  const auto operation = group->Prepare(spec, plan...);
  ASSERT_TRUE(operation.ok()) << operation.status();
  const int64_t width = tensor::ByteWidth(spec.type), count = spec.output_elements(rank);
  // These buffers have the size of the operands, so that sanitizers notice accesses beyond them.
  const std::byte* const first = values.inputs.at(spec.type)[rank].data();
  const std::vector<std::byte> input(first, first + spec.input_elements(rank) * width + 1);
  std::vector<std::byte> output(count * width + 1);
  const absl::Status status = group->Run(**operation, input.data(), output.data());
  ASSERT_TRUE(status.ok()) << status;
  const int64_t begin = spec.kind == CollectiveKind::kReduceScatter ? rank * count : 0;
  const std::vector<uint64_t>& defined =
      values.defined.at({spec.type, spec.reduction, spec.mode == ReductionMode::kCanonical});
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t expected = defined[begin + i], found = ElementAt(output, width, i);
    // If several operands are NaN, the bits of the sum are undefined.
    if (IsNan(spec.type, expected) && IsNan(spec.type, found)) continue;
    ASSERT_EQ(found, expected) << "element " << i;
  }
}

// Calls `body` with every spec over `ranks` ranks.
void ForEachSpec(int ranks, const std::vector<int64_t>& counts, const std::vector<ReductionMode>& modes,
                 const std::function<void(const CollectiveSpec&)>& body) {
  for (const ElementType type : kTypes) {
    for (const Reduction reduction : kReductions) {
      if (!HasMeaning(type, reduction)) continue;
      for (const CollectiveKind kind : kKinds) {
        for (const int64_t count : counts) {
          for (const ReductionMode mode : modes) {
            CollectiveSpec spec = MakeSpec(kind, ranks, count);
            spec.type = type;
            spec.reduction = reduction;
            spec.mode = mode;
            body(spec);
          }
        }
      }
    }
  }
}

TEST(Sweep, SharedMemory) {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<ReductionMode> modes = {ReductionMode::kFast, ReductionMode::kCanonical};
    const SweepValues values = MakeSweepValues(ranks, ranks * 263, modes);
    const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
    const std::string key = absl::StrCat("sweep-", getpid(), "-", SystemRandom()->Hex(4));
    OnThreads(ranks, [&](int rank) {
      ProcessGroup::Options options;
      options.launch = {.rank = rank, .ranks = ranks, .launcher = "test", .key = key};
      const auto group = ProcessGroup::Form(options, bootstrap.get());
      ASSERT_TRUE(group.ok()) << group.status();
      ForEachSpec(ranks, {0, 1, ranks - 1, 13, 263}, modes,
                  [&](const CollectiveSpec& spec) { RunAndCompare(group->get(), spec, values); });
    });
  }
}

TEST(Sweep, MessagesBetweenThreads) {
  for (const int ranks : {2, 3, 5}) {
    const std::vector<ReductionMode> modes = {ReductionMode::kRunToRun, ReductionMode::kCanonical};
    const SweepValues values = MakeSweepValues(ranks, ranks * 13, modes);
    auto groups = MessageGroup::InProcess(ranks, {});
    ASSERT_TRUE(groups.ok()) << groups.status();
    OnThreads(ranks, [&](int rank) {
      ForEachSpec(ranks, {0, 1, 13}, modes,
                  [&](const CollectiveSpec& spec) { RunAndCompare((*groups)[rank].get(), spec, values); });
    });
  }
}

// Partial results of canonical sums are not rounded, whatever the plan sends.
TEST(Sweep, EveryCanonicalPlanComputesTheSameBits) {
  std::map<std::string, int> runs;  // By plan, of rank 0.
  for (const int ranks : {2, 4, 8}) {
    const SweepValues values = MakeSweepValues(ranks, ranks * 37, {ReductionMode::kCanonical});
    auto groups = MessageGroup::InProcess(ranks, {});
    ASSERT_TRUE(groups.ok()) << groups.status();
    OnThreads(ranks, [&](int rank) {
      ForEachSpec(ranks, {1, 37}, {ReductionMode::kCanonical}, [&](const CollectiveSpec& spec) {
        if (!tensor::IsFloating(spec.type)) return;
        for (const char* const plan : {"direct", "halving_doubling", "recursive_doubling", "hierarchical"}) {
          if (!BuildSchedule(*ParsePlan(plan), spec, rank).ok()) continue;
          RunAndCompare((*groups)[rank].get(), spec, values, plan);
          if (rank == 0) ++runs[plan];
        }
      });
    });
  }
  // 6 types, 5 reductions without and 4 with partial results, 2 counts, 3 numbers of ranks, and 3, 2 or 1 kinds of
  // collectives that have the plan.
  EXPECT_EQ(runs["direct"], 6 * 5 * 2 * 3 * 3);
  EXPECT_EQ(runs["halving_doubling"], 6 * 4 * 2 * 3 * 2);
  EXPECT_EQ(runs["recursive_doubling"], 6 * 4 * 2 * 3);
}

TEST(Sweep, CombinationsWithoutAMeaningAreRefused) {
  int refused = 0;
  for (const ElementType type : kTypes) {
    for (const Reduction reduction : kReductions) {
      CollectiveSpec spec = MakeSpec(CollectiveKind::kAllReduce, 2, 8);
      spec.type = type;
      spec.reduction = reduction;
      const absl::Status status = ValidateSpec(spec);
      EXPECT_EQ(status.ok(), HasMeaning(type, reduction)) << spec.ToString() << " " << status;
      if (status.ok()) continue;
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("expected"));
    }
  }
  EXPECT_EQ(refused, 6 * 3 + 1);  // The refused pairs: bitwise operations on floats, and the average of pred.
}

}  // namespace
}  // namespace xlad::collectives
