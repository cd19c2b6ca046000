// The flags that choose how processes exchange messages.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace xlad::cli {

// Declares --transport and --insecure-network.
void AddTransportFlags(CLI::App* app, std::string* transport, bool* any_network);

// Returns OK if `workers` processes can use the transport on this machine. Errors are those of
// collectives::ChooseTransport, and InvalidArgument for several workers if the transport connects only the threads of
// one process.
absl::Status CheckTransport(const std::string& transport, int64_t workers);

}  // namespace xlad::cli
