// `xlad run --profile`: the time of a step by kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "client/job_directory.h"
#include "proto/executable.pb.h"
#include "runtime/device_kind.h"
#include "runtime/devices/cpu/machine_rates.h"
#include "runtime/step_program.h"

namespace xlad::cli {

// The steps of one kernel, library op, collective or copy, summed over all its executions on all devices.
struct ProfileRow {
  std::string name;    // The HLO instruction, or the first one if several share a kernel.
  // "kernel", "dot", "convolution", "fft", "lapack", "attention", "collective", "copy", or "wait" for the end of a
  // collective that was started.
  std::string kind;
  std::string source;  // file:line of the user's code.
  int64_t calls = 0, ns = 0;
  double flops = 0, bytes = 0;  // The sums over all calls.
  double simulated_us = 0;      // The simulated time of all calls; 0 on real devices.

  // The shortest possible time on this machine as a share of the measured time. The shortest possible time is the
  // larger of two bounds: the time of the bytes at the copy rate, and the time of the operations at the rate of the
  // matrix library. `rates` are those of all devices together, which run at the same time, so each device has an equal
  // part of them. 0 for collectives and waits.
  double RooflineShare(const runtime::MachineRates& rates, int devices) const;
};

// Returns rows in order of their time, longest first. `times` has one element per device.
std::vector<ProfileRow> ProfileRows(const Executable& executable, const std::vector<runtime::StepTimes>& times);

struct Profile {
  std::vector<ProfileRow> rows;
  runtime::MachineRates rates;
  int64_t steps = 0;
  int devices = 1, threads = 1;  // `threads` is the number per device.
  int64_t ns = 0;                // The wall time of all steps.
  SimulatedTime simulated;       // For one step; the topology is empty on real devices.
};
std::string ProfileTable(const Profile& profile);
std::string ProfileJson(const Profile& profile);

struct ProfileOptions {
  int threads = 0;  // For all devices together; if 0, all cores that this process may use.
  runtime::DeviceRequest device = {"cpu", "", 0};  // The kind of all devices.
  std::string format = "table";
};
// Builds the job and trains it in this process, on threads. Prints the profile. Returns the exit code.
int RunProfile(const client::Job& job, const ProfileOptions& options);

}  // namespace xlad::cli
