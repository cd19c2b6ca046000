// The table of transports: how messages travel between devices. To add one, write its folder in transports/ and a row
// here; transport_test.cc then runs the conformance suite over it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/exec/fabric/fabric.h"

namespace xlad::collectives {

struct TransportRow {
  absl::string_view name;
  absl::string_view summary;  // One line for display.
  // What a fabric needs to use it. An error, with the package to install, if it cannot be used here.
  absl::StatusOr<TransportChoice> (*choose)();
};

absl::Span<const TransportRow> AllTransports();

// All names, separated by commas.
std::string TransportNames();

// The transport with that name. InvalidArgument, with all names, if no transport has it; errors of
// TransportRow::choose. `any_network`: a plugin may use other networks than the loopback interface, without encryption.
absl::StatusOr<TransportChoice> ChooseTransport(absl::string_view name, bool any_network = false);

}  // namespace xlad::collectives
