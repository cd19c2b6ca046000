// The words that attributes choose from. A word's position is its number in the proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

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
inline constexpr absl::string_view kComparisons[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};  // enum Comparison's order.
inline constexpr absl::string_view kComparisonTypes[] = {"", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
inline constexpr absl::string_view kComparisonOrders[] = {"PARTIAL", "TOTAL"};
inline constexpr absl::string_view kFusionKinds[] = {"kLoop", "kInput", "kOutput", "kCustom"};
inline constexpr absl::string_view kTriStates[] = {"", "true", "false"};

inline std::optional<int64_t> IndexOf(Words words, absl::string_view word) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

// The word of a number; empty beyond the table.
inline absl::string_view WordOf(Words words, int64_t number) {
  return number >= 0 && number < std::ssize(words) ? words[number] : "";
}

}  // namespace xlad::hlo
