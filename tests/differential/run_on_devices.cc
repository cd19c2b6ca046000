#include "tests/differential/run_on_devices.h"

#include <cstring>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/exec/fabric/fabric.h"
#include "collectives/exec/staged_communicator.h"
#include "collectives/plan/spec_proto.h"
#include "runtime/devices/cpu/cpu_device.h"
#include "runtime/step_program.h"
#include "tensor/wire.h"

namespace xlad {
namespace {

using tensor::Array;

absl::StatusOr<collectives::CollectiveSet> MakeSet(const Executable& executable, int devices) {
  google::protobuf::RepeatedPtrField<CollectivePlanProto> plans;
  for (const CollectiveSpec& proto : executable.collectives()) {
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSpec spec, collectives::SpecFromProto(proto, devices));
    XLAD_ASSIGN_OR_RETURN(const collectives::CollectivePlan plan, collectives::MakePlan(spec));
    *plans.Add() = collectives::PlanToProto<CollectivePlanProto>(plan, 0);
  }
  return collectives::MakeCollectiveSet(executable.collectives(), plans, devices);
}

// One device: its memory, launcher and communicator.
class Shard {
 public:
  Shard(runtime::Device* device, const runtime::LoadedExecutable& loaded, const runtime::StepProgram& program)
      : device_(*device), loaded_(loaded), program_(program) {}

  absl::Status Prepare(const std::vector<Array>& inputs) {
    const Executable& executable = loaded_.executable();
    XLAD_ASSIGN_OR_RETURN(stream_, device_.MakeStream());
    for (const Allocation& allocation : executable.allocations()) {
      XLAD_ASSIGN_OR_RETURN(memory_.emplace_back(), device_.Allocate(allocation.bytes()));
      addresses_.push_back(static_cast<std::byte*>(memory_.back()->address()));
      std::vector<std::byte> contents(allocation.bytes(), std::byte{0xEF});
      std::memcpy(contents.data(), allocation.blob().data(), allocation.blob().size());
      XLAD_RETURN_IF_ERROR(stream_->CopyToDevice(addresses_.back(), contents));
    }
    for (int p = 0; p < executable.parameters_size(); ++p) {
      XLAD_RETURN_IF_ERROR(stream_->CopyToDevice(At(executable.parameters(p).buffer()), inputs[p].bytes()));
    }
    XLAD_ASSIGN_OR_RETURN(scratch_, device_.Allocate(program_.scratch_bytes()));
    return absl::OkStatus();
  }

  absl::Status Run(int number, const collectives::CollectiveSet& set, collectives::Fabric* fabric,
                   collectives::AbortSignal* abort) {
    XLAD_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Launcher> launcher,
                          loaded_.MakeLauncher(number, stream_.get()));
    collectives::Recorder recorder(number, &set, &RealClock()), of_messages(number, &set, &RealClock());
    XLAD_ASSIGN_OR_RETURN(auto formed, fabric->MakeCommunicator({number, &set, &recorder, 0, &of_messages}));
    collectives::StagedCommunicator communicator(stream_.get(), &set, number, std::move(formed));
    runtime::StepEnvironment environment;
    environment.stream = stream_.get();
    environment.launcher = launcher.get();
    environment.communicator = &communicator;
    environment.allocations = addresses_;
    environment.scratch = scratch_->address();
    environment.abort = abort;
    return program_.Run(environment);
  }

  absl::StatusOr<std::vector<Array>> Results() {
    std::vector<Array> results;
    for (const EntryValue& result : loaded_.executable().results()) {
      results.emplace_back(tensor::ShapeFromWire(result.local()));
      XLAD_RETURN_IF_ERROR(stream_->CopyToHost(results.back().bytes(), At(result.buffer())));
    }
    XLAD_RETURN_IF_ERROR(stream_->Synchronize());
    return results;
  }

 private:
  std::byte* At(const BufferSlice& slice) { return addresses_[slice.allocation()] + slice.offset(); }

  runtime::Device& device_;
  std::unique_ptr<runtime::Stream> stream_;
  const runtime::LoadedExecutable& loaded_;
  const runtime::StepProgram& program_;
  std::vector<std::unique_ptr<runtime::DeviceMemory>> memory_;
  std::vector<std::byte*> addresses_;
  std::unique_ptr<runtime::DeviceMemory> scratch_;
};

// The connections between the devices. Each worker has its own fabric, as if it were a process.
class Workers {
 public:
  static absl::StatusOr<std::unique_ptr<Workers>> Connect(int devices, int count) {
    auto made = std::make_unique<Workers>();
    std::map<std::string, std::string> values;
    for (int w = 0; w < count; ++w) {
      XLAD_ASSIGN_OR_RETURN(made->data_planes_.emplace_back(),
                            collectives::DataPlane::Listen(&TcpNetwork(), "127.0.0.1:0"));
      for (int d = w; d < devices; d += count) {
        values[collectives::PeerKey(d)] = collectives::EncodePeer(
            {absl::StrCat("w", w), 1, "host", w, made->data_planes_[w]->address()});
      }
    }
    const auto bootstrap = collectives::MapBootstrap(values);
    for (int w = 0; w < count; ++w) {
      collectives::FabricOptions options;
      options.num_devices = devices;
      for (int d = w; d < devices; d += count) options.devices.push_back(d);
      options.tcp.worker_id = absl::StrCat("w", w);
      options.tcp.incarnation = 1;
      options.transport.shares_memory = false;
      options.network = &TcpNetwork();
      options.data_plane = made->data_planes_[w].get();
      XLAD_ASSIGN_OR_RETURN(made->fabrics_.emplace_back(),
                            collectives::Fabric::Make(options, *bootstrap, &made->abort));
    }
    return made;
  }

  collectives::Fabric* fabric(int device) { return fabrics_[device % fabrics_.size()].get(); }

  collectives::AbortSignal abort;

 private:
  std::vector<std::unique_ptr<collectives::DataPlane>> data_planes_;
  std::vector<std::unique_ptr<collectives::Fabric>> fabrics_;
};

}  // namespace

absl::StatusOr<DeviceArrays> RunOnDevices(const Executable& executable, const DeviceArrays& inputs, int workers) {
  const int devices = static_cast<int>(inputs.size());
  const std::unique_ptr<runtime::Device> device = runtime::MakeCpuDevice();
  XLAD_ASSIGN_OR_RETURN(const auto loaded, device->Load(executable));
  XLAD_ASSIGN_OR_RETURN(const auto program, runtime::StepProgram::Prepare(*loaded));
  XLAD_ASSIGN_OR_RETURN(const collectives::CollectiveSet set, MakeSet(executable, devices));
  XLAD_ASSIGN_OR_RETURN(const auto connected, Workers::Connect(devices, workers));
  std::vector<Shard> shards;
  for (int d = 0; d < devices; ++d) shards.emplace_back(device.get(), *loaded, *program);
  std::vector<absl::Status> statuses(inputs.size());
  std::vector<std::thread> threads;
  for (int d = 0; d < devices; ++d) {
    XLAD_RETURN_IF_ERROR(shards[d].Prepare(inputs[d]));
  }
  for (int d = 0; d < devices; ++d) {
    threads.emplace_back([&, d] {
      absl::Status& status = statuses[d];
      status = shards[d].Run(d, set, connected->fabric(d), &connected->abort);
      if (!status.ok()) connected->abort.Raise({status, ""});
    });
  }
  for (std::thread& thread : threads) thread.join();
  DeviceArrays results;
  for (size_t d = 0; d < inputs.size(); ++d) {
    XLAD_RETURN_IF_ERROR(statuses[d]);
    XLAD_ASSIGN_OR_RETURN(results.emplace_back(), shards[d].Results());
  }
  return results;
}

}  // namespace xlad
