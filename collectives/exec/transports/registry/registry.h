// The table of transports, which send messages between devices. To add a transport, write its folder in transports/,
// add a row in registry.cc, and add a case to Cases() in testing/transport_fixture.h for the conformance suite.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/exec/fabric/fabric.h"

namespace xlad::collectives {

struct TransportRow {
  absl::string_view name;
  absl::string_view summary;  // One line for display.
  // Returns what a fabric needs to use the transport. If the transport cannot be used, the error says what to install
  // or how to start the process.
  absl::StatusOr<TransportChoice> (*choose)();
};

absl::Span<const TransportRow> AllTransports();

// Returns all names, separated by commas.
std::string TransportNames();

// Returns the transport with that name. InvalidArgument, with all names, if there is no such transport; otherwise the
// errors of TransportRow::choose. If `any_network` is true, a plugin may use networks other than the loopback
// interface, and NCCL may connect machines, both without encryption.
absl::StatusOr<TransportChoice> ChooseTransport(absl::string_view name, bool any_network = false);

}  // namespace xlad::collectives
