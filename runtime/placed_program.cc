#include "runtime/placed_program.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "collectives/exec/watchdog.h"
#include "runtime/entry_layout.h"

namespace xlad::runtime {

using collectives::Fabric;
using collectives::PeerInfo;
using collectives::PeerKey;
using collectives::Recorder;
using collectives::ScheduledCommunicator;

namespace {
constexpr int64_t kWatchMs = 1000;  // How often it is looked at, at least.
}  // namespace

absl::StatusOr<std::unique_ptr<PlacedProgram>> PlacedProgram::Load(const std::string& bytes, const std::string& digest,
                                                                   const Placement& placement,
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
  const int64_t devices = NumDevices(executable);
  for (int device : placement.devices) {
    if (device >= 0 && device < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("found device ", device, " of a mesh of ", devices));
  }
  std::unique_ptr<PlacedProgram> program(new PlacedProgram(placement, environment, abort));
  XLAD_ASSIGN_OR_RETURN(program->loaded_, environment.device->Load(std::move(executable)));
  const Executable& loaded = program->loaded_->executable();
  XLAD_ASSIGN_OR_RETURN(program->steps_, StepProgram::Prepare(*program->loaded_));
  program->feeds_.block_from.resize(loaded.allocations_size());
  std::iota(program->feeds_.block_from.begin(), program->feeds_.block_from.end(), 0);
  XLAD_ASSIGN_OR_RETURN(program->constants_, MakeConstants(environment.device, loaded));
  XLAD_ASSIGN_OR_RETURN(program->collectives_, collectives::MakeCollectiveSet(loaded.collectives(), placement.plans,
                                                                              static_cast<int>(devices)));
  for (int device : placement.devices) {
    program->recorders_.push_back(std::make_unique<Recorder>(device, &program->collectives_, environment.clock));
    program->contexts_.push_back(std::make_unique<DeviceContext>());
  }
  return program;
}

absl::Status PlacedProgram::Feed(const JobSpec& spec) {
  XLAD_ASSIGN_OR_RETURN(feeds_, PlanFeeds(executable(), spec));
  return absl::OkStatus();
}

absl::Status PlacedProgram::MakeFabric() {
  std::map<std::string, std::string> values;
  for (const Peer& peer : placement_.peers) {
    const PeerInfo info{peer.worker_id(), peer.incarnation(), peer.host(), peer.pid(), peer.data_address()};
    for (int device : peer.devices()) values[PeerKey(device)] = EncodePeer(info);
  }
  bootstrap_ = collectives::MapBootstrap(std::move(values));
  collectives::FabricOptions options;
  options.devices = placement_.devices;
  options.num_devices = collectives_.num_devices;
  options.tcp.job_id = placement_.job_id;
  options.tcp.attempt = placement_.attempt;
  options.tcp.generation = placement_.generation;
  options.tcp.worker_id = environment_.worker_id;
  options.tcp.incarnation = environment_.incarnation;
  options.tcp.max_message_bytes = collectives_.max_message_bytes;
  options.network = environment_.network;
  options.data_plane = environment_.data_plane;
  XLAD_ASSIGN_OR_RETURN(fabric_, Fabric::Make(options, *bootstrap_, abort_));
  if (environment_.progress_limit_ms > 0) watch_ = std::thread([this] { Watch(); });
  return absl::OkStatus();
}

absl::Status PlacedProgram::Prepare(int index) {
  DeviceContext& context = *contexts_[index];
  Device* const device = environment_.device;
  XLAD_ASSIGN_OR_RETURN(context.buffers,
                        DeviceBuffers::Allocate(device, executable(), feeds_, constants_.addresses));
  XLAD_ASSIGN_OR_RETURN(context.scratch, device->Allocate(steps_->scratch_bytes()));
  XLAD_ASSIGN_OR_RETURN(context.launcher, loaded_->MakeLauncher(placement_.devices[index]));
  return absl::OkStatus();
}

absl::Status PlacedProgram::Connect(int index) {
  const int device = placement_.devices[index];
  XLAD_ASSIGN_OR_RETURN(contexts_[index]->communicator,
                        ScheduledCommunicator::Form({device, &collectives_, &fabric_->transport(device), abort_,
                                                     recorders_[index].get()}));
  return absl::OkStatus();
}

absl::Status PlacedProgram::Run(int index, int64_t step) {
  DeviceContext& context = *contexts_[index];
  StepEnvironment environment;
  environment.launcher = context.launcher.get();
  environment.communicator = context.communicator.get();
  environment.allocations = context.buffers->addresses();
  environment.scratch = context.scratch->address();
  environment.step = step;
  environment.abort = abort_;
  return steps_->Run(environment);
}

void PlacedProgram::Leave() {
  if (fabric_ != nullptr) fabric_->Leave();
}

std::string PlacedProgram::RecentCollectives() const {
  std::string out;
  for (const auto& recorder : recorders_) out += recorder->ToString();
  return out;
}

void PlacedProgram::Watch() {
  std::vector<const Recorder*> recorders;
  for (const auto& recorder : recorders_) recorders.push_back(recorder.get());
  collectives::ProgressWatchdog watchdog(environment_.clock, environment_.progress_limit_ms, std::move(recorders),
                                         abort_);
  const std::chrono::milliseconds period(std::clamp<int64_t>(environment_.progress_limit_ms / 4, 1, kWatchMs));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, period, [this] { return ending_; })) {
    if (watchdog.Poll()) return;
  }
}

PlacedProgram::~PlacedProgram() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  if (watch_.joinable()) watch_.join();
}

}  // namespace xlad::runtime
