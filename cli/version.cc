// `xlad version`: the version, the kinds of device that this binary and this machine have, and NCCL.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/command.h"
#include "collectives/exec/nccl/nccl_library.h"
#include "runtime/devices/registry/registry.h"

namespace xlad::cli {
namespace {

// NCCL is only loaded on machines with GPUs that can use it.
absl::StatusOr<const collectives::nccl::Library*> FindNccl() {
  for (const runtime::DeviceKind& kind : runtime::AllDeviceKinds()) {
    if (kind.name != "cuda") continue;
    if (const absl::Status available = kind.available(); !available.ok()) return Annotate(available, "no kind cuda");
    return collectives::nccl::TheNccl();
  }
  return absl::UnavailableError("this binary has no kind cuda");
}

int RunVersion(const std::string& format) {
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  std::string table;
  bool has_cuda = false;
  for (const runtime::DeviceKind& kind : runtime::AllDeviceKinds()) {
    const absl::Status available = kind.available();
    has_cuda = has_cuda || (kind.name == "cuda" && available.ok());
    std::vector<std::string> memory;
    for (const MemoryKind memory_kind : kind.memory) memory.push_back(runtime::MemoryKindName(memory_kind));
    nlohmann::ordered_json row = {{"kind", kind.name},
                                  {"description", kind.description},
                                  {"models", kind.models},
                                  {"memory_kinds", memory},
                                  {"available", available.ok()}};
    if (!available.ok()) row["reason"] = std::string(available.message());
    const std::string libraries = available.ok() && kind.libraries != nullptr ? kind.libraries() : "";
    if (!libraries.empty()) row["libraries"] = libraries;
    kinds.push_back(std::move(row));
    absl::StrAppend(&table, "device kind ", kind.name, ": ", kind.description,
                    available.ok() ? "" : absl::StrCat(" (not on this machine: ", available.message(), ")"),
                    libraries.empty() ? "" : absl::StrCat(" (", libraries, ")"), "\n");
  }
  const auto nccl = FindNccl();
  const std::string found = nccl.ok() ? collectives::nccl::VersionText((*nccl)->version) : "";
  if (nccl.ok()) absl::StrAppend(&table, "NCCL: ", found, " (", (*nccl)->name, ")\n");
  if (!nccl.ok() && has_cuda) absl::StrAppend(&table, nccl.status().message(), "\n");
  if (format == "json") {
    nlohmann::ordered_json json = {{"version", XLAD_VERSION}, {"devices", kinds}};
    json["nccl"] = {{"available", nccl.ok()}};
    if (nccl.ok()) json["nccl"]["version"] = found;
    if (!nccl.ok()) json["nccl"]["reason"] = std::string(nccl.status().message());
    std::printf("%s\n", JsonText(json, 2).c_str());
  } else {
    std::printf("xlad %s\n%s", XLAD_VERSION, table.c_str());
  }
  return kOk;
}

}  // namespace

void AddVersion(CLI::App& parent, Action* action) {
  CLI::App* app =
      parent.add_subcommand("version", "print the version, the kinds of device, and whether NCCL was found");
  app->footer("Example:\n  xlad version --format json");
  auto format = std::make_shared<std::string>();
  AddFormatFlag(app, format.get());
  app->callback([=] { *action = [=] { return RunVersion(*format); }; });
}

}  // namespace xlad::cli
