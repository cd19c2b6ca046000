// Element-wise reduction of arrays on the CPU.
#include "collectives/exec/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;

// The number of elements per block. The accumulated values of a block stay in the cache.
constexpr int64_t kBlock = 1024;

// Traits of a type: its representation in memory and the type in which it is accumulated.
template <typename T>
struct Plain {
  using Storage = T;
  static T Load(T value) { return value; }
  static T Store(T value) { return value; }
};

template <ElementType kType>
struct Widened {
  using Codec = tensor::SmallFloat<kType>;
  using Storage = typename Codec::Storage;
  static float Load(Storage bits) { return Codec::Decode(bits); }
  static Storage Store(float value) { return Codec::Encode(value); }
};

// Integers below 8 bits: one byte per element, sign-extended if signed.
template <int kBits, bool kSigned>
struct Narrow {
  using Storage = uint8_t;
  static int32_t Load(uint8_t value) { return kSigned ? static_cast<int8_t>(value) : value; }
  static uint8_t Store(int32_t value) {
    const uint32_t low = static_cast<uint32_t>(value) & ((1u << kBits) - 1);
    const bool negative = kSigned && (low >> (kBits - 1)) != 0;
    return static_cast<uint8_t>(negative ? low | (~0u << kBits) : low);
  }
};

struct Pred {
  using Storage = uint8_t;
  static bool Load(uint8_t value) { return value != 0; }
  static uint8_t Store(bool value) { return value ? 1 : 0; }
};

template <Reduction kReduction, typename T>
T Combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    constexpr bool kIsOr =
        kReduction == Reduction::kSum || kReduction == Reduction::kMax || kReduction == Reduction::kOr;
    if constexpr (kReduction == Reduction::kXor) return a != b;
    return kIsOr ? (a || b) : (a && b);
  } else if constexpr (kReduction == Reduction::kAverage) {
    return Combine<Reduction::kSum>(a, b);
  } else if constexpr (kReduction == Reduction::kSum || kReduction == Reduction::kProduct) {
    if constexpr (std::is_integral_v<T>) {
      // Unsigned arithmetic has no undefined overflow. The low bits of the 64-bit result are the result in type T.
      const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
      return static_cast<T>(kReduction == Reduction::kSum ? x + y : x * y);
    } else {
      return kReduction == Reduction::kSum ? a + b : a * b;
    }
  } else if constexpr (kReduction == Reduction::kMax || kReduction == Reduction::kMin) {
    constexpr bool kIsMax = kReduction == Reduction::kMax;
    if constexpr (std::is_floating_point_v<T>) {
      if (a == b) return std::signbit(a) == kIsMax ? b : a;  // -0 is less than +0.
    }
    return (kIsMax ? a > b : a < b) || a != a ? a : b;
  } else if constexpr (kReduction == Reduction::kXor) {
    return a ^ b;
  } else if constexpr (kReduction == Reduction::kAnd) {
    return a & b;
  } else {
    return a | b;
  }
}

// The number of ranks can be larger than any value of a narrow integer type, so integers are divided in 64 bits.
template <typename Value>
Value Divided(Value value, int64_t ranks) {
  if constexpr (std::is_integral_v<Value>) {
    using Wide = std::conditional_t<std::is_signed_v<Value>, int64_t, uint64_t>;
    return static_cast<Value>(static_cast<Wide>(value) / static_cast<Wide>(ranks));
  } else {
    return value / static_cast<Value>(ranks);
  }
}

// Divides the values, if the reduction is an average, and writes them to all destinations from element `begin`.
template <typename Access, Reduction kReduction, typename Value>
void StoreBlock(absl::Span<Value> values, int64_t ranks, absl::Span<void* const> dsts, int64_t begin) {
  if constexpr (kReduction == Reduction::kAverage) {
    for (Value& value : values) value = Divided(value, ranks);
  }
  typename Access::Storage stored[kBlock];
  for (size_t i = 0; i < values.size(); ++i) stored[i] = Access::Store(values[i]);
  for (void* const dst : dsts) {
    std::copy_n(stored, values.size(), static_cast<typename Access::Storage*>(dst) + begin);
  }
}

template <typename Access, Reduction kReduction>
void Reduce(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count, StoreKind) {
  using Storage = typename Access::Storage;
  using Value = decltype(Access::Load(Storage()));
  Value values[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const auto* first = static_cast<const Storage*>(sources[0]) + begin;
    for (int64_t i = 0; i < n; ++i) values[i] = Access::Load(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const auto* next = static_cast<const Storage*>(sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) values[i] = Combine<kReduction, Value>(values[i], Access::Load(next[i]));
    }
    StoreBlock<Access, kReduction>(absl::MakeSpan(values, n), std::ssize(sources), dsts, begin);
  }
}

// The number of elements per block of a tree. One block of values is kept for each level of the tree.
constexpr int64_t kTreeBlock = 256;

// Writes to `values` the results of the tree over the sources, for the n <= kTreeBlock elements from `begin`.
template <typename Access, Reduction kReduction, typename Value>
void TreeValues(absl::Span<const void* const> sources, int64_t begin, int64_t n, Value* values) {
  if (sources.size() == 1) {
    const auto* from = static_cast<const typename Access::Storage*>(sources[0]) + begin;
    for (int64_t i = 0; i < n; ++i) values[i] = Access::Load(from[i]);
    return;
  }
  const size_t half = std::bit_floor(sources.size() - 1);
  Value right[kTreeBlock];
  TreeValues<Access, kReduction>(sources.first(half), begin, n, values);
  TreeValues<Access, kReduction>(sources.subspan(half), begin, n, right);
  for (int64_t i = 0; i < n; ++i) values[i] = Combine<kReduction, Value>(values[i], right[i]);
}

template <typename Access, Reduction kReduction>
void ReduceTree(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count, StoreKind) {
  using Value = decltype(Access::Load(typename Access::Storage()));
  Value values[kTreeBlock];
  for (int64_t begin = 0; begin < count; begin += kTreeBlock) {
    const int64_t n = std::min(kTreeBlock, count - begin);
    TreeValues<Access, kReduction>(sources, begin, n, values);
    StoreBlock<Access, kReduction>(absl::MakeSpan(values, n), std::ssize(sources), dsts, begin);
  }
}

// The functions for a type, indexed by the reduction's number minus 1; null if the reduction has no meaning for the
// type.
struct Row {
  ElementType type;
  ReduceFunction by_reduction[8];
  // The functions for sum, product and average as balanced trees; null if the result does not depend on the order.
  ReduceFunction trees[3] = {};
};

template <typename A>
constexpr Row Ordered(ElementType type) {
  return {type,
          {Reduce<A, Reduction::kSum>, Reduce<A, Reduction::kProduct>, Reduce<A, Reduction::kMax>,
           Reduce<A, Reduction::kMin>, nullptr, nullptr, nullptr, Reduce<A, Reduction::kAverage>},
          {ReduceTree<A, Reduction::kSum>, ReduceTree<A, Reduction::kProduct>, ReduceTree<A, Reduction::kAverage>}};
}

template <ElementType kType>
constexpr Row OrderedSmallFloat() {
  return Ordered<Widened<kType>>(kType);
}

template <typename A>
constexpr Row Bitwise(ElementType type) {
  return {type,
          {Reduce<A, Reduction::kSum>, Reduce<A, Reduction::kProduct>, Reduce<A, Reduction::kMax>,
           Reduce<A, Reduction::kMin>, Reduce<A, Reduction::kAnd>, Reduce<A, Reduction::kOr>,
           Reduce<A, Reduction::kXor>, Reduce<A, Reduction::kAverage>}};
}

constexpr Row Logical(ElementType type) {
  return {type,
          {Reduce<Pred, Reduction::kSum>, Reduce<Pred, Reduction::kProduct>, Reduce<Pred, Reduction::kMax>,
           Reduce<Pred, Reduction::kMin>, Reduce<Pred, Reduction::kAnd>, Reduce<Pred, Reduction::kOr>,
           Reduce<Pred, Reduction::kXor>, nullptr}};
}

template <typename A>
constexpr Row Unordered(ElementType type) {
  return {type,
          {Reduce<A, Reduction::kSum>, Reduce<A, Reduction::kProduct>, nullptr, nullptr, nullptr, nullptr, nullptr,
           nullptr},
          {ReduceTree<A, Reduction::kSum>, ReduceTree<A, Reduction::kProduct>, nullptr}};
}

constexpr Row kRows[] = {
    Logical(ElementType::kPred),
    Bitwise<Narrow<1, true>>(ElementType::kS1),
    Bitwise<Narrow<2, true>>(ElementType::kS2),
    Bitwise<Narrow<4, true>>(ElementType::kS4),
    Bitwise<Plain<int8_t>>(ElementType::kS8),
    Bitwise<Plain<int16_t>>(ElementType::kS16),
    Bitwise<Plain<int32_t>>(ElementType::kS32),
    Bitwise<Plain<int64_t>>(ElementType::kS64),
    Bitwise<Narrow<1, false>>(ElementType::kU1),
    Bitwise<Narrow<2, false>>(ElementType::kU2),
    Bitwise<Narrow<4, false>>(ElementType::kU4),
    Bitwise<Plain<uint8_t>>(ElementType::kU8),
    Bitwise<Plain<uint16_t>>(ElementType::kU16),
    Bitwise<Plain<uint32_t>>(ElementType::kU32),
    Bitwise<Plain<uint64_t>>(ElementType::kU64),
    OrderedSmallFloat<ElementType::kF8E5M2>(),
    OrderedSmallFloat<ElementType::kF8E4M3>(),
    OrderedSmallFloat<ElementType::kF8E3M4>(),
    OrderedSmallFloat<ElementType::kF8E4M3FN>(),
    OrderedSmallFloat<ElementType::kF8E4M3B11FNUZ>(),
    OrderedSmallFloat<ElementType::kF8E4M3FNUZ>(),
    OrderedSmallFloat<ElementType::kF8E5M2FNUZ>(),
    OrderedSmallFloat<ElementType::kF16>(),
    OrderedSmallFloat<ElementType::kBF16>(),
    Ordered<Plain<float>>(ElementType::kF32),
    Ordered<Plain<double>>(ElementType::kF64),
    Unordered<Plain<std::complex<float>>>(ElementType::kC64),
    Unordered<Plain<std::complex<double>>>(ElementType::kC128),
};

}  // namespace

absl::StatusOr<ReduceFunction> FindScalarReduceFunction(ElementType type, Reduction reduction) {
  const int index = static_cast<int>(reduction) - 1;
  bool has_type = false;
  for (const Row& row : kRows) {
    if (row.type != type) continue;
    has_type = true;
    if (index >= 0 && index < 8 && row.by_reduction[index] != nullptr) return row.by_reduction[index];
  }
  return absl::UnimplementedError(
      absl::StrCat("found a reduction by ", ToString(reduction), " of ", tensor::ToString(type),
                   ", for which collectives have no kernel; expected ",
                   has_type ? "a sum or product, a max or min of values that are not complex, an average of real "
                              "numbers, or a bitwise operation on integers or pred"
                            : "another element type, such as f32"));
}

bool DependsOnOrder(ElementType type, Reduction reduction) {
  const bool accumulates =
      reduction == Reduction::kSum || reduction == Reduction::kProduct || reduction == Reduction::kAverage;
  return accumulates && (tensor::IsFloating(type) || tensor::IsComplex(type));
}

absl::StatusOr<ReduceFunction> FindScalarTreeReduceFunction(ElementType type, Reduction reduction) {
  if (!DependsOnOrder(type, reduction)) return FindScalarReduceFunction(type, reduction);
  const int index = reduction == Reduction::kAverage ? 2 : static_cast<int>(reduction) - 1;
  for (const Row& row : kRows) {
    if (row.type == type && row.trees[index] != nullptr) return row.trees[index];
  }
  return FindScalarReduceFunction(type, reduction).status();
}

absl::StatusOr<ReduceFunction> FindTreeReduceFunction(ElementType type, Reduction reduction) {
  if (!DependsOnOrder(type, reduction)) return FindReduceFunction(type, reduction);
  const ReduceFunction vector = FindVectorReduceKernels(type, reduction).tree;
  if (vector != nullptr) return vector;
  return FindScalarTreeReduceFunction(type, reduction);
}

absl::StatusOr<ReduceFunction> ReduceFunctionOf(const CollectiveSpec& spec) {
  return spec.mode == ReductionMode::kCanonical ? FindTreeReduceFunction(spec.type, spec.reduction)
                                                : FindReduceFunction(spec.type, spec.reduction);
}

absl::Status CheckOrder(const CollectiveSpec& spec, const ScheduleOp& op) {
  const bool is_tree = op.kind == OpKind::kReduceTree;
  if (is_tree == (spec.mode == ReductionMode::kCanonical) || op.sources.size() <= 2) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("found operation \"", Print(op), "\" in a schedule of ", spec.ToString(),
                                          ", expected reductions ", is_tree ? "from left to right" : "as trees"));
}

absl::StatusOr<ReduceFunction> FindReduceFunction(ElementType type, Reduction reduction) {
  const ReduceFunction vector = FindVectorReduceKernels(type, reduction).reduce;
  if (vector != nullptr) return vector;
  return FindScalarReduceFunction(type, reduction);
}

}  // namespace xlad::collectives
