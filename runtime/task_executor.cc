// One task on one worker.
#include "runtime/task_executor.h"

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/log.h"

namespace xlad::runtime {
namespace {

using collectives::Fabric;
using collectives::PeerInfo;
using collectives::PeerKey;
using collectives::Recorder;
using collectives::ScheduledCommunicator;

int64_t NumDevices(const Executable& executable) {
  int64_t devices = 1;
  for (const MeshAxis& axis : executable.mesh()) devices *= axis.size();
  return devices;
}

std::vector<int> DevicesOf(const LaunchTask& launch) {
  std::vector<int> devices;
  for (const LaunchRecord& record : launch.devices()) devices.push_back(record.device());
  return devices;
}

}  // namespace

struct TaskExecutor::DeviceContext {
  int device = 0;  // Mesh position.
  std::unique_ptr<DeviceBuffers> buffers;
  std::unique_ptr<DeviceMemory> scratch;
  std::unique_ptr<Launcher> launcher;
  std::unique_ptr<ScheduledCommunicator> communicator;
};

TaskExecutor::TaskExecutor(const LaunchTask& launch, const TaskEnvironment& environment)
    : launch_(launch),
      environment_(environment),
      devices_(DevicesOf(launch)),
      gate_(launch.first_step(), launch.spec().steps(), static_cast<int>(devices_.size())) {
  gate_listener_ = abort_.AddListener([this](const collectives::Failure&) { gate_.End(); });
  main_ = std::thread([this] { Main(); });
}

TaskExecutor::~TaskExecutor() {
  leaving_ = true;
  gate_.End();
  // Whoever loads or waits for a peer comes back by this; a task at rest is left in peace (Main looks at leaving_).
  if (ready_devices_ < static_cast<int>(devices_.size()))
    abort_.Raise({absl::CancelledError("the task was dropped"), ""});
  main_.join();
  abort_.RemoveListener(gate_listener_);
}

void TaskExecutor::Main() {
  absl::Status status = devices_.empty() ? absl::InvalidArgumentError("found a task without devices") : Load();
  if (status.ok()) status = MakeFabric();
  if (status.ok()) status = RunDevices();
  if (!status.ok()) abort_.Raise({status, ""});
  const bool finished = finished_devices_ == static_cast<int>(devices_.size()) && !devices_.empty();
  if (fabric_ != nullptr && finished && !abort_.raised()) {
    // Peers may still need what this worker sent. A peer that is lost before its own end raises the signal.
    fabric_->Finish().IgnoreError();
  } else if (fabric_ != nullptr) {
    fabric_->Leave();
  }
  fabric_.reset();
  if (leaving_ && !abort_.raised()) return;
  if (abort_.raised()) {
    LogInfo("collectives before the end, newest first", {{"job", launch_.job_id()}, {"log", RecentCollectives()}});
    environment_.listener->OnFailed(gate_.finished_steps(), abort_.failure());
  } else if (finished) {
    environment_.listener->OnFinished();
  }
}

absl::Status TaskExecutor::Load() {
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, environment_.store->ReadBlob(launch_.executable_digest(), &abort_));
  if (Sha256Hex(bytes) != launch_.executable_digest()) {
    return absl::DataLossError(absl::StrCat("found an executable of ", bytes.size(), " bytes whose SHA-256 is not ",
                                            launch_.executable_digest()));
  }
  Executable executable;
  if (!executable.ParseFromString(bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", launch_.executable_digest(), " cannot be parsed"));
  }
  const int64_t devices = NumDevices(executable);
  for (int device : devices_) {
    if (device >= 0 && device < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("found device ", device, " of a mesh of ", devices));
  }
  XLAD_ASSIGN_OR_RETURN(loaded_, environment_.device->Load(std::move(executable)));
  const Executable& loaded = loaded_->executable();
  XLAD_ASSIGN_OR_RETURN(program_, StepProgram::Prepare(*loaded_));
  XLAD_ASSIGN_OR_RETURN(feeds_, PlanFeeds(loaded, launch_.spec()));
  XLAD_ASSIGN_OR_RETURN(constants_, MakeConstants(environment_.device, loaded));
  XLAD_ASSIGN_OR_RETURN(data_, TaskData::Make(launch_, loaded, environment_.store, &abort_));
  XLAD_ASSIGN_OR_RETURN(
      collectives_, collectives::MakeCollectiveSet(loaded.collectives(), launch_.plans(), static_cast<int>(devices)));
  for (int device : devices_) {
    recorders_.push_back(std::make_unique<Recorder>(device, &collectives_, environment_.clock));
  }
  return absl::OkStatus();
}

absl::Status TaskExecutor::MakeFabric() {
  std::map<std::string, std::string> values;
  for (const Peer& peer : launch_.peers()) {
    const PeerInfo info{peer.worker_id(), peer.incarnation(), peer.host(), peer.pid(), peer.data_address()};
    for (int device : peer.devices()) values[PeerKey(device)] = EncodePeer(info);
  }
  bootstrap_ = collectives::MapBootstrap(std::move(values));
  collectives::FabricOptions options;
  options.devices = devices_;
  options.num_devices = collectives_.num_devices;
  options.tcp.job_id = launch_.job_id();
  options.tcp.attempt = launch_.attempt();
  options.tcp.generation = launch_.generation();
  options.tcp.worker_id = environment_.worker_id;
  options.tcp.incarnation = environment_.incarnation;
  options.tcp.max_message_bytes = collectives_.max_message_bytes;
  options.network = environment_.network;
  options.data_plane = environment_.data_plane;
  XLAD_ASSIGN_OR_RETURN(fabric_, Fabric::Make(options, *bootstrap_, &abort_));
  return absl::OkStatus();
}

absl::Status TaskExecutor::RunDevices() {
  std::vector<std::thread> threads;
  for (int index = 0; index < static_cast<int>(devices_.size()); ++index) {
    threads.emplace_back([this, index] {
      const absl::Status status = RunDevice(index);
      if (!status.ok()) abort_.Raise({status, ""});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return abort_.status();
}

absl::Status TaskExecutor::RunDevice(int index) {
  DeviceContext context;
  context.device = devices_[index];
  XLAD_RETURN_IF_ERROR(PrepareDevice(index, &context));
  if (++ready_devices_ == static_cast<int>(devices_.size())) environment_.listener->OnReady();
  return RunSteps(index, &context);
}

absl::Status TaskExecutor::PrepareDevice(int index, DeviceContext* context) {
  Device* const device = environment_.device;
  XLAD_ASSIGN_OR_RETURN(context->buffers,
                        DeviceBuffers::Allocate(device, loaded_->executable(), feeds_, constants_.addresses));
  XLAD_ASSIGN_OR_RETURN(context->scratch, device->Allocate(program_->scratch_bytes()));
  XLAD_ASSIGN_OR_RETURN(context->launcher, loaded_->MakeLauncher(context->device));
  XLAD_RETURN_IF_ERROR(data_->ReadState(context->device, context->buffers.get()));
  XLAD_RETURN_IF_ERROR(data_->ReadData(context->device));
  XLAD_ASSIGN_OR_RETURN(context->communicator, ScheduledCommunicator::Form({context->device, &collectives_,
                                                                            &fabric_->transport(context->device),
                                                                            &abort_, recorders_[index].get()}));
  return absl::OkStatus();
}

absl::Status TaskExecutor::RunSteps(int index, DeviceContext* context) {
  for (int64_t step = launch_.first_step();;) {
    switch (gate_.Enter(step)) {
      case TaskGate::Decision::kRun: {
        const absl::Status status = RunStep(index, step, context);
        if (!status.ok()) return Annotate(status, absl::StrCat("step ", step));
        gate_.Finish(index, step++);
        break;
      }
      case TaskGate::Decision::kStop:
        XLAD_RETURN_IF_ERROR(Stop(step, context));
        break;
      case TaskGate::Decision::kDone:
        return Finish(context);
      case TaskGate::Decision::kEnd:
        return abort_.status();
    }
  }
}

absl::Status TaskExecutor::RunStep(int index, int64_t step, DeviceContext* context) {
  const int64_t begin_ns = environment_.clock->NowNs();
  context->buffers->PrepareStep();
  XLAD_RETURN_IF_ERROR(data_->Fill(context->device, step, context->buffers.get()));
  StepEnvironment environment;
  environment.launcher = context->launcher.get();
  environment.communicator = context->communicator.get();
  environment.allocations = context->buffers->addresses();
  environment.scratch = context->scratch->address();
  environment.step = step;
  environment.abort = &abort_;
  XLAD_RETURN_IF_ERROR(program_->Run(environment));
  if (context->device == 0) {
    StepMetrics metrics;
    metrics.set_step(step);
    metrics.set_attempt(launch_.attempt());
    for (float value : data_->ReadScalars(*context->buffers)) metrics.add_values(value);
    metrics.set_step_ms(static_cast<double>(environment_.clock->NowNs() - begin_ns) / kNsPerMs);
    environment_.listener->OnStep(metrics);
  }
  context->buffers->FeedBack();
  return absl::OkStatus();
}

absl::Status TaskExecutor::Stop(int64_t step, DeviceContext* context) {
  XLAD_RETURN_IF_ERROR(data_->WriteState(context->device, step, *context->buffers));
  if (gate_.Stand(step)) environment_.listener->OnStopped(step);
  gate_.WaitWhileStopped(step);
  return absl::OkStatus();
}

absl::Status TaskExecutor::Finish(DeviceContext* context) {
  if (launch_.spec().keep_final_state()) {
    XLAD_RETURN_IF_ERROR(data_->WriteState(context->device, launch_.spec().steps(), *context->buffers));
  }
  ++finished_devices_;
  return absl::OkStatus();
}

std::string TaskExecutor::RecentCollectives() const {
  std::string out;
  for (const auto& recorder : recorders_) out += recorder->ToString();
  return out;
}

}  // namespace xlad::runtime
