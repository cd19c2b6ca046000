#include "collectives/exec/widened_launch.h"

#include <algorithm>

#include "collectives/exec/layout.h"
#include "tensor/small_float.h"

namespace xlad::collectives {
namespace {

using tensor::ElementType;

struct Conversion {
  ElementType type;
  void (*widen)(const std::byte* from, float* to, int64_t count);
  void (*round)(const float* from, std::byte* to, int64_t count);
};

template <ElementType kType>
constexpr Conversion ConversionOf() {
  using Codec = tensor::SmallFloat<kType>;
  using Storage = typename Codec::Storage;
  return {kType,
          [](const std::byte* from, float* to, int64_t count) {
            const auto* const elements = reinterpret_cast<const Storage*>(from);
            for (int64_t i = 0; i < count; ++i) to[i] = Codec::Decode(elements[i]);
          },
          [](const float* from, std::byte* to, int64_t count) {
            auto* const elements = reinterpret_cast<Storage*>(to);
            for (int64_t i = 0; i < count; ++i) elements[i] = Codec::Encode(from[i]);
          }};
}

// The floating-point types of at most 16 bits that can be reduced (FindReduceFunction).
constexpr Conversion kConversions[] = {
    ConversionOf<ElementType::kBF16>(),          ConversionOf<ElementType::kF16>(),
    ConversionOf<ElementType::kF8E5M2>(),        ConversionOf<ElementType::kF8E4M3>(),
    ConversionOf<ElementType::kF8E3M4>(),        ConversionOf<ElementType::kF8E4M3FN>(),
    ConversionOf<ElementType::kF8E4M3B11FNUZ>(), ConversionOf<ElementType::kF8E4M3FNUZ>(),
    ConversionOf<ElementType::kF8E5M2FNUZ>(),
};

const Conversion& FindConversion(ElementType type) {
  const auto* const found = std::find_if(std::begin(kConversions), std::end(kConversions),
                                         [&](const Conversion& row) { return row.type == type; });
  XLAD_CHECK(found != std::end(kConversions)) << "found " << tensor::ToString(type) << ", expected a small float";
  return *found;
}

}  // namespace

WidenedLaunch::WidenedLaunch(const CollectiveSpec& spec, int rank, const CollectiveLaunch& launch,
                             std::vector<std::byte>* memory)
    : type_(spec.type), original_(launch), output_counts_(OutputCounts(spec, rank)), widened_(launch) {
  const std::vector<int64_t> input_counts = InputCounts(spec, rank);
  int64_t elements = 0;
  for (const int64_t count : input_counts) elements += count;
  for (const int64_t count : output_counts_) elements += count;
  const size_t bytes = static_cast<size_t>(elements) * sizeof(float);
  if (memory->size() < bytes) memory->resize(bytes);
  std::byte* at = memory->data();
  for (size_t i = 0; i < input_counts.size(); ++i) {
    FindConversion(type_).widen(launch.inputs[i], reinterpret_cast<float*>(at), input_counts[i]);
    inputs_.push_back(at);
    at += input_counts[i] * static_cast<int64_t>(sizeof(float));
  }
  for (const int64_t count : output_counts_) {
    outputs_.push_back(at);
    at += count * static_cast<int64_t>(sizeof(float));
  }
  widened_.inputs = inputs_;
  widened_.outputs = outputs_;
}

void WidenedLaunch::RoundResults() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    FindConversion(type_).round(reinterpret_cast<const float*>(outputs_[i]), original_.outputs[i], output_counts_[i]);
  }
}

}  // namespace xlad::collectives
