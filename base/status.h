// Macros and helpers for absl::Status.
//
// Every function that can fail because of its input, a file, a peer or the system returns absl::Status or
// absl::StatusOr<T>. XLAD_CHECK is for invariants of the code itself: if one is violated, it prints file, line,
// condition and message to stderr and aborts.
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace xlad {

// Returns an error of the same code whose message is preceded by `context` and ": ", or OK if `status` is OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

namespace internal {

// Collects the message of a failed XLAD_CHECK and aborts when it goes out of scope.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

}  // namespace internal
}  // namespace xlad

#define XLAD_CONCAT_INNER_(a, b) a##b
#define XLAD_CONCAT_(a, b) XLAD_CONCAT_INNER_(a, b)

// Returns the error of a Status expression from the enclosing function.
#define XLAD_RETURN_IF_ERROR(expr)                       \
  do {                                                   \
    absl::Status xlad_status_ = (expr);                  \
    if (!xlad_status_.ok()) return xlad_status_;         \
  } while (false)

// Assigns the value of a StatusOr expression to `lhs` (which may declare a variable), or returns its error from the
// enclosing function.
#define XLAD_ASSIGN_OR_RETURN(lhs, expr) \
  XLAD_ASSIGN_OR_RETURN_IMPL_(XLAD_CONCAT_(xlad_or_, __LINE__), lhs, expr)
#define XLAD_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                \
  if (!tmp.ok()) return std::move(tmp).status();    \
  lhs = *std::move(tmp)

// XLAD_CHECK(size > 0) << "found " << size; the condition must not depend on the user's input.
#define XLAD_CHECK(condition)  \
  if (condition) [[likely]] {} \
  else ::xlad::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()
