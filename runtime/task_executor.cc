#include "runtime/task_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "runtime/memory_need.h"

namespace xlad::runtime {
namespace {

// ResourceExhausted if the shards of a device together need more memory than the job allows. The compiler has checked
// the limit only for a single shard.
absl::Status CheckMemoryOfShards(const Executable& executable, const LaunchTask& launch) {
  const int64_t limit = launch.spec().compile().memory_limit_bytes(), shards = launch.shards_per_device();
  if (limit <= 0 || shards <= 1) return absl::OkStatus();
  int64_t bytes = 0;
  for (const Allocation& allocation : executable.allocations()) bytes += allocation.bytes();
  if (bytes <= limit / shards) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "memory limit: found ", shards, " logical shards on a device that need ", bytes, " bytes each, expected at most ",
      limit, " together. Use more devices, a larger mesh, a smaller batch or a higher limit"));
}

}  // namespace

TaskExecutor::TaskExecutor(const LaunchTask& launch, const TaskEnvironment& environment)
    : launch_(launch),
      environment_(environment),
      devices_(MeshPositions(launch)),
      gate_({launch.first_step(), launch.spec().steps(), launch.spec().checkpoint().every_steps(),
             launch.spec().keep_final_state()},
            std::ssize(devices_)) {
  for (size_t i = 0; i < devices_.size(); ++i) tracers_.push_back(std::make_unique<StepTracer>(environment.clock));
  gate_listener_ = abort_.AddListener([this](const collectives::Failure&) { gate_.End(); });
  main_ = std::thread([this] { Main(); });
}

TaskExecutor::~TaskExecutor() {
  dropped_ = true;
  gate_.End();
  // Raising the signal ends loading and waiting for peers. If all devices are ready, it is enough to end the gate, and
  // the peers need not be aborted.
  if (ready_devices_ < std::ssize(devices_)) abort_.Raise({absl::CancelledError("the task was dropped"), ""});
  {
    const std::lock_guard lock(writer_mutex_);
    if (writer_ != nullptr) writer_->End();
  }
  main_.join();
  abort_.RemoveListener(gate_listener_);
}

void TaskExecutor::Main() {
  absl::Status status =
      devices_.empty() ? absl::InvalidArgumentError("found a task without devices, expected at least one") : Load();
  if (status.ok()) status = RunDevices();
  if (!status.ok()) abort_.Raise({status, ""});
  StopReplacing();
  const bool finished = finished_devices_ == std::ssize(devices_) && !devices_.empty() && KeepLastState().ok();
  if (fabric_ != nullptr && finished && !abort_.raised()) {
    // Peers may still be reading what this worker has sent, so Finish waits for them. If a peer is lost before it has
    // finished, the signal is raised.
    fabric_->Finish().IgnoreError();
  } else if (fabric_ != nullptr) {
    fabric_->Leave();
  }
  const std::string recent = executable_ == nullptr ? "" : executable_->RecentCollectives();
  const RunReport report = finished ? executable_->Report() : RunReport();
  executable_.reset();
  fabric_.reset();
  if (dropped_ && !abort_.raised()) return;
  if (abort_.raised()) {
    LogInfo("collectives before the end, newest first", {{"job", launch_.job_id()}, {"log", recent}});
    environment_.listener->OnFailed(gate_.finished_steps(), abort_.failure());
  } else if (finished) {
    environment_.listener->OnFinished(report);
  }
}

// Reads each executable that the devices of this worker need, once.
absl::Status TaskExecutor::LoadExecutables() {
  ExecutableLaunch launch{devices_, launch_.plans(), {}, launch_.shards_per_device()};
  std::vector<StoredExecutable> stored;
  for (const LaunchRecord& record : launch_.devices()) {
    const std::string& digest =
        record.executable_digest().empty() ? launch_.executable_digest() : record.executable_digest();
    const auto known = std::find_if(stored.begin(), stored.end(), [&](const auto& s) { return s.digest == digest; });
    launch.executable_of.push_back(known - stored.begin());
    if (known != stored.end()) continue;
    XLAD_ASSIGN_OR_RETURN(std::string bytes, environment_.store->ReadBlob(digest, &abort_));
    stored.push_back({std::move(bytes), digest});
  }
  XLAD_ASSIGN_OR_RETURN(executable_, ConnectedExecutable::Load(stored, launch, environment_, &abort_));
  for (int index = 0; index < std::ssize(devices_); ++index) {
    XLAD_RETURN_IF_ERROR(CheckMemoryOfShards(executable_->executable(index), launch_));
  }
  return CheckHostMemory(*executable_, launch_, environment_.worker_id, AvailableMemory::Now(),
                         "use a smaller batch or more machines, or submit the job with a limit per device "
                         "(--memory-limit)");
}

absl::Status TaskExecutor::Load() {
  XLAD_RETURN_IF_ERROR(LoadExecutables());
  if (environment_.on_times) executable_->MeasureSteps(environment_.clock);
  XLAD_RETURN_IF_ERROR(executable_->SetFeeds(launch_.spec()));
  std::vector<const Executable*> executables;
  for (int index = 0; index < std::ssize(devices_); ++index) executables.push_back(&executable_->executable(index));
  XLAD_ASSIGN_OR_RETURN(data_, TaskData::Make(launch_, executables, environment_.store, &abort_));
  XLAD_RETURN_IF_ERROR(data_->StartData());  // The first batches are read at the same time as the state.
  XLAD_ASSIGN_OR_RETURN(fabric_, AttemptFabric::Make(launch_, environment_, &abort_));
  XLAD_RETURN_IF_ERROR(executable_->UseFabric(fabric_.get()));
  std::vector<DeviceBuffers*> buffers;
  for (int index = 0; index < std::ssize(devices_); ++index) {
    XLAD_RETURN_IF_ERROR(Annotate(executable_->Prepare(index), absl::StrCat("device ", devices_[index])));
    buffers.push_back(&executable_->buffers(index));
  }
  XLAD_RETURN_IF_ERROR(data_->ReadState(buffers));
  MakeWriter();
  return absl::OkStatus();
}

void TaskExecutor::MakeWriter() {
  const std::string name = absl::StrCat("shard-", *std::min_element(devices_.begin(), devices_.end()), ".safetensors");
  CheckpointWriter::Callbacks callbacks;
  callbacks.write = [this, name](int64_t step, const storage::SerializedShard& shard, collectives::AbortSignal* abort) {
    return environment_.store->WriteShard(step, name, shard, abort);
  };
  callbacks.written = [this](int64_t step, const CheckpointShard& shard) {
    environment_.listener->OnShardWritten(step, shard);
  };
  callbacks.give_up = [this](int64_t step) { return gate_.GiveUpSave(step); };
  callbacks.failed = [this](int64_t step, const absl::Status& error, bool must) {
    environment_.listener->OnShardFailed(step, error, must);
  };
  callbacks.is_cut_off = [this] { return environment_.store->IsCutOff(); };
  const std::lock_guard lock(writer_mutex_);
  writer_ = std::make_unique<CheckpointWriter>(data_->SavedBoxes(), std::ssize(devices_),
                                               storage::ShardOrigin{launch_.job_id(), launch_.attempt(), 0},
                                               std::move(callbacks), &abort_);
  if (dropped_) writer_->End();
}

absl::Status TaskExecutor::RunDevices() {
  std::vector<std::thread> threads;
  for (int index = 0; index < std::ssize(devices_); ++index) {
    threads.emplace_back([this, index] {
      const absl::Status status = RunDevice(index);
      if (!status.ok()) abort_.Raise({status, ""});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return abort_.status();
}

absl::Status TaskExecutor::RunDevice(int index) {
  XLAD_RETURN_IF_ERROR(executable_->Connect(index));
  if (++ready_devices_ == std::ssize(devices_)) environment_.listener->OnReady();
  return RunSteps(index);
}

absl::Status TaskExecutor::RunSteps(int index) {
  int64_t save_ns = 0;  // The time of saves since the last step.
  for (int64_t step = launch_.first_step();;) {
    switch (gate_.Begin(index, step)) {
      case TaskGate::Decision::kRun: {
        const absl::Status status = RunStep(index, step, std::exchange(save_ns, 0));
        if (!status.ok()) return Annotate(status, absl::StrCat("step ", step));
        gate_.FinishStep(index, step++);
        break;
      }
      case TaskGate::Decision::kSave: {
        const int64_t begin_ns = environment_.clock->NowNs();
        const absl::StatusOr<bool> saved =
            writer_->Save(index, step, gate_.IsFinalState(step), executable_->buffers(index));
        if (!saved.ok()) return dropped_ ? abort_.status() : saved.status();
        if (!*saved) gate_.SkipSave(index, step);
        save_ns += environment_.clock->NowNs() - begin_ns;
        break;
      }
      case TaskGate::Decision::kStop:
        if (gate_.ReachStop(step)) ReportStop(step);
        gate_.WaitWhileStopped(step);
        break;
      case TaskGate::Decision::kDone:
        if (environment_.on_times) environment_.on_times(devices_[index], executable_->times(index));
        ++finished_devices_;
        return absl::OkStatus();
      case TaskGate::Decision::kEnd:
        return abort_.status();
    }
  }
}

absl::Status TaskExecutor::RunStep(int index, int64_t step, int64_t save_ns) {
  const int64_t begin_ns = environment_.clock->NowNs();
  StepTracer* const tracer = IsTraced(step - launch_.first_step()) ? tracers_[index].get() : nullptr;
  if (tracer != nullptr) tracer->Begin(step);
  DeviceBuffers& buffers = executable_->buffers(index);
  XLAD_RETURN_IF_ERROR(buffers.RestoreState());
  XLAD_RETURN_IF_ERROR(data_->WriteInputs(index, step, &buffers));
  XLAD_RETURN_IF_ERROR(executable_->Run(index, step, tracer));
  if (devices_[index] == 0) {
    StepMetrics metrics;
    metrics.set_step(step);
    metrics.set_attempt(launch_.attempt());
    metrics.set_save_ms(static_cast<double>(save_ns) / kNsPerMs);
    metrics.set_quick_code(executable_->RanQuickCode(index));
    XLAD_ASSIGN_OR_RETURN(const std::vector<float> values, data_->ReadScalars(buffers));
    if (launch_.spec().stop_when_not_finite()) XLAD_RETURN_IF_ERROR(CheckFinite(index, values));
    metrics.mutable_values()->Assign(values.begin(), values.end());
    metrics.set_step_ms(static_cast<double>(environment_.clock->NowNs() - begin_ns) / kNsPerMs);
    const Executable& program = executable_->executable();
    if (program.has_simulated()) *metrics.mutable_simulated() = program.simulated();
    environment_.listener->OnStep(metrics);
  }
  XLAD_RETURN_IF_ERROR(buffers.FeedBack());
  if (tracer != nullptr) ReportTrace(index, tracer);
  return absl::OkStatus();
}

void TaskExecutor::ReportTrace(int index, StepTracer* tracer) {
  TaskTrace trace;
  *trace.add_steps() = tracer->End(devices_[index]);
  const std::lock_guard lock(trace_mutex_);
  if (!std::exchange(program_reported_, true)) *trace.mutable_program() = executable_->Describe();
  environment_.listener->OnTrace(std::move(trace));
}

absl::Status TaskExecutor::CheckFinite(int index, const std::vector<float>& values) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return absl::OkStatus();
  std::vector<std::string> names;
  for (const JobSpec::Result& result : launch_.spec().results()) {
    const bool is_scalar = result.kind() == JobSpec::Result::LOSS || result.kind() == JobSpec::Result::METRIC;
    if (is_scalar) names.push_back(result.name());
  }
  DeviceBuffers& buffers = executable_->buffers(index);
  XLAD_RETURN_IF_ERROR(buffers.FeedBack());
  XLAD_ASSIGN_OR_RETURN(const std::string tensor, data_->FirstNotFinite(index, buffers));
  return absl::OutOfRangeError(absl::StrCat(
      "found ", names[bad - values.begin()], " = ", *bad, ", expected a finite number; ",
      tensor.empty() ? "the state after the step is finite"
                     : absl::StrCat("the first tensor that is not finite in the state after the step: ", tensor),
      " (on device ", devices_[index], ")"));
}

void TaskExecutor::ReportStop(int64_t step) {
  {
    const std::lock_guard lock(writer_mutex_);
    if (reported_stop_ == step || !gate_.IsStoppedAt(step) || !writer_->IsCommitted(step)) return;
    reported_stop_ = step;
  }
  environment_.listener->OnStopped(step);
}

void TaskExecutor::CheckpointIsCommitted(int64_t step) {
  {
    const std::lock_guard lock(writer_mutex_);
    if (writer_ == nullptr) return;
    writer_->Committed(step);
  }
  ReportStop(step);
}

void TaskExecutor::ReplaceCode(const std::string& executable_digest) {
  const std::lock_guard lock(replacing_mutex_);
  // A task without devices is never ready: it fails, and loads no executable.
  const bool is_ready = !devices_.empty() && ready_devices_ == std::ssize(devices_);
  if (!may_replace_ || !is_ready || executable_digest == launch_.executable_digest()) return;
  may_replace_ = false;
  if (replacing_.joinable()) replacing_.join();  // An earlier attempt failed; its thread is ending.
  replacing_ = std::thread([this, executable_digest] {
    absl::StatusOr<std::string> bytes = environment_.store->ReadBlob(executable_digest, &stop_replacing_);
    absl::Status status = bytes.status();
    if (status.ok()) status = executable_->ReplaceCode({*std::move(bytes), executable_digest});
    if (status.ok() || stop_replacing_.raised()) return;
    LogWarn("the code of the attempt cannot be replaced; its steps continue",
            {{"error", std::string(status.message())}});
    const std::lock_guard lock(replacing_mutex_);
    may_replace_ = !stop_replacing_.raised();  // A later request may try again.
  });
}

void TaskExecutor::StopReplacing() {
  stop_replacing_.Raise({absl::CancelledError("the task ends"), ""});
  std::thread replacing;
  {
    const std::lock_guard lock(replacing_mutex_);
    may_replace_ = false;
    replacing = std::move(replacing_);
  }
  if (replacing.joinable()) replacing.join();
}

absl::Status TaskExecutor::KeepLastState() {
  if (!launch_.spec().keep_final_state() || abort_.raised()) return abort_.status();
  return writer_->WaitUntilCommitted(launch_.spec().steps());
}

}  // namespace xlad::runtime
