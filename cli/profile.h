// `xlad run --profile`: where the time of a step goes, by kernel.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/machine_rates.h"
#include "client/job_directory.h"
#include "proto/executable.pb.h"
#include "runtime/device_kind.h"
#include "runtime/step_program.h"

namespace xlad::cli {

// The steps of one kernel, library op, collective or copy, summed over all its executions on all devices.
struct ProfileRow {
  std::string name;    // The HLO instruction, the first if several share a kernel.
  std::string kind;    // "kernel", "dot", "convolution", "fft", "lapack", "attention", "collective" or "copy".
  std::string source;  // file:line of the user's code.
  int64_t calls = 0, ns = 0;
  double flops = 0, bytes = 0;  // The sums of all calls.
  double simulated_us = 0;      // The same on simulated chips; 0 on others.

  // The part of the time that the machine would need at least: for the bytes at its copy rate, or for the operations
  // at the rate of the matrix library, whichever is longer. 0 for collectives.
  double RooflineShare(const MachineRates& rates) const;
};

// Rows in order of their time, longest first. `times` are those of each device.
std::vector<ProfileRow> ProfileRows(const Executable& executable, const std::vector<runtime::StepTimes>& times);

struct Profile {
  std::vector<ProfileRow> rows;
  MachineRates rates;
  int64_t steps = 0;
  int devices = 1, threads = 1;  // `threads` of each device.
  int64_t ns = 0;                // Wall time of all steps.
  SimulatedTime simulated;       // One step; without a topology if the devices are not simulated chips.
};
std::string ProfileTable(const Profile& profile);
std::string ProfileJson(const Profile& profile);

struct ProfileOptions {
  int threads = 0;  // For all devices together; 0: those of the machine.
  runtime::DeviceRequest device = {"cpu", "", 0};  // The kind of all devices.
  std::string format = "table";
};
// Builds the job and trains it in this process, all devices as threads of it. Prints the profile. Returns the exit
// code.
int RunProfile(const client::Job& job, const ProfileOptions& options);

}  // namespace xlad::cli
