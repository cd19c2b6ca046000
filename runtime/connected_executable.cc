#include "runtime/connected_executable.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/device_name.h"
#include "proto/mesh.h"
#include "proto/only_code.h"
#include "runtime/host_threads.h"
#include "runtime/index_text.h"

namespace xlad::runtime {

using collectives::Recorder;

namespace {

// The device that runs the executable's code. An executable that names no kind runs on the first device.
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

absl::StatusOr<Executable> Parse(const StoredExecutable& stored) {
  if (Sha256Hex(stored.bytes) != stored.digest) {
    return absl::DataLossError(absl::StrCat("found an executable of ", stored.bytes.size(),
                                            " bytes, expected the one with SHA-256 ", stored.digest));
  }
  Executable executable;
  if (!executable.ParseFromString(stored.bytes)) {
    return absl::DataLossError(absl::StrCat("executable ", stored.digest, " cannot be parsed"));
  }
  return executable;
}

}  // namespace

std::vector<int> MeshPositions(const LaunchTask& launch) {
  std::vector<int> positions;
  for (const LaunchRecord& record : launch.devices()) positions.push_back(record.device());
  return positions;
}

// Counts the launches that it forwards to another launcher.
class ConnectedExecutable::CountingLauncher final : public Launcher {
 public:
  CountingLauncher(std::unique_ptr<Launcher> inner, int64_t* launches)
      : inner_(std::move(inner)), launches_(launches) {}

  absl::Status RunKernel(int kernel, absl::Span<void* const> buffers, void* scratch, int64_t tiles) override {
    ++*launches_;
    return inner_->RunKernel(kernel, buffers, scratch, tiles);
  }
  absl::Status RunLibraryOp(int op, absl::Span<void* const> buffers) override {
    ++*launches_;
    return inner_->RunLibraryOp(op, buffers);
  }
  absl::StatusOr<bool> BeginGroup(const StepGroup& group) override {
    launches_before_ = *launches_;
    XLAD_ASSIGN_OR_RETURN(const bool is_enqueued, inner_->BeginGroup(group));
    if (is_enqueued) *launches_ += group.launches;
    return is_enqueued;
  }
  absl::StatusOr<bool> EndGroup(const absl::Status& enqueued) override {
    XLAD_ASSIGN_OR_RETURN(const bool is_enqueued, inner_->EndGroup(enqueued));
    if (!is_enqueued) *launches_ = launches_before_;
    return is_enqueued;
  }

 private:
  const std::unique_ptr<Launcher> inner_;
  int64_t* const launches_;
  int64_t launches_before_ = 0;  // Before the current group of steps.
};

// Counts the collectives that it forwards to another communicator.
class ConnectedExecutable::CountingCommunicator final : public collectives::Communicator {
 public:
  CountingCommunicator(std::unique_ptr<collectives::Communicator> inner, size_t num_collectives)
      : inner_(std::move(inner)), counts_(num_collectives) {}

  absl::Status Launch(const collectives::CollectiveLaunch& launch) override {
    ++counts_[launch.spec];
    return inner_->Launch(launch);
  }
  absl::StatusOr<int64_t> Start(const collectives::CollectiveLaunch& launch) override {
    ++counts_[launch.spec];
    return inner_->Start(launch);
  }
  absl::Status Wait(int64_t number) override { return inner_->Wait(number); }
  std::string Medium(int spec) const override { return inner_->Medium(spec); }

  void AddTo(google::protobuf::Map<std::string, int64_t>* by_medium) const {
    for (size_t spec = 0; spec < counts_.size(); ++spec) {
      if (counts_[spec] > 0) (*by_medium)[Medium(spec)] += counts_[spec];
    }
  }

 private:
  const std::unique_ptr<collectives::Communicator> inner_;
  std::vector<int64_t> counts_;  // By collective. StepProgram has checked the numbers of the collectives.
};

ConnectedExecutable::Shard::~Shard() {
  if (stream != nullptr) stream->Synchronize().IgnoreError();
}

absl::Status ConnectedExecutable::AddCode(const StoredExecutable& stored) {
  XLAD_ASSIGN_OR_RETURN(Executable executable, Parse(stored));
  if (!codes_.empty()) XLAD_RETURN_IF_ERROR(CheckSameCollectives(executable));
  const int64_t devices = NumDevices(executable.mesh());
  for (const int position : positions_) {
    if (position >= 0 && position < devices) continue;
    return absl::InvalidArgumentError(absl::StrCat("found mesh position ", position, ", expected 0 to ", devices - 1));
  }
  Code code;
  XLAD_ASSIGN_OR_RETURN(code.device, FindDevice(executable, environment_.devices));
  XLAD_ASSIGN_OR_RETURN(code.loaded, code.device->Load(std::move(executable)));
  const Executable& loaded = code.loaded->executable();
  XLAD_ASSIGN_OR_RETURN(code.steps, StepProgram::Prepare(*code.loaded));
  code.feeds.block_from.resize(loaded.allocations_size());
  std::iota(code.feeds.block_from.begin(), code.feeds.block_from.end(), 0);
  XLAD_ASSIGN_OR_RETURN(code.constants, MakeConstants(code.device, loaded));
  codes_.push_back(std::move(code));
  return absl::OkStatus();
}

// The steps of all executables refer to one list of collectives.
absl::Status ConnectedExecutable::CheckSameCollectives(const Executable& other) const {
  const Executable& first = codes_[0].loaded->executable();
  bool are_same = first.collectives_size() == other.collectives_size();
  for (int c = 0; are_same && c < first.collectives_size(); ++c) {
    are_same = first.collectives(c).SerializeAsString() == other.collectives(c).SerializeAsString();
  }
  if (are_same) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("executable '", other.name(), "' for ", DeviceName(other.target()),
                                                 ": found collectives that differ from those of the executable for ",
                                                 DeviceName(first.target()), ", expected the same program"));
}

absl::StatusOr<std::unique_ptr<ConnectedExecutable>> ConnectedExecutable::Load(
    absl::Span<const StoredExecutable> executables, const ExecutableLaunch& launch,
    const WorkerEnvironment& environment, collectives::AbortSignal* abort) {
  std::unique_ptr<ConnectedExecutable> made(new ConnectedExecutable(launch, environment, abort));
  for (const StoredExecutable& stored : executables) XLAD_RETURN_IF_ERROR(made->AddCode(stored));
  for (const int code : made->code_of_) {
    if (code >= 0 && code < std::ssize(made->codes_)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("found executable ", code, " for a shard, expected ", IndexText(std::ssize(made->codes_))));
  }
  const Executable& first = made->codes_.at(0).loaded->executable();
  XLAD_ASSIGN_OR_RETURN(made->collectives_,
                        collectives::MakeCollectiveSet(first.collectives(), launch.plans, NumDevices(first.mesh())));
  for (int copy = 0; copy < 2; ++copy) {
    for (const int shard : launch.shards) {
      made->recorders_.push_back(std::make_unique<Recorder>(shard, &made->collectives_, environment.clock));
    }
  }
  for (size_t i = 0; i < launch.shards.size(); ++i) made->shards_.push_back(std::make_unique<Shard>());
  return made;
}

absl::Status ConnectedExecutable::SetFeeds(const JobSpec& spec) {
  for (Code& code : codes_) {
    XLAD_ASSIGN_OR_RETURN(code.feeds, PlanFeeds(code.loaded->executable(), spec));
  }
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
                                                       : ThreadsOfEach(HostThreads(), std::ssize(shards_));
  const Code& code = CodeOf(index);
  XLAD_ASSIGN_OR_RETURN(shard.stream, code.device->MakeStream(threads));
  const MemorySource memory(code.device, shard.stream->host_can_access() ? &fabric_->fabric().memory() : nullptr);
  XLAD_ASSIGN_OR_RETURN(shard.buffers, DeviceBuffers::Allocate(memory, shard.stream.get(), executable(index),
                                                               code.feeds, code.constants.addresses));
  XLAD_ASSIGN_OR_RETURN(shard.scratch, code.device->Allocate(code.steps->scratch_bytes()));
  return MakeLauncher(index, code);
}

absl::Status ConnectedExecutable::MakeLauncher(int index, const Code& code) {
  Shard& shard = *shards_[index];
  XLAD_ASSIGN_OR_RETURN(auto launcher, code.loaded->MakeLauncher(positions_[index], shard.stream.get()));
  shard.launcher = std::make_unique<CountingLauncher>(std::move(launcher), &shard.launches);
  shard.code = &code;
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::ReplaceCode(StoredExecutable stored) {
  if (codes_.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat("found shards that run ", codes_.size(),
                                                      " executables, expected one: code is replaced only in jobs on "
                                                      "one kind of device"));
  }
  XLAD_CHECK(replacement_ == nullptr);
  XLAD_ASSIGN_OR_RETURN(Executable next, Parse(stored));
  stored.bytes = std::string();  // Frees the memory of the constants in it.
  const Code& now = codes_[0];
  XLAD_RETURN_IF_ERROR(CheckOnlyCodeDiffers(now.loaded->executable(), next));
  // The shards keep their buffers, which have the constants.
  for (Allocation& allocation : *next.mutable_allocations()) allocation.clear_blob();
  Code& code = replacement_code_;
  code.device = now.device;
  XLAD_ASSIGN_OR_RETURN(code.loaded, code.device->Load(std::move(next)));
  XLAD_ASSIGN_OR_RETURN(code.steps, StepProgram::Prepare(*code.loaded));
  replacement_ = &code;
  return absl::OkStatus();
}

// If the code has been replaced, makes the shard use the new code. If that fails, the shard keeps its code.
void ConnectedExecutable::UseNewCode(int index) {
  Shard& shard = *shards_[index];
  const Code* const code = replacement_;
  if (code == nullptr || shard.code == code || shard.keeps_code) return;
  absl::Status status = shard.stream->Synchronize();  // The old launcher must have no work left.
  if (status.ok()) status = MakeLauncher(index, *code);
  if (status.ok()) return;
  shard.keeps_code = true;
  LogWarn("the code of the attempt cannot be replaced; its steps continue",
          {{"device", absl::StrCat(positions_[index])}, {"error", std::string(status.message())}});
}

absl::Status ConnectedExecutable::Connect(int index) {
  Shard& shard = *shards_[index];
  XLAD_ASSIGN_OR_RETURN(auto communicator, fabric_->fabric().MakeCommunicator(
                                               {positions_[index], &collectives_, &MappedRecorder(index),
                                                first_channel_, &MessageRecorder(index), shard.stream.get()}));
  shard.communicator = std::make_unique<CountingCommunicator>(std::move(communicator), collectives_.collectives.size());
  shard.is_connected.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status ConnectedExecutable::Run(int index, int64_t step, StepTracer* tracer) {
  UseNewCode(index);
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
  environment.tracer = tracer;
  // Collectives by messages may run on a separate thread, but not those in shared device memory, which also send
  // messages. When a step has succeeded, all of them have finished. After an error, that thread may still write to the
  // tracer's messages, which must then not be read.
  if (tracer != nullptr) {
    MessageRecorder(index).KeepMessages(tracer->messages());
    MappedRecorder(index).KeepMessages(tracer->messages());
  }
  const absl::Status status = shard.code->steps->Run(environment);
  if (status.ok()) MessageRecorder(index).KeepMessages(nullptr);
  MappedRecorder(index).KeepMessages(nullptr);
  return status;
}

void ConnectedExecutable::MeasureSteps(const Clock* clock) {
  times_.assign(shards_.size(), StepTimes());
  for (StepTimes& times : times_) times.clock = clock;
}

RunReport ConnectedExecutable::Report() const {
  RunReport report;
  for (int index = 0; index < std::ssize(shards_); ++index) {
    const std::string kind = KindOfDevice(CodeOf(index).device->Name());
    (*report.mutable_launches())[kind] += shards_[index]->launches;
    if (shards_[index]->communicator != nullptr) shards_[index]->communicator->AddTo(report.mutable_collectives());
  }
  return report;
}

TracedProgram ConnectedExecutable::Describe() const {
  TracedProgram program = TracedProgramOf(executable(), collectives_, positions_);
  for (int spec = 0; spec < program.collectives_size(); ++spec) {
    for (size_t index = 0; index < shards_.size(); ++index) {
      if (!shards_[index]->is_connected.load(std::memory_order_acquire)) continue;
      if (FindGroup(collectives_.collectives[spec], positions_[index]).first == nullptr) continue;
      const std::string medium = shards_[index]->communicator->Medium(spec);
      if (medium == collectives::kHostMedium) break;
      absl::StrAppend(program.mutable_collectives(spec)->mutable_name(), ", ", medium);
      break;
    }
  }
  return program;
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
