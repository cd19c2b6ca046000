// `xlad bench`: times of a collective among processes (run.cc), or, without a collective, of all-reduce among the
// devices of one process or of the processes of a launch.
#include "cli/devices.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "base/net/network.h"
#include "cli/bench/options.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "collectives/exec/bootstrap/launcher.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/messages/message_group.h"
#include "collectives/exec/nccl/nccl_library.h"
#include "collectives/exec/nccl/nccl_rules.h"
#include "collectives/exec/transports/registry/registry.h"
#include "collectives/plan/spec_proto.h"
#include "proto/device_name.h"
#include "runtime/devices/registry/registry.h"
#include "tensor/wire.h"

namespace xlad::cli {
namespace {

using collectives::CollectiveSet;

constexpr int kDevicesOfBench = 4;
constexpr int kMaxDevices = 256;

struct DeviceBenchOptions {
  DeviceRequests devices;  // Each request has a count.
  int64_t max_bytes = 4 << 20;
  int repeats = 21;
  std::string format = "table";
  collectives::ReductionMode mode = collectives::ReductionMode::kRunToRun;
  std::string algorithm;  // A plan, "nccl" for any plan that NCCL runs, or empty.
  bool explain = false;   // Whether to print the version of NCCL, or why it cannot run, and where the collective runs.
  std::vector<std::string> flags;  // The flags that are given.
};

struct DeviceBenchRow {
  std::map<std::string, int64_t> launches;  // The number of timed operations per kind of device.
  std::set<std::string> memory;             // Communicator::Medium of the ranks of this process.
  int64_t bytes = 0;
  std::string plan;
  double minimum_us = 0, median_us = 0, maximum_us = 0;
};

absl::StatusOr<collectives::CollectivePlan> PlanOf(const DeviceBenchOptions& options,
                                                   const collectives::CollectiveSpec& spec) {
  const bool is_engine = options.algorithm == collectives::nccl::kNcclEngine;
  if (!options.algorithm.empty() && !is_engine) return collectives::ParsePlan(options.algorithm);
  XLAD_ASSIGN_OR_RETURN(collectives::CollectivePlan plan, collectives::MakePlan(spec));
  if (is_engine) plan.engine = options.algorithm;
  return plan;
}

// All-reduce (sum, f32) of `bytes` over all devices.
absl::StatusOr<CollectiveSet> MakeSet(const DeviceBenchOptions& options, int devices, int64_t bytes) {
  Executable executable;
  xlad::CollectiveSpec* proto = executable.add_collectives();
  proto->set_collective_id(1);
  proto->set_op("bench");
  proto->set_kind(xlad::CollectiveSpec::ALL_REDUCE);
  proto->set_reduction(xlad::CollectiveSpec::SUM);
  tensor::TypeToWire(tensor::ElementType::kF32, proto);
  proto->add_counts(bytes / 4);
  proto->set_mode(static_cast<xlad::ReductionMode>(options.mode));
  for (int device = 0; device < devices; ++device) {
    if (device == 0) proto->add_groups();
    proto->mutable_groups(0)->add_devices(device);
  }
  collectives::CollectiveSpec spec;
  spec.kind = collectives::CollectiveKind::kAllReduce;
  spec.reduction = collectives::Reduction::kSum;
  spec.counts = {bytes / 4};
  spec.ranks = devices;
  spec.mode = options.mode;
  XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, PlanOf(options, spec));
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  *plans.Add() = collectives::PlanToProto<CollectivePlanProto>(plan, 0);
  XLAD_ASSIGN_OR_RETURN(CollectiveSet set, collectives::MakeCollectiveSet(executable.collectives(), plans, devices));
  set.collectives[0].is_given = !options.algorithm.empty() && options.algorithm != collectives::nccl::kNcclEngine;
  return set;
}

// The state that the threads of one measurement share.
struct Setup {
  std::vector<runtime::Device*> devices;  // Indexed by rank. Null for ranks in other processes.
  const CollectiveSet* set = nullptr;
  collectives::Fabric* fabric = nullptr;
  int repeats = 0;
  int first_channel = 0;
};

struct RankResult {
  std::vector<double> times_us;
  std::string memory;
};

// The part of one rank: warms up and then times the launches, on buffers in device memory.
absl::StatusOr<RankResult> RunRank(const Setup& setup, int rank) {
  collectives::Recorder recorder(rank, setup.set, &RealClock());
  runtime::Device* const device = setup.devices[rank];
  XLAD_ASSIGN_OR_RETURN(const auto stream, device->MakeStream());
  // The destructor of the communicator waits for the work that uses the memory.
  std::unique_ptr<runtime::DeviceMemory> memory;
  XLAD_ASSIGN_OR_RETURN(
      const auto communicator,
      setup.fabric->MakeCommunicator({rank, setup.set, &recorder, setup.first_channel, nullptr, stream.get()}));
  const std::vector<float> values(setup.set->collectives[0].spec.counts[0], 1e-3f);
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(values.data()),
                                          values.size() * sizeof(float));
  XLAD_ASSIGN_OR_RETURN(memory, device->Allocate(std::ssize(bytes)));
  XLAD_RETURN_IF_ERROR(stream->CopyToDevice(memory->address(), bytes));
  const std::byte* const input = static_cast<const std::byte*>(memory->address());
  std::byte* const output = static_cast<std::byte*>(memory->address());
  constexpr int kWarmUp = 5;
  RankResult result;
  result.memory = communicator->Medium(0);
  for (int i = 0; i < kWarmUp + setup.repeats; ++i) {
    collectives::CollectiveLaunch launch;
    launch.inputs = {&input, 1};
    launch.outputs = {&output, 1};
    launch.step = i;
    const int64_t start_ns = RealClock().NowNs();
    XLAD_RETURN_IF_ERROR(communicator->Launch(launch));
    XLAD_RETURN_IF_ERROR(stream->Synchronize());
    if (i >= kWarmUp) result.times_us.push_back(static_cast<double>(RealClock().NowNs() - start_ns) / 1000);
  }
  return result;
}

DeviceBenchRow RowOf(const CollectiveSet& set, std::vector<double> times_us) {
  DeviceBenchRow row;
  std::sort(times_us.begin(), times_us.end());
  row.bytes = set.collectives[0].spec.counts[0] * 4;
  row.plan = set.collectives[0].plan.ToString();
  row.minimum_us = times_us.front();
  row.median_us = times_us[times_us.size() / 2];
  row.maximum_us = times_us.back();
  return row;
}

absl::StatusOr<DeviceBenchRow> Measure(const DeviceBenchOptions& options, const std::vector<runtime::Device*>& of_ranks,
                                       int64_t bytes) {
  const int devices = std::ssize(of_ranks);
  XLAD_ASSIGN_OR_RETURN(const CollectiveSet set, MakeSet(options, devices, bytes));
  collectives::AbortSignal abort;
  collectives::FabricOptions fabric_options;
  fabric_options.num_devices = devices;
  for (int rank = 0; rank < devices; ++rank) fabric_options.devices.push_back(rank);
  fabric_options.network = &TcpNetwork();
  XLAD_ASSIGN_OR_RETURN(const auto data_plane, collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
  fabric_options.data_plane = data_plane.get();
  const auto bootstrap = collectives::MapBootstrap({});
  XLAD_ASSIGN_OR_RETURN(const auto fabric, collectives::Fabric::Make(fabric_options, *bootstrap, &abort));
  const Setup setup{of_ranks, &set, fabric.get(), options.repeats};
  std::vector<absl::StatusOr<RankResult>> results(devices, RankResult());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < devices; ++rank) {
    threads.emplace_back([&, rank] {
      results[rank] = RunRank(setup, rank);
      if (!results[rank].ok()) abort.Raise({results[rank].status(), ""});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) XLAD_RETURN_IF_ERROR(result.status());
  DeviceBenchRow row = RowOf(set, results[0]->times_us);
  for (int rank = 0; rank < devices; ++rank) {
    row.launches[KindOfDevice(of_ranks[rank]->Name())] += options.repeats;
    row.memory.insert(results[rank]->memory);
  }
  return row;
}

// Prints the version of the NCCL library that can run collectives among GPUs here, or why there is none.
void ExplainNccl() {
  const auto library = collectives::nccl::TheNccl();
  const std::string text = library.ok() ? absl::StrCat("version ", collectives::nccl::VersionText((*library)->version),
                                                       " (", (*library)->name, ")")
                                        : std::string(library.status().message());
  std::printf("# %s%s\n", library.ok() ? "NCCL: " : "", text.c_str());
}

absl::Status CheckDevices(DeviceRequests* devices) {
  CompleteDevices(devices, kDevicesOfBench);
  if (CountDevices(*devices) <= kMaxDevices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--device: found ", CountDevices(*devices), " devices, expected ", kMaxDevices, " or fewer"));
}

nlohmann::ordered_json ToJson(const DeviceBenchRow& row, double algbw, double factor) {
  nlohmann::ordered_json json = {{"bytes", row.bytes},       {"min_us", row.minimum_us}, {"median_us", row.median_us},
                                 {"max_us", row.maximum_us}, {"algbw_gbps", algbw},      {"busbw_gbps", algbw * factor},
                                 {"plan", row.plan}};
  json["launches"] = row.launches;
  json["memory"] = row.memory;
  return json;
}

// Measures one size among the processes of a launch, each of which has one device.
absl::StatusOr<DeviceBenchRow> MeasureLaunched(const DeviceBenchOptions& options, collectives::MessageGroup* group,
                                               runtime::Device* device, int64_t bytes) {
  XLAD_ASSIGN_OR_RETURN(const CollectiveSet set, MakeSet(options, group->ranks(), bytes));
  Setup setup{std::vector<runtime::Device*>(group->ranks()), &set, &group->fabric(), options.repeats};
  setup.devices[group->rank()] = device;
  XLAD_ASSIGN_OR_RETURN(setup.first_channel, setup.fabric->ReserveChannels(set));
  XLAD_ASSIGN_OR_RETURN(const RankResult result, RunRank(setup, group->rank()));
  DeviceBenchRow row = RowOf(set, result.times_us);
  row.memory.insert(result.memory);  // Rank 0 prints that of its own device.
  row.launches[KindOfDevice(device->Name())] = static_cast<int64_t>(options.repeats) * group->ranks();
  return row;
}

// Prints the rows as they are measured, or all of them at the end as JSON.
class RowPrinter {
 public:
  RowPrinter(const DeviceBenchOptions& options, int64_t ranks)
      : is_table_(options.format == "table"), explains_(options.explain), ranks_(ranks) {}
  void Begin(const std::string& devices, int repeats) const {
    if (!is_table_) return;
    std::printf("all-reduce, f32 sum, %s, timed launches of each size: %d\n", devices.c_str(), repeats);
    std::printf("%12s %12s %12s %12s %10s %10s  %s\n", "bytes", "min us", "median us", "max us", "algbw GB/s",
                "busbw GB/s", "plan");
  }
  void Add(const DeviceBenchRow& row) {
    const double factor = 2.0 * static_cast<double>(ranks_ - 1) / static_cast<double>(ranks_);
    const double algbw = static_cast<double>(row.bytes) / row.median_us / 1000;
    if (!is_table_) return json_.push_back(ToJson(row, algbw, factor));
    if (explains_ && row.memory != memory_) std::printf("# memory: %s\n", absl::StrJoin(row.memory, "; ").c_str());
    memory_ = row.memory;
    absl::PrintF("%12d %12.1f %12.1f %12.1f %10.3f %10.3f  %s\n", row.bytes, row.minimum_us, row.median_us,
                 row.maximum_us, algbw, algbw * factor, row.plan);
  }
  void End() const {
    if (!is_table_) std::printf("%s\n", JsonText(json_, 2).c_str());
  }

 private:
  const bool is_table_, explains_;
  const int64_t ranks_;
  std::set<std::string> memory_;  // The memory of the last row.
  nlohmann::ordered_json json_ = nlohmann::ordered_json::array();
};

// InvalidArgument if a flag is given that has no meaning without COLLECTIVE. The flags of messages between processes
// have a meaning only if a launcher has started the processes.
absl::Status CheckFlags(const std::vector<std::string>& flags, bool is_launched) {
  static constexpr absl::string_view kFlags[] = {"--device", "--devices", "--max-bytes", "--repeats",
                                                 "--format", "--mode",    "--algorithm", "--explain"};
  static constexpr absl::string_view kMessageFlags[] = {"--transport", "--insecure-network", "--meet", "--listen",
                                                        "--deadline-ms"};
  for (const std::string& flag : flags) {
    const bool is_of_messages = absl::c_linear_search(kMessageFlags, flag);
    if (absl::c_linear_search(kFlags, flag) || (is_of_messages && is_launched)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": found the flag without COLLECTIVE",
        is_of_messages ? " in a process that no launcher has started, expected none: the devices of one process send "
                         "no messages"
                       : ", expected none: the benchmark of devices does not use it"));
  }
  return absl::OkStatus();
}

// InvalidArgument if a flag is given that has no meaning with COLLECTIVE.
absl::Status CheckFlagsOfCollective(const std::vector<std::string>& flags) {
  static constexpr absl::string_view kDeviceFlags[] = {"--device", "--devices", "--max-bytes", "--repeats", "--format"};
  for (const std::string& flag : flags) {
    if (!absl::c_linear_search(kDeviceFlags, flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": found the flag with COLLECTIVE, expected none: only the benchmark of devices, without COLLECTIVE, ",
        "uses it; with COLLECTIVE, -b and -e are the sizes, -n and --batches the repetitions, and --json writes JSON"));
  }
  return absl::OkStatus();
}

// InvalidArgument if a flag is given that has no meaning for --calibrate without COLLECTIVE.
absl::Status CheckFlagsOfCalibration(const std::vector<std::string>& flags) {
  static constexpr absl::string_view kFlags[] = {"--calibrate", "--ranks",  "--transport",   "--insecure-network",
                                                 "--meet",      "--listen", "--deadline-ms", "--checksums"};
  for (const std::string& flag : flags) {
    if (absl::c_linear_search(kFlags, flag)) continue;
    return absl::InvalidArgumentError(absl::StrCat(flag, ": found the flag with --calibrate and without COLLECTIVE, ",
                                                   "expected none: the calibration does not use it"));
  }
  return absl::OkStatus();
}

// The names of the flags that are given, in the form "--ranks", or "-b" if there is a short form.
std::vector<std::string> GivenFlags(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const bool is_short = !option->get_snames().empty();
    flags.push_back(is_short ? "-" + option->get_snames()[0] : "--" + option->get_lnames()[0]);
  }
  return flags;
}

bool RequiresNccl(const std::string& algorithm) {
  if (algorithm == collectives::nccl::kNcclEngine) return true;
  const auto plan = collectives::ParsePlan(algorithm);
  return plan.ok() && plan->engine == collectives::nccl::kNcclEngine;
}

// How the ranks of a launch connect. The flags have the same meaning as with a collective.
absl::StatusOr<collectives::MessageGroup::Options> MessagesOf(const BenchOptions& bench,
                                                              const collectives::Launch& launch) {
  collectives::MessageGroup::Options messages;
  XLAD_ASSIGN_OR_RETURN(messages.transport, collectives::ChooseTransport(bench.transport, bench.any_network));
  const collectives::TransportChoice& transport = messages.transport;
  if (transport.one_process) {
    return WrongUsage(
        absl::InvalidArgumentError(absl::StrCat("--transport ", bench.transport, ": ", launch.launcher,
                                                " has started processes; this transport connects only threads")));
  }
  if (!bench.meeting_folder.empty() && transport.shares_memory) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--meet: found --transport ", bench.transport, ", expected tcp, ucx or mpi")));
  }
  if (!bench.meeting_folder.empty() && transport.plugin != nullptr && !bench.any_network) {
    return WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--meet: found --transport ", bench.transport,
                     " without --insecure-network, which is needed because its traffic between hosts is not "
                     "encrypted")));
  }
  const auto listen_host = ParseHost(bench.listen_host);
  if (!listen_host.ok()) return WrongUsage(Annotate(listen_host.status(), "--listen"));
  messages.listen_host = *listen_host;
  messages.deadline_ms = bench.deadline_ms;
  messages.meeting_folder = bench.meeting_folder;
  messages.launch = launch;
  // The key must be the same on all hosts, unlike those of launchers. The folder is for one launch only.
  if (!bench.meeting_folder.empty()) messages.launch.key = "launch";
  return messages;
}

// Runs this process as one rank of a launch. Rank 0 prints.
int RunLaunchedDeviceBench(DeviceBenchOptions options, const BenchOptions& bench, const collectives::Launch& launch) {
  CompleteDevices(&options.devices, 1);
  if (CountDevices(options.devices) != 1) {
    return Fail(WrongUsage(absl::InvalidArgumentError(
        absl::StrCat("--device: found ", CountDevices(options.devices), " devices in a rank of a launch by ",
                     launch.launcher, ", expected KIND:1, because each rank has one device"))));
  }
  const auto device = runtime::MakeDevice(options.devices[0], runtime::AllDeviceKinds());
  if (!device.ok()) return Fail(device.status());
  const auto messages = MessagesOf(bench, launch);
  if (!messages.ok()) return Fail(messages.status());
  const auto group = collectives::MessageGroup::Join(*messages);
  if (!group.ok()) return Fail(group.status());
  RowPrinter printer(options, launch.ranks);
  const bool prints = launch.rank == 0;
  if (prints && options.explain) ExplainNccl();
  if (prints)
    printer.Begin(absl::StrCat((*device)->Name(), " devices of ", launch.ranks, " processes"), options.repeats);
  for (int64_t bytes = 1024; bytes <= options.max_bytes; bytes *= 4) {
    const auto row = MeasureLaunched(options, group->get(), device->get(), bytes);
    if (!row.ok()) return Fail(row.status());
    if (prints) printer.Add(*row);
  }
  if (prints) printer.End();
  return kOk;
}

// Ranks are numbered in the order in which the kinds are given.
int RunDeviceBench(DeviceBenchOptions options, const BenchOptions& bench) {
  const auto launch = collectives::DetectLaunch();
  // The batch script of a Slurm job is one process, which measures its own devices, like a process that no launcher has
  // started.
  const bool is_batch_script = absl::StrContains(launch.status().message(), "found the batch script of Slurm job");
  if (!launch.ok() && !is_batch_script) return Fail(launch.status());
  const bool is_launched = launch.ok() && launch->has_value();
  if (const absl::Status status = CheckFlags(options.flags, is_launched); !status.ok()) return Fail(WrongUsage(status));
  if (is_launched && (*launch)->ranks > 1) return RunLaunchedDeviceBench(options, bench, **launch);
  if (options.explain) ExplainNccl();
  if (const absl::Status status = CheckDevices(&options.devices); !status.ok()) return Fail(WrongUsage(status));
  std::vector<std::unique_ptr<runtime::Device>> devices;
  std::vector<runtime::Device*> of_ranks;
  for (const runtime::DeviceRequest& request : options.devices) {
    auto device = runtime::MakeDevice(request, runtime::AllDeviceKinds());
    if (!device.ok()) return Fail(device.status());
    devices.push_back(*std::move(device));
    of_ranks.insert(of_ranks.end(), request.count, devices.back().get());
  }
  RowPrinter printer(options, std::ssize(of_ranks));
  printer.Begin(absl::StrCat(DeviceFlagText(options.devices), " devices in one process"), options.repeats);
  for (int64_t bytes = 1024; bytes <= options.max_bytes; bytes *= 4) {
    const auto row = Measure(options, of_ranks, bytes);
    if (!row.ok()) return Fail(row.status());
    printer.Add(*row);
  }
  printer.End();
  return kOk;
}

}  // namespace

void AddBench(CLI::App& parent, Action* action) {
  auto options = std::make_shared<DeviceBenchOptions>();
  auto bench = std::make_shared<BenchOptions>();
  CLI::App* app = parent.add_subcommand("bench", "measure collectives among processes or devices of this machine");
  app->footer(
      "Examples:\n  mpirun -np 4 xlad bench all_reduce -b 8 -e 256M -f 2\n"
      "  xlad bench all_gather --ranks 2 -b 1K -e 1M -f 2 -d bfloat16 -R 1\n"
      "  xlad bench --device cpu:2,opaque:2   (without a collective: among the devices of one process)\n"
      "  mpirun -np 2 xlad bench --device cuda:1 --algorithm nccl   (one device per process)\n"
      "Flags, columns, algbw and busbw are those of nccl-tests.");
  app->add_option("COLLECTIVE", bench->collective,
                  "all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, ...");
  AddBenchFlags(app, bench.get());
  AddDeviceFlags(app, &options->devices,
                 "without COLLECTIVE: COUNT (default: 4) devices in total, with one thread each; default KIND: cpu. "
                 "Ranks of mpirun have one device each");
  app->add_option("--max-bytes", options->max_bytes, "without COLLECTIVE: largest size")
      ->capture_default_str()
      ->check(Between(1024, int64_t{1} << 34));
  app->add_option("--repeats", options->repeats, "without COLLECTIVE: timed launches of each size")
      ->capture_default_str()
      ->check(Between(1, 100000));
  app->add_option("--format", options->format, "without COLLECTIVE: table or json")
      ->capture_default_str()
      ->check(OneOf({"table", "json"}));
  app->callback([=] {
    // Without COLLECTIVE, the mode is run-to-run, unless --mode is given or NCCL is required.
    const bool has_mode = app->count("--mode") > 0;
    options->flags = GivenFlags(*app);
    *action = [=] {
      if (!bench->collective.empty()) {
        const absl::Status flags = CheckFlagsOfCollective(options->flags);
        return flags.ok() ? RunBench(*bench) : Fail(WrongUsage(flags));
      }
      if (bench->calibrate) {
        const absl::Status flags = CheckFlagsOfCalibration(options->flags);
        return flags.ok() ? RunCalibration(*bench) : Fail(WrongUsage(flags));
      }
      const auto mode = ParseBenchMode(bench->mode);
      if (!mode.ok()) return Fail(WrongUsage(mode.status()));
      options->algorithm = bench->algorithm;
      if (has_mode || RequiresNccl(bench->algorithm)) options->mode = *mode;
      options->explain = bench->explain && options->format == "table";
      return RunDeviceBench(*options, *bench);
    };
  });
}

}  // namespace xlad::cli
