// Makes the messages of package xlad.v1 available in namespace xlad. The package defines the wire protocol of the
// service and its log. Files that include the generated headers also include this header.
#pragma once

namespace xlad {
namespace v1 {}
using namespace v1;  // NOLINT(google-build-using-namespace)
}  // namespace xlad
