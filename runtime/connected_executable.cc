#include "runtime/connected_executable.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "collectives/exec/staged_communicator.h"
#include "proto/device_name.h"
#include "proto/mesh.h"
#include "runtime/host_threads.h"

namespace xlad::runtime {

using collectives::Recorder;

namespace {

// The device that runs the executable's code. An executable that names no kind is for the first device.
absl::StatusOr<Device*> FindDevice(const Executable& executable, const std::vector<Device*>& devices) {
  std::vector<std::string> names;
  for (Device* const device : devices) {
    if (executable.target().device_kind().empty() || device->Name() == DeviceName(executable.target())) return device;
    names.push_back(device->Name());
  }
  return absl::InvalidArgumentError(absl::StrCat("executable '", executable.name(), "': found a target of kind ",
                                                 DeviceName(executable.target()),
                                                 ", expected one of this worker's: ", absl::StrJoin(names, ", ")));
}

}  // namespace

std::vector<int> MeshPositions(const LaunchTask& launch) {
  std::vector<int> positions;
  for (const LaunchRecord& record : launch.devices()) positions.push_back(record.device());
  return positions;
}

absl::StatusOr<std::unique_ptr<ConnectedExecutable>> ConnectedExecutable::Load(const std::string& bytes,
                                                                               const std::string& digest,
                                                                               const ExecutableLaunch& launch,
                                                                               const WorkerEnvironment& environment,
                                                                               collectives::AbortSignal* abort) {
  if (Sha256Hex(bytes) != digest) {
    return absl::DataLossError(
        absl::StrCat("found an executable of ", bytes.size(), " bytes whose SHA-256 is not ", digest));
  }
  Executable executable;
  if (!executable.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", digest, " cannot be parsed"));
  }
  const int64_t devices = NumDevices(executable.mesh());
  for (const int shard : launch.shards) {
    if (shard >= 0 && shard < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("found mesh position ", shard, ", expected one of ", devices));
  }
  std::unique_ptr<ConnectedExecutable> made(new ConnectedExecutable(launch.shards, environment, abort));
  made->shards_per_device_ = std::max(1, launch.shards_per_device);
  XLAD_ASSIGN_OR_RETURN(made->device_, FindDevice(executable, environment.devices));
  XLAD_ASSIGN_OR_RETURN(made->loaded_, made->device_->Load(std::move(executable)));
  const Executable& loaded = made->executable();
  XLAD_ASSIGN_OR_RETURN(made->steps_, StepProgram::Prepare(*made->loaded_));
  made->feeds_.block_from.resize(loaded.allocations_size());
  std::iota(made->feeds_.block_from.begin(), made->feeds_.block_from.end(), 0);
  XLAD_ASSIGN_OR_RETURN(made->constants_, MakeConstants(made->device_, loaded));
  XLAD_ASSIGN_OR_RETURN(made->collectives_,
                        collectives::MakeCollectiveSet(loaded.collectives(), launch.plans, static_cast<int>(devices)));
  for (const int shard : launch.shards) {
    made->recorders_.push_back(std::make_unique<Recorder>(shard, &made->collectives_, environment.clock));
    made->shards_.push_back(std::make_unique<Shard>());
  }
  return made;
}

absl::Status ConnectedExecutable::SetFeeds(const JobSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(feeds_, PlanFeeds(executable(), spec));
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::UseFabric(AttemptFabric* fabric) {
  if (collectives_.num_devices > fabric->num_devices()) {
    return absl::InvalidArgumentError(absl::StrCat("executable '", executable().name(), "': found a mesh of ",
                                                   collectives_.num_devices, " devices, expected at most the ",
                                                   fabric->num_devices(), " of the attempt"));
  }
  XLAD_ASSIGN_OR_RETURN(first_channel_, fabric->fabric().ReserveChannels(collectives_));
  fabric_ = fabric;
  for (const auto& recorder : recorders_) fabric_->Watch(recorder.get());
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Prepare(int index) {
  Shard& shard = *shards_[index];
  const int threads = environment_.threads_of_each > 0 ? std::max(1, environment_.threads_of_each / shards_per_device_)
                                                       : ThreadsOfEach(HostThreads(), static_cast<int>(shards_.size()));
  XLAD_ASSIGN_OR_RETURN(shard.stream, device_->MakeStream(threads));
  const MemorySource memory(device_, shard.stream->host_can_access() ? &fabric_->fabric().memory() : nullptr);
  XLAD_ASSIGN_OR_RETURN(
      shard.buffers, DeviceBuffers::Allocate(memory, shard.stream.get(), executable(), feeds_, constants_.addresses));
  XLAD_ASSIGN_OR_RETURN(shard.scratch, device_->Allocate(steps_->scratch_bytes()));
  XLAD_ASSIGN_OR_RETURN(shard.launcher, loaded_->MakeLauncher(positions_[index], shard.stream.get()));
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Connect(int index) {
  const int position = positions_[index];
  XLAD_ASSIGN_OR_RETURN(auto formed, fabric_->fabric().MakeCommunicator(
                                         {position, &collectives_, recorders_[index].get(), first_channel_}));
  Shard& shard = *shards_[index];
  shard.communicator =
      std::make_unique<collectives::StagedCommunicator>(shard.stream.get(), &collectives_, std::move(formed));
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Run(int index, int64_t step) {
  const Shard& shard = *shards_[index];
  StepEnvironment environment;
  environment.stream = shard.stream.get();
  environment.launcher = shard.launcher.get();
  environment.communicator = shard.communicator.get();
  environment.allocations = shard.buffers->addresses();
  environment.scratch = shard.scratch->address();
  environment.step = step;
  environment.device = positions_[index];
  if (!times_.empty()) environment.times = &times_[index];
  environment.abort = abort_;
  return steps_->Run(environment);
}

void ConnectedExecutable::MeasureSteps(const Clock* clock) {
  times_.assign(shards_.size(), StepTimes());
  for (StepTimes& times : times_) times.clock = clock;
}

std::string ConnectedExecutable::RecentCollectives() const {
  std::string out;
  for (const auto& recorder : recorders_) out += recorder->ToString();
  return out;
}

ConnectedExecutable::~ConnectedExecutable() {
  if (fabric_ == nullptr) return;
  for (const auto& recorder : recorders_) fabric_->Unwatch(recorder.get());
}

}  // namespace xlad::runtime
