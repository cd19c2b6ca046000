// `xlad bench`: what the collectives of this machine give, in nccl-tests' terms.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "cli/command.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/scheduled_communicator.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveSet;

struct Options {
  int devices = 4;
  int64_t max_bytes = 4 << 20;
  int repeats = 21;
  std::string format;
};

struct Row {
  int64_t bytes = 0;
  std::string plan;
  double minimum_us = 0, median_us = 0, maximum_us = 0;
};

// All-reduce (sum, f32) of `bytes` over all devices.
absl::StatusOr<CollectiveSet> MakeSet(int devices, int64_t bytes) {
  Executable executable;
  CollectiveSpec* proto = executable.add_collectives();
  proto->set_collective_id(1);
  proto->set_op("bench");
  proto->set_kind(CollectiveSpec::ALL_REDUCE);
  proto->set_reduction(CollectiveSpec::SUM);
  proto->set_element_type(static_cast<int>(tensor::ElementType::kF32));
  proto->add_counts(bytes / 4);
  for (int device = 0; device < devices; ++device) {
    if (device == 0) proto->add_groups();
    proto->mutable_groups(0)->add_devices(device);
  }
  collectives::CollectiveSpec spec;
  spec.kind = collectives::CollectiveKind::kAllReduce;
  spec.reduction = collectives::Reduction::kSum;
  spec.counts = {bytes / 4};
  spec.ranks = devices;
  XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::MakePlan(spec));
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  CollectivePlanProto* out = plans.Add();
  out->set_algorithm(plan.algorithm);
  out->set_chunks(plan.chunks);
  out->set_channels(plan.channels);
  return collectives::MakeCollectiveSet(executable.collectives(), plans, devices);
}

// One device's part: warm up, then the timed launches. Device 0 keeps the times.
absl::Status RunDevice(collectives::ScheduledCommunicator::Options place, int repeats, std::vector<double>* times_us) {
  const int device = place.device;
  const CollectiveSet& set = *place.collectives;
  collectives::Recorder recorder(device, &set, &RealClock());
  place.recorder = &recorder;
  XLAD_ASSIGN_OR_RETURN(const auto communicator, collectives::ScheduledCommunicator::Form(place));
  std::vector<float> values(set.collectives[0].spec.counts[0], 1e-3f);
  const std::byte* input = reinterpret_cast<const std::byte*>(values.data());
  std::byte* output = reinterpret_cast<std::byte*>(values.data());
  constexpr int kWarmUp = 5;
  for (int i = 0; i < kWarmUp + repeats; ++i) {
    collectives::CollectiveLaunch launch;
    launch.inputs = {&input, 1};
    launch.outputs = {&output, 1};
    launch.step = i;
    const int64_t start_ns = RealClock().NowNs();
    XLAD_RETURN_IF_ERROR(communicator->Launch(launch));
    if (device == 0 && i >= kWarmUp) {
      times_us->push_back(static_cast<double>(RealClock().NowNs() - start_ns) / 1000);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Row> Measure(const Options& options, int64_t bytes) {
  XLAD_ASSIGN_OR_RETURN(const CollectiveSet set, MakeSet(options.devices, bytes));
  collectives::AbortSignal abort;
  collectives::FabricOptions fabric_options;
  fabric_options.num_devices = options.devices;
  for (int device = 0; device < options.devices; ++device) fabric_options.devices.push_back(device);
  fabric_options.network = &TcpNetwork();
  XLAD_ASSIGN_OR_RETURN(const auto data_plane, collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
  fabric_options.data_plane = data_plane.get();
  const auto bootstrap = collectives::MapBootstrap({});
  XLAD_ASSIGN_OR_RETURN(const auto fabric, collectives::Fabric::Make(fabric_options, *bootstrap, &abort));
  std::vector<absl::Status> statuses(options.devices);
  std::vector<double> times_us;
  std::vector<std::thread> threads;
  for (int device = 0; device < options.devices; ++device) {
    threads.emplace_back([&, device] {
      statuses[device] =
          RunDevice({device, &set, &fabric->transport(device), &abort, nullptr}, options.repeats, &times_us);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) XLAD_RETURN_IF_ERROR(status);
  std::sort(times_us.begin(), times_us.end());
  return Row{bytes, set.collectives[0].plan.ToString(), times_us.front(), times_us[times_us.size() / 2],
             times_us.back()};
}

int Run(const Options& options) {
  const double factor = 2.0 * (options.devices - 1) / options.devices;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (options.format == "table") {
    std::printf("all-reduce, f32 sum, %d devices in one process, %d launches each\n", options.devices, options.repeats);
    std::printf("%12s %12s %12s %12s %10s %10s  %s\n", "bytes", "min us", "median us", "max us", "algbw GB/s",
                "busbw GB/s", "plan");
  }
  for (int64_t bytes = 1024; bytes <= options.max_bytes; bytes *= 4) {
    const auto row = Measure(options, bytes);
    if (!row.ok()) return Fail(row.status());
    const double algbw = static_cast<double>(bytes) / row->median_us / 1000;
    if (options.format == "table") {
      std::printf("%12lld %12.1f %12.1f %12.1f %10.3f %10.3f  %s\n", static_cast<long long>(bytes), row->minimum_us,
                  row->median_us, row->maximum_us, algbw, algbw * factor, row->plan.c_str());
    } else {
      json.push_back({{"bytes", bytes}, {"min_us", row->minimum_us}, {"median_us", row->median_us},
                      {"max_us", row->maximum_us}, {"algbw_gbps", algbw}, {"busbw_gbps", algbw * factor},
                      {"plan", row->plan}});
    }
  }
  if (options.format == "json") std::printf("%s\n", json.dump(2).c_str());
  return kOk;
}

}  // namespace

void AddBench(CLI::App& parent, Action* action) {
  auto options = std::make_shared<Options>();
  CLI::App* app = parent.add_subcommand("bench", "measure all-reduce among devices of this machine");
  app->footer(
      "Example:\n  xlad bench --devices 8 --max-bytes 16777216\nalgbw and busbw are as nccl-tests defines them.");
  app->add_option("--devices", options->devices, "devices, a thread each")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  app->add_option("--max-bytes", options->max_bytes, "largest size")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1024}, int64_t{1} << 34));
  app->add_option("--repeats", options->repeats, "timed launches of each size")
      ->capture_default_str()
      ->check(CLI::Range(1, 100000));
  AddFormatFlag(app, &options->format);
  app->callback([=] { *action = [=] { return Run(*options); }; });
}

}  // namespace xlad::cli
