#include "cli/devices.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "runtime/devices/registry/registry.h"
#include "runtime/host_threads.h"

namespace xlad::cli {

CLI::Option* AddDeviceFlag(CLI::App* app, DeviceRequests* devices, const std::string& counts) {
  const auto read = [devices](const std::string& text) {
    auto requests = runtime::ParseDeviceRequests(text, runtime::AllDeviceKinds());
    if (!requests.ok()) throw CLI::ValidationError("--device", std::string(requests.status().message()));
    *devices = *std::move(requests);
  };
  const auto append = [](std::string* out, const runtime::DeviceKind& kind) { out->append(kind.name); };
  const std::string kinds = absl::StrJoin(runtime::AllDeviceKinds(), ", ", append);
  return app
      ->add_option_function<std::string>("--device", read,
                                         absl::StrCat("KIND[:MODEL][:COUNT][,...]; kinds: ", kinds, "; ", counts))
      ->type_name("KIND");
}

CLI::Option* AddDeviceFlags(CLI::App* app, DeviceRequests* devices, const std::string& counts) {
  CLI::Option* const kinds = AddDeviceFlag(app, devices, counts);
  const auto read = [devices](int64_t count) { *devices = {{"cpu", "", count}}; };
  app->add_option_function<int64_t>("--devices", read, "the same as --device cpu:N")
      ->check(Between(1, runtime::kMaxDeviceCount))
      ->excludes(kinds);
  return kinds;
}

void AddThreadsFlag(CLI::App* app, int* threads, const std::string& scope) {
  app->add_option("--threads", *threads,
                  absl::StrCat("cores to compute on, ", scope, "; default: all that this process may use"))
      ->check(Between(1, 65535))
      ->envname(runtime::kThreadsVariable);
}

absl::Status CheckAvailable(const DeviceRequests& devices) {
  for (const runtime::DeviceRequest& request : devices) {
    const absl::Status offered = runtime::MakeOffer(request, runtime::AllDeviceKinds()).status();
    if (!offered.ok()) return Annotate(offered, "--device");
  }
  return absl::OkStatus();
}

void CompleteDevices(DeviceRequests* devices, int64_t count) {
  if (devices->empty()) *devices = {{"cpu", "", count}};
  if ((*devices)[0].count == 0) (*devices)[0].count = count;  // Only a single request may lack a count.
}

int64_t CountDevices(const DeviceRequests& devices) {
  int64_t count = 0;
  for (const runtime::DeviceRequest& request : devices) count += request.count;
  return count;
}

std::string DeviceFlagText(const DeviceRequests& devices) {
  return absl::StrJoin(devices, ",", [](std::string* out, const runtime::DeviceRequest& request) {
    out->append(request.ToString());
  });
}

}  // namespace xlad::cli
