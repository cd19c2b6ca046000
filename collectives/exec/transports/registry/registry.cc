#include "collectives/exec/transports/registry/registry.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/exec/transports/plugin/load.h"

namespace xlad::collectives {
namespace {

absl::StatusOr<TransportChoice> Auto() { return TransportChoice(); }

absl::StatusOr<TransportChoice> InProcess() {
  TransportChoice choice;
  choice.name = "in-process";
  choice.one_process = true;
  return choice;
}

absl::StatusOr<TransportChoice> SharedMemory() {
  TransportChoice choice;
  choice.name = "shm";
  choice.requires_shared_memory = true;
  return choice;
}

absl::StatusOr<TransportChoice> Tcp() {
  TransportChoice choice;
  choice.name = "tcp";
  choice.shares_memory = false;
  return choice;
}

absl::StatusOr<TransportChoice> Plugin(const char* name, const PluginSource& source) {
  TransportChoice choice;
  choice.name = name;
  choice.shares_memory = false;
  XLAD_ASSIGN_OR_RETURN(choice.plugin, LoadPlugin(source));
  return choice;
}

absl::StatusOr<TransportChoice> Ucx() { return Plugin("ucx", {"ucx", "libucx-dev", "libucx0"}); }

// The plugin must be built for the MPI whose launcher has started this process.
absl::StatusOr<TransportChoice> Mpi() {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) {
    return Plugin("mpi", {"openmpi", "libopenmpi-dev", "libopenmpi3"});
  }
  if (std::getenv("PMI_RANK") != nullptr) return Plugin("mpi", {"mpich", "libmpich-dev", "libmpich12"});
  return absl::FailedPreconditionError(
      "transport mpi: no launcher of MPI has started this process: found neither OMPI_COMM_WORLD_RANK nor PMI_RANK; "
      "start it with mpirun of Open MPI or MPICH");
}

constexpr TransportRow kTransports[] = {
    {"auto", "shared memory between processes of one host, TCP between hosts", Auto},
    {"in-process", "threads of one process; several processes are an error", InProcess},
    {"shm", "shared memory between processes of one host", SharedMemory},
    {"tcp", "TCP between all processes", Tcp},
    {"ucx", "UCX between all processes (plugin)", Ucx},
    {"mpi", "MPI between all processes, under mpirun (plugin)", Mpi},
};

}  // namespace

absl::Span<const TransportRow> AllTransports() { return kTransports; }

std::string TransportNames() {
  return absl::StrJoin(kTransports, ", ",
                       [](std::string* out, const TransportRow& row) { absl::StrAppend(out, row.name); });
}

absl::StatusOr<TransportChoice> ChooseTransport(absl::string_view name, bool any_network) {
  for (const TransportRow& row : kTransports) {
    if (row.name != name) continue;
    XLAD_ASSIGN_OR_RETURN(TransportChoice choice, row.choose());
    choice.any_network = any_network;
    return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--transport: found \"", name, "\", expected one of ", TransportNames()));
}

}  // namespace xlad::collectives
