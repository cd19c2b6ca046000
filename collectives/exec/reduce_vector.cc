// Reductions with vector instructions. Highway (github.com/google/highway) compiles them for several instruction sets
// and chooses one at run time.
#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "collectives/exec/reduce.h"
#include "tensor/small_float.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/exec/reduce_vector.cc"
// On x86, SSSE3, SSE4 and AVX3_DL are not compiled. A machine then uses an older instruction set or the scalar loops of
// reduce.cc.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace xlad::collectives {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR

ReduceKernels Find(tensor::ElementType, Reduction) { return {}; }
void Copy(void* dst, const void* src, int64_t bytes, StoreKind) { std::memcpy(dst, src, bytes); }

#else

namespace hn = hwy::HWY_NAMESPACE;
using tensor::ElementType;
using tensor::FloatFormat;

// The representation of elements in memory and while they are reduced. One load reads one vector.
template <typename T, class Tag = hn::ScalableTag<T>>
struct Plain {
  using Storage = T;
  using D = Tag;
  using V = hn::Vec<D>;
  static HWY_INLINE V Load(const Storage* from) { return hn::LoadU(D(), from); }
  template <bool kStream>
  static HWY_INLINE void Store(V value, Storage* to) {
    if constexpr (kStream) {
      hn::Stream(value, D(), to);
    } else {
      hn::StoreU(value, D(), to);
    }
  }
};

// In pred, zero is false and every other value is true. The results are 0 and 1.
template <class Tag = hn::ScalableTag<uint8_t>>
struct Pred : Plain<uint8_t, Tag> {
  static HWY_INLINE hn::Vec<Tag> Load(const uint8_t* from) {
    return hn::Min(hn::LoadU(Tag(), from), hn::Set(Tag(), 1));
  }
};

// The formulas are those of tensor/small_float.h, element by element.
template <ElementType kType, class Tag = hn::ScalableTag<float>>
struct Small {
  static constexpr const FloatFormat& kFormat = *tensor::FloatFormatOf(kType);
  using Storage = std::conditional_t<(kFormat.bits > 8), uint16_t, uint8_t>;
  using D = Tag;
  using V = hn::Vec<D>;
  using DU = hn::RebindToUnsigned<D>;
  using DS = hn::Rebind<Storage, D>;
  static constexpr int kMantissa = kFormat.mantissa_bits;
  static constexpr bool kUnsignedZero = kFormat.specials == FloatFormat::Specials::kUnsignedZero;
  static constexpr uint32_t PowerOfTwo(int exponent) { return static_cast<uint32_t>(exponent + 127) << 23; }

  static HWY_INLINE V Load(const Storage* from) {
    const D d;
    const DU du;
    const auto bits = hn::PromoteTo(du, hn::LoadU(DS(), from));
    if constexpr (kType == ElementType::kBF16) return hn::BitCast(d, hn::ShiftLeft<16>(bits));
    const auto code = hn::And(bits, hn::Set(du, (1u << (kFormat.bits - 1)) - 1));
    const auto sign = hn::ShiftLeft<32 - kFormat.bits>(hn::AndNot(hn::Set(du, (1u << (kFormat.bits - 1)) - 1), bits));
    const auto normal = hn::Add(hn::ShiftLeft<23 - kMantissa>(code), hn::Set(du, (127u - kFormat.bias) << 23));
    const auto scale = hn::BitCast(d, hn::Set(du, PowerOfTwo(1 - kFormat.bias - kMantissa)));
    const auto subnormal =
        hn::BitCast(du, hn::Mul(hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), code)), scale));
    auto magnitude = hn::IfThenElse(hn::Lt(code, hn::Set(du, 1u << kMantissa)), subnormal, normal);
    const auto nan = hn::Set(du, 0x7FC00000u);
    magnitude = hn::IfThenElse(hn::Gt(code, hn::Set(du, kFormat.max_finite)), nan, magnitude);
    if constexpr (kFormat.specials == FloatFormat::Specials::kIeee) {
      magnitude = hn::IfThenElse(hn::Eq(code, hn::Set(du, kFormat.overflow)), hn::Set(du, 0x7F800000u), magnitude);
    }
    auto result = hn::Or(magnitude, sign);
    if constexpr (kUnsignedZero) result = hn::IfThenElse(hn::Eq(bits, hn::Set(du, kFormat.nan)), nan, result);
    return hn::BitCast(d, result);
  }

  static HWY_INLINE hn::Vec<DU> Encode(V value) {
    const D d;
    const DU du;
    const auto all = hn::BitCast(du, value);
    const auto sign = hn::ShiftLeft<kFormat.bits - 1>(hn::ShiftRight<31>(all));
    const auto magnitude = hn::And(all, hn::Set(du, 0x7FFFFFFFu));
    const auto is_nan = hn::Gt(magnitude, hn::Set(du, 0x7F800000u));
    constexpr int kDrop = 23 - kMantissa;
    const auto odd = hn::And(hn::ShiftRight<kDrop>(magnitude), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, (1u << (kDrop - 1)) - 1)), odd);
    if constexpr (kType == ElementType::kBF16) {
      return hn::Or(hn::IfThenElse(is_nan, hn::Set(du, kFormat.nan), hn::ShiftRight<kDrop>(rounded)), sign);
    }
    const auto normal = hn::Sub(hn::ShiftRight<kDrop>(rounded), hn::Set(du, (127u - kFormat.bias) << kMantissa));
    const auto shifted = hn::Set(du, PowerOfTwo(1 - kFormat.bias - kMantissa + 23));
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, shifted))), shifted);
    auto code = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, PowerOfTwo(1 - kFormat.bias))), subnormal, normal);
    code = hn::IfThenElse(hn::Gt(code, hn::Set(du, kFormat.max_finite)), hn::Set(du, kFormat.overflow), code);
    if constexpr (kUnsignedZero) {
      const auto nan = hn::Set(du, kFormat.nan);
      const auto unsigned_code = hn::Or(hn::Eq(code, hn::Zero(du)), hn::Eq(code, nan));
      return hn::IfThenElse(is_nan, nan, hn::IfThenElse(unsigned_code, code, hn::Or(code, sign)));
    } else {
      return hn::Xor(hn::IfThenElse(is_nan, hn::Set(du, kFormat.nan), code), sign);
    }
  }

  template <bool kStream>
  static HWY_INLINE void Store(V value, Storage* to) {
    hn::StoreU(hn::TruncateTo(DS(), Encode(value)), DS(), to);
  }
};

template <Reduction kReduction, class D, class V>
HWY_INLINE V Combine(D d, V a, V b) {
  if constexpr (kReduction == Reduction::kSum || kReduction == Reduction::kAverage) return hn::Add(a, b);
  if constexpr (kReduction == Reduction::kXor) return hn::Xor(a, b);
  if constexpr (kReduction == Reduction::kProduct) return hn::Mul(a, b);
  if constexpr (kReduction == Reduction::kAnd) return hn::And(a, b);
  if constexpr (kReduction == Reduction::kOr) return hn::Or(a, b);
  if constexpr (kReduction == Reduction::kMax || kReduction == Reduction::kMin) {
    constexpr bool kIsMax = kReduction == Reduction::kMax;
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      const auto first = kIsMax ? hn::Gt(a, b) : hn::Lt(a, b);
      const V unequal = hn::IfThenElse(hn::Or(first, hn::IsNaN(a)), a, b);
      // Equal operands differ at most in the sign of a zero, and -0 is less than +0.
      const V equal = kIsMax ? hn::And(a, b) : hn::Or(a, b);
      return hn::IfThenElse(hn::Eq(a, b), equal, unequal);
    } else {
      return kIsMax ? hn::Max(a, b) : hn::Min(a, b);
    }
  }
}

// Returns the stored value, given the combined value of `sources` operands.
template <Reduction kReduction, class D, class V>
HWY_INLINE V Final(D d, V value, size_t sources) {
  if constexpr (kReduction == Reduction::kAverage) {
    return hn::Div(value, hn::Set(d, static_cast<hn::TFromD<D>>(sources)));
  } else {
    return value;
  }
}

constexpr int kUnroll = 4;

// How sources are combined: from left to right, or as a balanced tree.
enum class Shape { kChain, kTree };

// Returns one vector of the tree over the first min(count, 4) sources.
template <class Access, Reduction kReduction>
HWY_INLINE typename Access::V TreeOfFour(const void* const* sources, size_t count, int64_t at) {
  const typename Access::D d;
  const auto load = [&](size_t s) {
    return Access::Load(static_cast<const typename Access::Storage*>(sources[s]) + at);
  };
  const auto first = load(0);
  if (count == 1) return first;
  const auto both = Combine<kReduction>(d, first, load(1));
  if (count == 2) return both;
  if (count == 3) return Combine<kReduction>(d, both, load(2));
  return Combine<kReduction>(d, both, Combine<kReduction>(d, load(2), load(3)));
}

// The maximum number of kept subtrees: one for each bit of the number of groups of four sources.
constexpr int kMaxKept = 32;

// Computes two vectors of the tree over all sources. Each group of four sources is a subtree. Two complete subtrees of
// equal size are combined at once, like the carries of a binary counter. The remaining subtrees are combined at the
// end.
template <class Access, Reduction kReduction, class V>
HWY_INLINE void TreeOf(absl::Span<const void* const> sources, int64_t at, V& v0, V& v1) {
  const typename Access::D d;
  const int64_t lanes = hn::Lanes(d);
  HWY_ALIGN hn::TFromD<typename Access::D> kept[kMaxKept * 2 * hn::MaxLanes(typename Access::D())];
  int num_kept = 0;
  for (size_t first = 0;; first += 4) {
    const void* const* const four = sources.data() + first;
    const size_t left = sources.size() - first;
    v0 = TreeOfFour<Access, kReduction>(four, left, at);
    v1 = TreeOfFour<Access, kReduction>(four, left, at + lanes);
    for (int carries = left <= 4 ? num_kept : std::countr_one(first / 4); carries > 0; --carries) {
      const auto* const top = kept + --num_kept * 2 * lanes;
      v0 = Combine<kReduction>(d, hn::Load(d, top), v0);
      v1 = Combine<kReduction>(d, hn::Load(d, top + lanes), v1);
    }
    if (left <= 4) return;
    auto* const next = kept + num_kept++ * 2 * lanes;
    hn::Store(v0, d, next);
    hn::Store(v1, d, next + lanes);
  }
}

// Returns one vector of the tree over all sources. Reads only `bytes` bytes of each source, at most one vector.
template <class Access, Reduction kReduction>
typename Access::V TreeOfRest(const void* const* sources, size_t count, int64_t at, size_t bytes) {
  using Storage = typename Access::Storage;
  if (count == 1) {
    HWY_ALIGN Storage buffer[hn::MaxLanes(typename Access::D())] = {};
    std::memcpy(buffer, static_cast<const Storage*>(sources[0]) + at, bytes);
    return Access::Load(buffer);
  }
  const size_t half = std::bit_floor(count - 1);
  const auto left = TreeOfRest<Access, kReduction>(sources, half, at, bytes);
  return Combine<kReduction>(typename Access::D(), left,
                             TreeOfRest<Access, kReduction>(sources + half, count - half, at, bytes));
}

// Reduces kUnroll vectors of each source.
template <class Access, Reduction kReduction, Shape kShape, bool kStream>
HWY_INLINE void ReduceBlock(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t at) {
  using Storage = typename Access::Storage;
  const typename Access::D d;
  const int64_t lanes = hn::Lanes(d);
  typename Access::V v0, v1, v2, v3;
  if constexpr (kShape == Shape::kChain) {
    const Storage* from = static_cast<const Storage*>(sources[0]) + at;
    v0 = Access::Load(from), v1 = Access::Load(from + lanes);
    v2 = Access::Load(from + 2 * lanes), v3 = Access::Load(from + 3 * lanes);
    for (size_t s = 1; s < sources.size(); ++s) {
      from = static_cast<const Storage*>(sources[s]) + at;
      v0 = Combine<kReduction>(d, v0, Access::Load(from));
      v1 = Combine<kReduction>(d, v1, Access::Load(from + lanes));
      v2 = Combine<kReduction>(d, v2, Access::Load(from + 2 * lanes));
      v3 = Combine<kReduction>(d, v3, Access::Load(from + 3 * lanes));
    }
  } else {
    TreeOf<Access, kReduction>(sources, at, v0, v1);
    TreeOf<Access, kReduction>(sources, at + 2 * lanes, v2, v3);
  }
  v0 = Final<kReduction>(d, v0, sources.size());
  v1 = Final<kReduction>(d, v1, sources.size());
  v2 = Final<kReduction>(d, v2, sources.size());
  v3 = Final<kReduction>(d, v3, sources.size());
  for (void* const dst : dsts) {
    Storage* const to = static_cast<Storage*>(dst) + at;
    Access::template Store<kStream>(v0, to);
    Access::template Store<kStream>(v1, to + lanes);
    Access::template Store<kStream>(v2, to + 2 * lanes);
    Access::template Store<kStream>(v3, to + 3 * lanes);
  }
}

// Reduces fewer elements than a block has. The elements of a source are copied to a buffer of one vector.
template <class Access, Reduction kReduction, Shape kShape>
void ReduceRest(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t at, int64_t count) {
  using Storage = typename Access::Storage;
  const typename Access::D d;
  const int64_t lanes = hn::Lanes(d);
  HWY_ALIGN Storage buffer[hn::MaxLanes(typename Access::D())] = {};
  for (int64_t i = 0; i < count; i += lanes) {
    const size_t bytes = std::min(lanes, count - i) * sizeof(Storage);
    typename Access::V value;
    if constexpr (kShape == Shape::kChain) {
      std::memcpy(buffer, static_cast<const Storage*>(sources[0]) + at + i, bytes);
      value = Access::Load(buffer);
      for (size_t s = 1; s < sources.size(); ++s) {
        std::memcpy(buffer, static_cast<const Storage*>(sources[s]) + at + i, bytes);
        value = Combine<kReduction>(d, value, Access::Load(buffer));
      }
    } else {
      value = TreeOfRest<Access, kReduction>(sources.data(), sources.size(), at + i, bytes);
    }
    Access::template Store<false>(Final<kReduction>(d, value, sources.size()), buffer);
    for (void* const dst : dsts) std::memcpy(static_cast<Storage*>(dst) + at + i, buffer, bytes);
  }
}

// Returns the number of elements before the first one at which all destinations are aligned for streaming stores, or -1
// if the destinations are never aligned at the same element.
template <typename Storage>
int64_t ElementsBeforeAligned(absl::Span<void* const> dsts, int64_t vector_bytes) {
  const auto offset = [&](void* dst) { return reinterpret_cast<uintptr_t>(dst) % vector_bytes; };
  const int64_t first = offset(dsts[0]);
  for (void* const dst : dsts) {
    if (static_cast<int64_t>(offset(dst)) != first) return -1;
  }
  const int64_t missing = (vector_bytes - first) % vector_bytes;
  return missing % sizeof(Storage) == 0 ? missing / sizeof(Storage) : -1;
}

template <class Access, Reduction kReduction, Shape kShape = Shape::kChain>
void Reduce(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count, StoreKind store) {
  using Storage = typename Access::Storage;
  constexpr bool kCanStream = std::is_same_v<Storage, hn::TFromD<typename Access::D>>;
  const int64_t lanes = hn::Lanes(typename Access::D());
  const int64_t block = kUnroll * lanes;
  int64_t at = 0;
  if constexpr (kCanStream) {
    const int64_t before = store == StoreKind::kStreaming && !dsts.empty()
                               ? ElementsBeforeAligned<Storage>(dsts, lanes * sizeof(Storage))
                               : -1;
    if (before >= 0 && before + block <= count) {
      ReduceRest<Access, kReduction, kShape>(dsts, sources, 0, before);
      for (at = before; at + block <= count; at += block) {
        ReduceBlock<Access, kReduction, kShape, true>(dsts, sources, at);
      }
      hwy::FlushStream();
    }
  }
  for (; at + block <= count; at += block) ReduceBlock<Access, kReduction, kShape, false>(dsts, sources, at);
  ReduceRest<Access, kReduction, kShape>(dsts, sources, at, count - at);
}

// The tree over up to three sources combines them from left to right.
template <class Access, Reduction kReduction>
void ReduceTree(absl::Span<void* const> dsts, absl::Span<const void* const> sources, int64_t count, StoreKind store) {
  if (sources.size() <= 3) return Reduce<Access, kReduction>(dsts, sources, count, store);
  Reduce<Access, kReduction, Shape::kTree>(dsts, sources, count, store);
}

// Reduces payloads in vectors of at most 16 bytes. A payload has kSmallBytes bytes, which is a multiple of 16, so no
// vector extends beyond it.
template <class Access, Reduction kReduction>
void ReduceSmall(void* dst, absl::Span<const void* const> sources, int64_t offset, int64_t bytes) {
  using Storage = typename Access::Storage;
  const typename Access::D d;
  constexpr int64_t kLanes = hn::MaxLanes(typename Access::D());
  constexpr int64_t kStep = kLanes * sizeof(Storage);
  HWY_ALIGN std::byte result[kSmallBytes];
  for (int64_t at = offset / kStep * kStep; at < offset + bytes; at += kStep) {
    const auto load = [&](size_t s) {
      return Access::Load(reinterpret_cast<const Storage*>(static_cast<const std::byte*>(sources[s]) + at));
    };
    auto value = load(0);
    for (size_t s = 1; s < sources.size(); ++s) value = Combine<kReduction>(d, value, load(s));
    Access::template Store<false>(Final<kReduction>(d, value, sources.size()), reinterpret_cast<Storage*>(result + at));
  }
  if (bytes == 8) {
    std::memcpy(dst, result + offset, 8);
  } else if (bytes == 4) {
    std::memcpy(dst, result + offset, 4);
  } else {
    std::memcpy(dst, result + offset, bytes);
  }
}

template <class Full, class Half, Reduction kReduction>
constexpr ReduceKernels kKernels = {Reduce<Full, kReduction>, ReduceSmall<Half, kReduction>};
template <class Full, class Half, Reduction kReduction>
constexpr ReduceKernels kOrderedKernels = {Reduce<Full, kReduction>, ReduceSmall<Half, kReduction>,
                                           ReduceTree<Full, kReduction>};

template <typename Full, typename Half>
ReduceKernels Floating(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return kOrderedKernels<Full, Half, Reduction::kSum>;
    case Reduction::kProduct:
      return kOrderedKernels<Full, Half, Reduction::kProduct>;
    case Reduction::kMax:
      return kKernels<Full, Half, Reduction::kMax>;
    case Reduction::kMin:
      return kKernels<Full, Half, Reduction::kMin>;
    case Reduction::kAverage:
      return kOrderedKernels<Full, Half, Reduction::kAverage>;
    default:
      return {};
  }
}

template <typename T>
ReduceKernels Float(Reduction reduction) {
  return Floating<Plain<T>, Plain<T, hn::CappedTag<T, 16 / sizeof(T)>>>(reduction);
}

template <ElementType kType>
ReduceKernels SmallFloat(Reduction reduction) {
  return Floating<Small<kType>, Small<kType, hn::CappedTag<float, 4>>>(reduction);
}

// Signed and unsigned integers differ only in comparisons. The scalar loop computes averages, and products of integers
// of 8 and 64 bits.
template <typename T>
ReduceKernels Integer(Reduction reduction) {
  using Full = Plain<T>;
  using Half = Plain<T, hn::CappedTag<T, 16 / sizeof(T)>>;
  if (reduction == Reduction::kMax) return kKernels<Full, Half, Reduction::kMax>;
  if (reduction == Reduction::kMin) return kKernels<Full, Half, Reduction::kMin>;
  if constexpr (std::is_signed_v<T>) {
    return Integer<std::make_unsigned_t<T>>(reduction);
  } else {
    if (reduction == Reduction::kAnd) return kKernels<Full, Half, Reduction::kAnd>;
    if (reduction == Reduction::kOr) return kKernels<Full, Half, Reduction::kOr>;
    if (reduction == Reduction::kXor) return kKernels<Full, Half, Reduction::kXor>;
    if (reduction == Reduction::kSum) return kKernels<Full, Half, Reduction::kSum>;
    if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
      if (reduction == Reduction::kProduct) return kKernels<Full, Half, Reduction::kProduct>;
    }
    return {};
  }
}

ReduceKernels Logical(Reduction reduction) {
  using Half = Pred<hn::CappedTag<uint8_t, 16>>;
  if (reduction == Reduction::kXor) return kKernels<Pred<>, Half, Reduction::kXor>;
  if (reduction == Reduction::kAverage) return {};
  const bool any = reduction == Reduction::kSum || reduction == Reduction::kMax || reduction == Reduction::kOr;
  return any ? kKernels<Pred<>, Half, Reduction::kMax> : kKernels<Pred<>, Half, Reduction::kMin>;
}

ReduceKernels Find(ElementType type, Reduction reduction) {
  switch (type) {
    case ElementType::kPred:
      return Logical(reduction);
    case ElementType::kS8:
      return Integer<int8_t>(reduction);
    case ElementType::kS16:
      return Integer<int16_t>(reduction);
    case ElementType::kS32:
      return Integer<int32_t>(reduction);
    case ElementType::kS64:
      return Integer<int64_t>(reduction);
    case ElementType::kU8:
      return Integer<uint8_t>(reduction);
    case ElementType::kU16:
      return Integer<uint16_t>(reduction);
    case ElementType::kU32:
      return Integer<uint32_t>(reduction);
    case ElementType::kU64:
      return Integer<uint64_t>(reduction);
    case ElementType::kF8E4M3FN:
      return SmallFloat<ElementType::kF8E4M3FN>(reduction);
    case ElementType::kF8E5M2:
      return SmallFloat<ElementType::kF8E5M2>(reduction);
    case ElementType::kF16:
      return SmallFloat<ElementType::kF16>(reduction);
    case ElementType::kBF16:
      return SmallFloat<ElementType::kBF16>(reduction);
    case ElementType::kF32:
      return Float<float>(reduction);
    case ElementType::kF64:
      return Float<double>(reduction);
    default:
      return {};
  }
}

void Copy(void* dst, const void* src, int64_t bytes, StoreKind store) {
  void* const dsts[] = {dst};
  const void* const sources[] = {src};
  Reduce<Plain<uint8_t>, Reduction::kOr>(dsts, sources, bytes, store);
}

#endif  // HWY_TARGET
}  // namespace HWY_NAMESPACE
}  // namespace xlad::collectives
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace xlad::collectives {

HWY_EXPORT(Find);
HWY_EXPORT(Copy);

ReduceKernels FindVectorReduceKernels(tensor::ElementType type, Reduction reduction) {
  if (reduction < Reduction::kSum || reduction > Reduction::kAverage) return {};
  return HWY_DYNAMIC_DISPATCH(Find)(type, reduction);
}

namespace {

// Whether memcpy may use an instruction ("rep movsb") that is slow for these addresses. On an AMD EPYC 7003, it copies
// 2 instead of 40 GB/s if `dst` is 1 to 31 bytes after `src`, apart from a multiple of the page size. The distance
// between a user's buffer and memory that ranks share can have any value. memcpy does not use this instruction for less
// than kLeast bytes. Copies of more than kMost bytes were not measured. memcpy bypasses the cache for the largest ones.
bool MayCopySlowly(const void* dst, const void* src, int64_t bytes) {
  constexpr int64_t kLeast = 2048, kMost = 400'000;
  constexpr uintptr_t kPage = 4096, kNear = 32;
  const uintptr_t distance = (reinterpret_cast<uintptr_t>(dst) - reinterpret_cast<uintptr_t>(src)) % kPage;
  return bytes >= kLeast && bytes <= kMost && distance > 0 && distance < kNear;
}

}  // namespace

void CopyBytes(void* dst, const void* src, int64_t bytes, StoreKind store) {
  if (bytes == 0) return;
  if (store == StoreKind::kCached && !MayCopySlowly(dst, src, bytes)) {
    std::memcpy(dst, src, bytes);
  } else {
    HWY_DYNAMIC_DISPATCH(Copy)(dst, src, bytes, store);
  }
}

}  // namespace xlad::collectives
#endif  // HWY_ONCE
