// The words for the values of attributes. If the proto has such a value as a number, this number is the position of the
// word in its table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/containers.h"

namespace xlad::hlo {

using Words = absl::Span<const absl::string_view>;

inline constexpr absl::string_view kFftTypes[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
inline constexpr absl::string_view kDistributions[] = {"rng_invalid", "rng_uniform", "rng_normal"};
inline constexpr absl::string_view kRngAlgorithms[] = {"rng_default", "rng_three_fry", "rng_philox"};
inline constexpr absl::string_view kTransposes[] = {"TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"};
inline constexpr absl::string_view kPrecisions[] = {"default", "high", "highest"};
inline constexpr absl::string_view kDotAlgorithms[] = {
    "unset",           "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16",
    "dot_f16_f16_f32", "dot_bf16_bf16_bf16",    "dot_bf16_bf16_f32",                "dot_bf16_bf16_f32_x3",
    "dot_bf16_bf16_f32_x6", "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3",            "dot_f32_f32_f32",
    "dot_f64_f64_f64", "dot_bf16_bf16_f32_x9"};
inline constexpr absl::string_view kApiVersions[] = {
    "API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"};
inline constexpr absl::string_view kComparisons[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};  // Order of enum Comparison.
inline constexpr absl::string_view kComparisonTypes[] = {"", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
inline constexpr absl::string_view kComparisonOrders[] = {"PARTIAL", "TOTAL"};
inline constexpr absl::string_view kFusionKinds[] = {"kLoop", "kInput", "kOutput", "kCustom"};
inline constexpr absl::string_view kTriStates[] = {"", "true", "false"};

// The word with this number, which is an integer or an enumerator, or "" if the table has no such number.
template <typename Number>
absl::string_view WordOf(Words words, Number number) {
  const auto position = static_cast<int64_t>(number);
  return position >= 0 && position < std::ssize(words) ? words[position] : "";
}

}  // namespace xlad::hlo
