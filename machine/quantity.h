// Quantities of chip files: a number and a unit, such as "819 GB/s".
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::machine {

enum class Dimension { kBytes, kBytesPerSecond, kOperationsPerSecond, kHertz, kSeconds };

// An example of a quantity of this dimension, such as "819 GB/s", for messages.
absl::string_view ExampleOf(Dimension dimension);

// The value in the dimension's unit without prefix (bytes, bytes per second, operations per second, hertz or seconds):
// "16 GB" is 1.6e10 and "128 MiB" is 134217728. Decimal prefixes are k, M, G, T and P. Bytes also have the binary
// prefixes Ki, Mi and Gi. Times are in ns, us, ms or s. InvalidArgument, with what was found and what was expected, if
// the text is not a positive decimal number with a unit of the dimension, or if the quantity is far outside of what any
// chip has, such as 1e20 s.
absl::StatusOr<double> ParseQuantity(absl::string_view text, Dimension dimension);

}  // namespace xlad::machine
