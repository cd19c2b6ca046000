// --device and --devices of the commands that have devices.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/device_kind.h"

namespace xlad::cli {

using DeviceRequests = std::vector<runtime::DeviceRequest>;

// Declares --device and --devices. `counts` completes the help of --device: it says what COUNT means in this command,
// and its default. Parsing fills `devices`; a count that is not given is 0. --devices N is short for --device cpu:N,
// and only one of the two may be given.
CLI::Option* AddDeviceFlags(CLI::App* app, DeviceRequests* devices, const std::string& counts);

// Adds only --device, for commands that declare --devices themselves.
CLI::Option* AddDeviceFlag(CLI::App* app, DeviceRequests* devices, const std::string& counts);

// Adds --threads N, the number of cores that may be kept busy. `scope` completes its help ("for all devices together").
// `*threads` keeps its value if the flag is not given.
void AddThreadsFlag(CLI::App* app, int* threads, const std::string& scope);

// Returns Unavailable, with the reason, if this machine has no device of a requested kind.
absl::Status CheckAvailable(const DeviceRequests& devices);

// Completes the devices of a command: without --device, `count` devices of the kind cpu; without a COUNT, `count`
// devices of the kind that was given.
void CompleteDevices(DeviceRequests* devices, int64_t count);

// The number of devices, if all requests have a count.
int64_t CountDevices(const DeviceRequests& devices);

// The value of --device that requests these devices: "cpu:2,opaque:1".
std::string DeviceFlagText(const DeviceRequests& devices);

}  // namespace xlad::cli
