// Quantities of chip files: a number and a unit, such as "819 GB/s".
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace xlad::machine {

enum class Dimension { kBytes, kBytesPerSecond, kOperationsPerSecond, kHertz, kSeconds };

// An example of a quantity of the dimension for messages, such as "819 GB/s".
absl::string_view ExampleOf(Dimension dimension);

// The value in bytes, seconds, hertz or operations, without prefix: "16 GB" is 1.6e10 and "128 MiB" is 134217728.
// Decimal prefixes are k, M, G, T, P; binary ones Ki, Mi, Gi, for bytes; the units of times are ns, us, ms and s.
// InvalidArgument, which says what was found and expected, if the text is not a positive finite number with a unit of
// the dimension.
absl::StatusOr<double> ParseQuantity(absl::string_view text, Dimension dimension);

}  // namespace xlad::machine
