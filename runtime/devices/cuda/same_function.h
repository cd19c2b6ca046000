// Compares declarations of functions with those of a vendor's header. Only for tests.
#pragma once

#include <type_traits>

namespace xlad::runtime::cuda {

// Enumerations are passed as ints, and all pointers in the same way.
template <typename Own, typename Theirs>
constexpr bool kSameArgument = sizeof(Own) == sizeof(Theirs) && std::is_pointer_v<Own> == std::is_pointer_v<Theirs>;

template <typename Own, typename Theirs>
struct SameFunction : std::false_type {};
template <typename OwnResult, typename... Own, typename TheirResult, typename... Theirs>
  requires(sizeof...(Own) == sizeof...(Theirs))
struct SameFunction<OwnResult(Own...), TheirResult(Theirs...)>
    : std::bool_constant<kSameArgument<OwnResult, TheirResult> && (kSameArgument<Own, Theirs> && ...)> {};

}  // namespace xlad::runtime::cuda
