#include "runtime/connected_executable.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "collectives/exec/staged_communicator.h"
#include "collectives/exec/watchdog.h"
#include "proto/device_name.h"
#include "proto/mesh.h"
#include "runtime/host_threads.h"

namespace xlad::runtime {

using collectives::Fabric;
using collectives::PeerInfo;
using collectives::PeerKey;
using collectives::Recorder;

namespace {
constexpr int64_t kMaxWatchPeriodMs = 1000;

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
                                                                               const LaunchInfo& launch,
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
  std::unique_ptr<ConnectedExecutable> made(new ConnectedExecutable(launch, environment, abort));
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

absl::Status ConnectedExecutable::MakeFabric() {
  std::map<std::string, std::string> values;
  for (const Peer& peer : launch_.peers) {
    const PeerInfo info{peer.worker_id(), peer.incarnation(), peer.host(), peer.pid(), peer.data_address()};
    for (int device : peer.devices()) values[PeerKey(device)] = EncodePeer(info);
  }
  bootstrap_ = collectives::MapBootstrap(std::move(values));
  collectives::FabricOptions options;
  options.devices = launch_.shards;
  options.num_devices = collectives_.num_devices;
  options.tcp.job_id = launch_.job_id;
  options.tcp.attempt = launch_.attempt;
  options.tcp.generation = launch_.generation;
  options.tcp.worker_id = environment_.worker_id;
  options.tcp.incarnation = environment_.incarnation;
  options.tcp.max_message_bytes = collectives_.max_message_bytes;
  options.network = environment_.network;
  options.data_plane = environment_.data_plane;
  XLAD_ASSIGN_OR_RETURN(fabric_, Fabric::Make(options, *bootstrap_, abort_));
  if (environment_.progress_limit_ms > 0) watch_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Prepare(int index) {
  Shard& shard = *shards_[index];
  const int threads = environment_.threads_of_each > 0 ? environment_.threads_of_each
                                                       : ThreadsOfEach(HostThreads(), static_cast<int>(shards_.size()));
  XLAD_ASSIGN_OR_RETURN(shard.stream, device_->MakeStream(threads));
  const MemorySource memory(device_, shard.stream->host_can_access() ? &fabric_->memory() : nullptr);
  XLAD_ASSIGN_OR_RETURN(
      shard.buffers, DeviceBuffers::Allocate(memory, shard.stream.get(), executable(), feeds_, constants_.addresses));
  XLAD_ASSIGN_OR_RETURN(shard.scratch, device_->Allocate(steps_->scratch_bytes()));
  XLAD_ASSIGN_OR_RETURN(shard.launcher, loaded_->MakeLauncher(launch_.shards[index], shard.stream.get()));
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Connect(int index) {
  const int position = launch_.shards[index];
  XLAD_ASSIGN_OR_RETURN(auto formed, fabric_->MakeCommunicator(position, &collectives_, recorders_[index].get()));
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
  environment.abort = abort_;
  return steps_->Run(environment);
}

void ConnectedExecutable::Leave() {
  if (fabric_ != nullptr) fabric_->Leave();
}

std::string ConnectedExecutable::RecentCollectives() const {
  std::string out;
  for (const auto& recorder : recorders_) out += recorder->ToString();
  return out;
}

void ConnectedExecutable::Watch() {
  std::vector<const Recorder*> recorders;
  for (const auto& recorder : recorders_) recorders.push_back(recorder.get());
  collectives::ProgressWatchdog watchdog(environment_.clock, environment_.progress_limit_ms, std::move(recorders),
                                         abort_);
  const std::chrono::milliseconds period(std::clamp<int64_t>(environment_.progress_limit_ms / 4, 1, kMaxWatchPeriodMs));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return ending_; })) {
    if (watchdog.Poll()) return;
  }
}

ConnectedExecutable::~ConnectedExecutable() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watch_.joinable()) watch_.join();
}

}  // namespace xlad::runtime
