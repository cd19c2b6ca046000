#include "cli/transports.h"

#include "absl/strings/str_cat.h"
#include "cli/flag_checks.h"
#include "cli/wrong_usage.h"
#include "collectives/exec/transports/registry/registry.h"

namespace xlad::cli {

void AddTransportFlags(CLI::App* app, std::string* transport, bool* any_network) {
  std::vector<std::string> names;
  for (const collectives::TransportRow& row : collectives::AllTransports()) names.emplace_back(row.name);
  app->add_option("--transport", *transport,
                  absl::StrCat("how processes exchange messages: ", collectives::TransportNames()))
      ->capture_default_str()
      ->check(OneOf(names));
  app->add_flag("--insecure-network", *any_network,
                "let ucx, mpi and NCCL connect machines, without encryption");
}

absl::Status CheckTransport(const std::string& transport, int64_t workers) {
  XLAD_ASSIGN_OR_RETURN(const collectives::TransportChoice choice, collectives::ChooseTransport(transport));
  if (!choice.one_process || workers == 1) return absl::OkStatus();
  return WrongUsage(absl::InvalidArgumentError(
      absl::StrCat("--transport ", transport, ": found ", workers,
                   " workers, expected 1, because this transport connects only threads of one process")));
}

}  // namespace xlad::cli
