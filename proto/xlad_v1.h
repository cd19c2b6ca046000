// Makes the messages of package xlad.v1, in which the wire protocol of the service and its log are defined, usable by
// the names that they have in namespace xlad. Included wherever their generated headers are.
#pragma once

namespace xlad {
namespace v1 {}
using namespace v1;  // NOLINT(google-build-using-namespace)
}  // namespace xlad
