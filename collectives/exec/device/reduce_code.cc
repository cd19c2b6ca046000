#include "collectives/exec/device/reduce_code.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "collectives/exec/reduce.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

// The bytes of the largest elements, times this limit, are below 2^63.
constexpr int64_t kMaxElements = int64_t{1} << 56;

using tensor::ElementType;

static_assert(DeviceReduction::kMaxSources == XLAD_REDUCE_SOURCES);
static_assert(static_cast<int>(Reduction::kSum) == XLAD_SUM && static_cast<int>(Reduction::kProduct) == XLAD_PRODUCT &&
              static_cast<int>(Reduction::kMax) == XLAD_MAX && static_cast<int>(Reduction::kMin) == XLAD_MIN &&
              static_cast<int>(Reduction::kAnd) == XLAD_AND && static_cast<int>(Reduction::kOr) == XLAD_OR &&
              static_cast<int>(Reduction::kXor) == XLAD_XOR && static_cast<int>(Reduction::kAverage) == XLAD_AVERAGE);

std::optional<XladReduceElement> ElementOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
    case ElementType::kC64:
      return XLAD_REDUCE_F32;
    case ElementType::kF64:
    case ElementType::kC128:
      return XLAD_REDUCE_F64;
    case ElementType::kBF16:
      return XLAD_REDUCE_BF16;
    case ElementType::kF16:
      return XLAD_REDUCE_F16;
    case ElementType::kF8E5M2:
    case ElementType::kF8E4M3:
    case ElementType::kF8E3M4:
    case ElementType::kF8E4M3FN:
    case ElementType::kF8E4M3B11FNUZ:
    case ElementType::kF8E5M2FNUZ:
    case ElementType::kF8E4M3FNUZ:
      return XLAD_REDUCE_F8;
    case ElementType::kPred:
      return XLAD_REDUCE_PRED;
    case ElementType::kS8:
      return XLAD_REDUCE_S8;
    case ElementType::kS16:
      return XLAD_REDUCE_S16;
    case ElementType::kS32:
      return XLAD_REDUCE_S32;
    case ElementType::kS64:
      return XLAD_REDUCE_S64;
    case ElementType::kU8:
      return XLAD_REDUCE_U8;
    case ElementType::kU16:
      return XLAD_REDUCE_U16;
    case ElementType::kU32:
      return XLAD_REDUCE_U32;
    case ElementType::kU64:
      return XLAD_REDUCE_U64;
    default:
      return std::nullopt;
  }
}

uint32_t FormatOf(ElementType type) {
  const tensor::FloatFormat& format = *tensor::FloatFormatOf(type);
  return XLAD_FORMAT(format.mantissa_bits, format.bias, format.max_finite, format.overflow);
}

void RunElements(const XladReduce& what, void* to, const void* const* sources, int64_t count) {
  for (int64_t at = 0; at < count; ++at) XladReduceAt(to, sources, at, &what);
}

// The compiler vectorizes these loops, in which everything but the elements is constant.
template <int kElement, int kReduction>
void RunConstant(int sources, void* to, const void* const* from, int64_t count) {
  const auto run = [&](auto n) {
    static constexpr XladReduce kWhat = {kElement, kReduction, 0, decltype(n)::value, 0};
    for (int64_t at = 0; at < count; ++at) XladReduceAt(to, from, at, &kWhat);
  };
  switch (sources) {
    case 2:
      return run(std::integral_constant<int, 2>());
    case 3:
      return run(std::integral_constant<int, 3>());
    case 4:
      return run(std::integral_constant<int, 4>());
    default:
      return RunElements({kElement, kReduction, 0, sources, 0}, to, from, count);
  }
}

}  // namespace

std::optional<KernelReduction> KernelReductionOf(const DeviceReduction& reduction) {
  const std::optional<XladReduceElement> element = ElementOf(reduction.type);
  if (!element.has_value()) return std::nullopt;
  if (!FindReduceFunction(reduction.type, reduction.reduction).ok()) return std::nullopt;
  const bool is_complex = tensor::IsComplex(reduction.type);
  if (is_complex && reduction.reduction != Reduction::kSum) return std::nullopt;
  // The other reductions have the same results in every order.
  const bool as_tree = reduction.as_tree && DependsOnOrder(reduction.type, reduction.reduction);
  const uint32_t format = *element == XLAD_REDUCE_F8 ? FormatOf(reduction.type) : 0;
  return KernelReduction{{*element, static_cast<int>(reduction.reduction), as_tree ? 1 : 0, 0, format},
                         is_complex ? 2 : 1};
}

absl::StatusOr<KernelReduction> CheckedKernelReduction(const DeviceReduction& reduction, size_t sources,
                                                       int64_t count) {
  std::optional<KernelReduction> kernel = KernelReductionOf(reduction);
  if (!kernel.has_value()) {
    return absl::UnimplementedError(absl::StrCat("found a reduction by ", ToString(reduction.reduction), " of ",
                                                 tensor::ToString(reduction.type),
                                                 ", for which devices have no kernel; expected a type of at least 8 "
                                                 "bits other than f8e8m0fnu, and a sum if the type is complex; reduce "
                                                 "on the host"));
  }
  if (sources < 1 || sources > DeviceReduction::kMaxSources || count < 0 || count > kMaxElements) {
    return absl::InvalidArgumentError(absl::StrCat("found a reduction of ", sources, " arrays of ", count,
                                                   " elements, expected 1 to ", DeviceReduction::kMaxSources,
                                                   " arrays of 0 to ", kMaxElements, " elements; divide the arrays"));
  }
  kernel->what.sources = static_cast<int>(sources);
  return *kernel;
}

void RunReduceKernel(const XladReduce& what, void* to, absl::Span<const void* const> sources, int64_t count) {
  const void* from[XLAD_REDUCE_SOURCES] = {};
  std::copy(sources.begin(), sources.end(), from);
  if (what.reduction == XLAD_SUM && what.as_tree == 0) {
    if (what.element == XLAD_REDUCE_F32) return RunConstant<XLAD_REDUCE_F32, XLAD_SUM>(what.sources, to, from, count);
    if (what.element == XLAD_REDUCE_BF16) return RunConstant<XLAD_REDUCE_BF16, XLAD_SUM>(what.sources, to, from, count);
  }
  RunElements(what, to, from, count);
}

}  // namespace xlad::collectives
