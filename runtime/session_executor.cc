#include "runtime/session_executor.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/containers.h"
#include "base/log.h"
#include "runtime/memory_need.h"
#include "tensor/wire.h"

namespace xlad::runtime {

SessionExecutor::SessionExecutor(const LaunchTask& launch, const SessionEnvironment& environment)
    : launch_(launch),
      environment_(environment),
      devices_(MeshPositions(launch)),
      device_threads_(std::ssize(devices_)) {
  abort_listener_ = abort_.AddListener([this](const collectives::Failure&) {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  });
  main_ = std::thread([this] { Main(); });
}

SessionExecutor::~SessionExecutor() {
  bool busy = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    dropped_ = true;
    busy = !commands_.empty();
    changed_.notify_all();
  }
  if (busy) abort_.Raise({absl::CancelledError("the session was dropped"), ""});
  main_.join();
  abort_.RemoveListener(abort_listener_);
}

void SessionExecutor::Command(const SessionCommand& command) {
  const std::lock_guard<std::mutex> lock(mutex_);
  commands_.push_back(command);
  changed_.notify_all();
}

void SessionExecutor::Main() {
  absl::Status status = devices_.empty()
                            ? absl::InvalidArgumentError("found a session without devices, expected at least one")
                            : absl::OkStatus();
  if (status.ok()) environment_.listener->OnReady();
  if (status.ok()) status = RunCommands();
  if (!status.ok()) abort_.Raise({status, ""});
  std::string recent;
  if (fabric_ != nullptr) fabric_->Leave();
  for (const auto& [number, program] : programs_) {
    recent += program.executable->RecentCollectives();
  }
  programs_.clear();
  fabric_.reset();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (dropped_ && status.ok()) return;
  }
  LogInfo("collectives before the end, newest first", {{"session", launch_.job_id()}, {"log", recent}});
  environment_.listener->OnFailed(done_, abort_.failure());
}

// A command stays in the queue until it is done, so that the destructor sees whether a command is running.
absl::Status SessionExecutor::RunCommands() {
  while (true) {
    SessionCommand command;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return dropped_ || abort_.raised() || !commands_.empty(); });
      if (abort_.raised()) return abort_.status();
      if (dropped_) return absl::OkStatus();
      command = commands_.front();
    }
    XLAD_RETURN_IF_ERROR(RunCommand(command));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      commands_.pop_front();
    }
    done_ = command.sequence();
    environment_.listener->OnDone(command.sequence());
  }
}

absl::Status SessionExecutor::RunCommand(const SessionCommand& command) {
  switch (command.command_case()) {
    case SessionCommand::kLoad:
      XLAD_RETURN_IF_ERROR(Load(command));
      break;
    case SessionCommand::kCall:
      XLAD_RETURN_IF_ERROR(Call(command));
      break;
    case SessionCommand::kFetch:
      XLAD_RETURN_IF_ERROR(Fetch(command.fetch()));
      break;
    case SessionCommand::COMMAND_NOT_SET:
      break;  // The command only frees arrays.
  }
  for (const int64_t array : command.free()) {
    const auto first = arrays_.lower_bound({array, INT32_MIN});
    auto last = first;
    while (last != arrays_.end() && last->first.first == array) ++last;
    arrays_.erase(first, last);
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::Load(const SessionCommand& command) {
  const SessionLoad& load = command.load();
  StoredExecutable stored;
  stored.digest = load.executable_digest();
  XLAD_ASSIGN_OR_RETURN(stored.bytes, environment_.store->ReadBlob(stored.digest, &abort_));
  LoadedProgram program;
  XLAD_ASSIGN_OR_RETURN(program.executable, ConnectedExecutable::Load({&stored, 1}, {devices_, command.plans(), {}},
                                                                      environment_, &abort_));
  XLAD_RETURN_IF_ERROR(CheckHostMemory(*program.executable, launch_, environment_.worker_id, AvailableMemory::Now(),
                                       "use smaller arrays or more machines"));
  const Executable& executable = program.executable->executable();
  const auto read_all = [&](const auto& values, const auto& layouts, std::vector<EntryLayout>* out,
                            std::vector<int32_t>* numbers) -> absl::Status {
    if (values.size() != layouts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", load.program(), ": found ", layouts.size(), " layouts, expected ", values.size()));
    }
    numbers->assign(layouts.begin(), layouts.end());
    for (int i = 0; i < values.size(); ++i) {
      XLAD_ASSIGN_OR_RETURN(out->emplace_back(), ReadEntryLayout(executable, values[i]));
      layouts_[layouts[i]] = out->back();
    }
    return absl::OkStatus();
  };
  XLAD_RETURN_IF_ERROR(
      read_all(executable.parameters(), load.parameter_layouts(), &program.parameters, &program.parameter_layouts));
  XLAD_RETURN_IF_ERROR(
      read_all(executable.results(), load.result_layouts(), &program.results, &program.result_layouts));
  ConnectedExecutable& connected = *(programs_[load.program()] = std::move(program)).executable;
  if (fabric_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(fabric_, AttemptFabric::Make(launch_, environment_, &abort_));
  }
  XLAD_RETURN_IF_ERROR(connected.UseFabric(fabric_.get()));
  return OnDevices([&](int index) -> absl::Status {
    XLAD_RETURN_IF_ERROR(connected.Prepare(index));
    return connected.Connect(index);
  });
}

int SessionExecutor::FirstHolderHere(const EntryLayout& layout, int index) const {
  int first = 0;
  while (first < index && !(layout.BoxOf(devices_[first]) == layout.BoxOf(devices_[index]))) ++first;
  return first;
}

absl::StatusOr<SessionExecutor::Shards> SessionExecutor::ReadShards(int64_t array, const EntryLayout& layout) {
  Shards shards(devices_.size());
  for (int index = 0; index < std::ssize(devices_); ++index) {
    const int first = FirstHolderHere(layout, index);
    if (first != index) {
      shards[index] = shards[first];
      continue;
    }
    const tensor::Box& box = layout.BoxOf(devices_[index]);
    const tensor::Shape part{layout.local.type, box.sizes()};
    auto shard = std::make_shared<std::vector<std::byte>>(layout.local.bytes());
    absl::Status status;
    if (part == layout.local && part.elements() > 0) {
      status = environment_.store->ReadArray(array, box, absl::MakeSpan(*shard), &abort_);
    } else if (part.elements() > 0) {
      tensor::Array compact(part), padded(layout.local);
      status = environment_.store->ReadArray(array, box, compact.bytes(), &abort_);
      tensor::InsertBox(compact, tensor::AtOrigin(box), &padded);
      absl::c_copy(padded.bytes(), shard->begin());
    }
    if (!status.ok()) return Annotate(status, absl::StrCat("array ", array));
    shards[index] = std::move(shard);
  }
  return shards;
}

absl::Status SessionExecutor::EvictResults(LoadedProgram* program, const SessionCommand& command) {
  const SessionCall& call = command.call();
  // Whether the call donates the array to the parameter that has the same memory.
  const auto is_donated = [&](const ArrayKey& key, const StoredArray& stored) {
    for (int p = 0; p < call.arguments_size(); ++p) {
      if (call.arguments(p) == key.first && program->parameter_layouts[p] == key.second &&
          program->parameters[p].slice == program->results[stored.result].slice) {
        return Contains(command.free(), key.first);
      }
    }
    return false;
  };
  std::vector<StoredArray*> evicted;
  for (auto& [key, stored] : arrays_) {
    if (stored.home != program || is_donated(key, stored)) continue;
    if (Contains(command.free(), key.first) && !Contains(call.arguments(), key.first)) continue;
    evicted.push_back(&stored);
  }
  if (evicted.empty()) return absl::OkStatus();
  for (StoredArray* stored : evicted) stored->shards.resize(devices_.size());
  XLAD_RETURN_IF_ERROR(OnDevices([&](int index) -> absl::Status {
    for (StoredArray* stored : evicted) {
      const EntryLayout& layout = program->results[stored->result];
      if (FirstHolderHere(layout, index) != index) continue;
      auto shard = std::make_shared<std::vector<std::byte>>(layout.local.bytes());
      XLAD_RETURN_IF_ERROR(program->executable->buffers(index).Read(layout.slice, absl::MakeSpan(*shard)));
      stored->shards[index] = std::move(shard);
    }
    return absl::OkStatus();
  }));
  for (StoredArray* stored : evicted) {
    for (int index = 0; index < std::ssize(devices_); ++index) {
      stored->shards[index] = stored->shards[FirstHolderHere(program->results[stored->result], index)];
    }
    stored->home = nullptr;
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::Call(const SessionCommand& command) {
  const SessionCall& call = command.call();
  const auto found = programs_.find(call.program());
  if (found == programs_.end() || call.arguments_size() != std::ssize(found->second.parameters) ||
      call.results_size() != std::ssize(found->second.results)) {
    return absl::InternalError(absl::StrCat("found a call of program ", call.program(), " with ", call.arguments_size(),
                                            " arguments and ", call.results_size(),
                                            " results, expected those of a loaded program"));
  }
  LoadedProgram& program = found->second;
  XLAD_RETURN_IF_ERROR(EvictResults(&program, command));
  std::vector<const StoredArray*> arguments;
  for (int p = 0; p < call.arguments_size(); ++p) {
    const ArrayKey key(call.arguments(p), program.parameter_layouts[p]);
    auto stored = arrays_.find(key);
    if (stored == arrays_.end()) {
      XLAD_ASSIGN_OR_RETURN(Shards shards, ReadShards(key.first, program.parameters[p]));
      stored = arrays_.emplace(key, StoredArray{std::move(shards)}).first;
    }
    arguments.push_back(&stored->second);
  }
  const absl::Status status = OnDevices([&](int index) { return CallOn(index, program, arguments); });
  if (!status.ok()) return Annotate(status, absl::StrCat("call ", program.calls));
  ++program.calls;
  for (size_t r = 0; r < program.results.size(); ++r) {
    arrays_[{call.results(r), program.result_layouts[r]}] = StoredArray{{}, &program, r};
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::CallOn(int index, const LoadedProgram& program,
                                     const std::vector<const StoredArray*>& arguments) {
  DeviceBuffers& buffers = program.executable->buffers(index);
  for (size_t p = 0; p < arguments.size(); ++p) {
    const StoredArray& argument = *arguments[p];
    const EntryLayout& parameter = program.parameters[p];
    if (argument.home == nullptr) {
      XLAD_RETURN_IF_ERROR(buffers.Write(parameter.slice, *argument.shards[index]));
      continue;
    }
    const Slice& result = argument.home->results[argument.result].slice;
    const std::byte* const from = argument.home->executable->buffers(index).AddressOf(result);
    std::byte* const to = buffers.AddressOf(parameter.slice);
    if (from != to) XLAD_RETURN_IF_ERROR(buffers.stream().Copy(to, from, parameter.local.bytes()));
  }
  return program.executable->Run(index, program.calls);
}

absl::Status SessionExecutor::Fetch(const SessionFetch& fetch) {
  const auto found = arrays_.find({fetch.array(), fetch.layout()});
  if (found == arrays_.end()) {
    return absl::InternalError(absl::StrCat("found no array ", fetch.array(), " in layout ", fetch.layout(),
                                            ", expected one that an earlier call has computed or read"));
  }
  const StoredArray& stored = found->second;
  const EntryLayout& layout = layouts_.at(fetch.layout());
  for (int index = 0; index < std::ssize(devices_); ++index) {
    const int device = devices_[index];
    const tensor::Box& box = layout.BoxOf(device);
    if (layout.FirstHolder(device) != device || box.elements() == 0) continue;
    std::vector<std::byte> read;
    if (stored.home != nullptr) {
      read.resize(layout.local.bytes());
      const Slice& slice = stored.home->results[stored.result].slice;
      XLAD_RETURN_IF_ERROR(stored.home->executable->buffers(index).Read(slice, absl::MakeSpan(read)));
    }
    const tensor::Array part = WithoutPadding(layout, device, stored.home != nullptr ? read : *stored.shards[index]);
    const absl::Status status = environment_.store->WriteArray(fetch.array(), box, part.bytes(), &abort_);
    if (!status.ok()) return Annotate(status, absl::StrCat("array ", fetch.array()));
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::OnDevices(const std::function<absl::Status(int index)>& work) {
  device_threads_.RunOnAll([&](int index) {
    const absl::Status status = work(index);
    if (!status.ok()) abort_.Raise({status, ""});
  });
  return abort_.status();
}

}  // namespace xlad::runtime
