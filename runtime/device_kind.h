// A kind of device: one row of the table that a binary passes to the runtime (runtime/devices/registry/ has all rows).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "proto/executable.pb.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "runtime/device.h"

namespace xlad::runtime {

struct DeviceKind {
  std::string name;         // For example "cpu": letters, digits and underscores, and not a number.
  std::string description;  // One line for `xlad version`.
  std::vector<std::string> models;  // The names allowed as MODEL, the default first; empty if the kind has no models.
  std::vector<MemoryKind> memory;   // The kinds of memory that its devices can allocate.
  // OK if this machine can run such devices; otherwise the reason.
  absl::Status (*available)();
  // The target to compile for. `model` is one of `models`, or a result of `read_model`, or empty if the kind has no
  // models.
  Target (*target)(const std::string& model);
  // Makes a device, which runs any number of logical shards.
  absl::StatusOr<std::unique_ptr<Device>> (*make)(const std::string& model);
  // Resolves a MODEL that is not one of `models`, such as the path of a file that describes a model. The result is an
  // argument for `target` and `make`. Null if the kind has no other models. Errors say what was found and what is
  // expected.
  absl::StatusOr<std::string> (*read_model)(const std::string& text) = nullptr;
  // Which optional libraries its devices use on this machine, for `xlad version`. Null if there are none. Called only
  // if the kind is available.
  std::string (*libraries)() = nullptr;
};

using DeviceKinds = absl::Span<const DeviceKind>;

// Some devices of one kind, as a user asks for them.
struct DeviceRequest {
  std::string kind;
  std::string model;  // Empty if the kind has no models.
  int64_t count = 0;  // 0 if the user gave no count.

  std::string Name() const { return model.empty() ? kind : kind + ":" + model; }
  // The text that ParseDeviceRequests reads: "opaque:2", or "opaque" if the count is not given.
  std::string ToString() const;
};

constexpr int64_t kMaxDeviceCount = 1024;

// Reads KIND[:MODEL][:COUNT][,...]: "cpu", "cpu:4", "cpu:2,opaque:2". A MODEL is never a number. Returns
// InvalidArgument for an unknown kind or model, a model for a kind without models, a count outside 1 to
// kMaxDeviceCount, a repeated kind and model, or several kinds of which one has no count. Also returns the errors of
// DeviceKind::read_model.
absl::StatusOr<std::vector<DeviceRequest>> ParseDeviceRequests(absl::string_view text, DeviceKinds kinds);

// Divides the devices of each request among `workers` workers as evenly as possible: 8 devices among 3 workers as 3, 3
// and 2. The remainder of one kind starts at the worker after the remainder of the previous kind. For example, one cpu
// device and one opaque device are on different workers. Workers without devices are left out.
std::vector<std::vector<DeviceRequest>> DealDevices(const std::vector<DeviceRequest>& requests, int64_t workers);

// The offer of a worker that has the requested devices. InvalidArgument if this binary has no such kind, Unavailable if
// this machine cannot run it.
absl::StatusOr<DeviceOffer> MakeOffer(const DeviceRequest& request, DeviceKinds kinds);

// A device that runs code for the request's kind and model. The errors are those of MakeOffer and of
// DeviceKind::make.
absl::StatusOr<std::unique_ptr<Device>> MakeDevice(const DeviceRequest& request, DeviceKinds kinds);

// OK if the executable is for the device of this name; otherwise InvalidArgument.
absl::Status CheckTarget(const Executable& executable, const std::string& device_name);

// "device" or "pinned_host".
std::string MemoryKindName(MemoryKind kind);

}  // namespace xlad::runtime
