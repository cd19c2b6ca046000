// The flags that choose how messages travel between processes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace xlad::cli {

// Declares --transport and --insecure-network.
void AddTransportFlags(CLI::App* app, std::string* transport, bool* any_network);

// Whether the transport can be used here by `workers` processes. Errors as of collectives::ChooseTransport.
absl::Status CheckTransport(const std::string& transport, int64_t workers);

}  // namespace xlad::cli
