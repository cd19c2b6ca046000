#include "runtime/session_executor.h"

#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "tensor/wire.h"

namespace xlad::runtime {
namespace {

std::vector<int> DevicesOf(const LaunchTask& launch) {
  std::vector<int> devices;
  for (const LaunchRecord& record : launch.devices()) devices.push_back(record.device());
  return devices;
}

}  // namespace

SessionExecutor::SessionExecutor(const LaunchTask& launch, const SessionEnvironment& environment)
    : launch_(launch), environment_(environment), devices_(DevicesOf(launch)) {
  abort_listener_ = abort_.AddListener([this](const collectives::Failure&) {
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  });
  for (int index = 0; index < std::ssize(devices_); ++index) {
    device_threads_.emplace_back([this, index] { DeviceLoop(index); });
  }
  main_ = std::thread([this] { Main(); });
}

SessionExecutor::~SessionExecutor() {
  bool busy = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
    busy = !commands_.empty();
    changed_.notify_all();
  }
  if (busy) abort_.Raise({absl::CancelledError("the session was dropped"), ""});
  main_.join();
  for (std::thread& thread : device_threads_) thread.join();
  abort_.RemoveListener(abort_listener_);
}

void SessionExecutor::Command(const SessionCommand& command) {
  const std::lock_guard<std::mutex> lock(mutex_);
  commands_.push_back(command);
  changed_.notify_all();
}

void SessionExecutor::Main() {
  absl::Status status =
      devices_.empty() ? absl::InvalidArgumentError("found a session without devices") : absl::OkStatus();
  if (status.ok()) environment_.listener->OnReady();
  if (status.ok()) status = RunCommands();
  if (!status.ok()) abort_.Raise({status, ""});
  std::string recent;
  for (const auto& [number, program] : programs_) {
    program.placed->Leave();
    recent += program.placed->RecentCollectives();
  }
  programs_.clear();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    if (leaving_ && status.ok()) return;
  }
  LogInfo("collectives before the end, newest first", {{"session", launch_.job_id()}, {"log", recent}});
  environment_.listener->OnFailed(done_, abort_.failure());
}

// A command stays in the queue until it is done, so that whoever drops the session knows that one runs.
absl::Status SessionExecutor::RunCommands() {
  while (true) {
    SessionCommand command;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return leaving_ || abort_.raised() || !commands_.empty(); });
      if (abort_.raised()) return abort_.status();
      if (leaving_) return absl::OkStatus();
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
    case SessionCommand::kLoad: XLAD_RETURN_IF_ERROR(Load(command)); break;
    case SessionCommand::kCall: XLAD_RETURN_IF_ERROR(Call(command)); break;
    case SessionCommand::kFetch: XLAD_RETURN_IF_ERROR(Fetch(command.fetch())); break;
    case SessionCommand::COMMAND_NOT_SET: break;  // Only frees.
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
  XLAD_ASSIGN_OR_RETURN(const std::string bytes, environment_.store->ReadBlob(load.executable_digest(), &abort_));
  Program& program = programs_[load.program()];
  // Programs are connected each for itself: peers tell them apart by the name.
  const Placement placement{absl::StrCat(launch_.job_id(), "/", load.program()), launch_.attempt(),
                            launch_.generation(), devices_, launch_.peers(), command.plans()};
  const auto read_all = [&](const auto& values, const auto& layouts, std::vector<EntryLayout>* out,
                            std::vector<int32_t>* numbers) -> absl::Status {
    if (values.size() != layouts.size()) return absl::InvalidArgumentError("found a program without its layouts");
    numbers->assign(layouts.begin(), layouts.end());
    for (int i = 0; i < values.size(); ++i) {
      XLAD_ASSIGN_OR_RETURN(out->emplace_back(), ReadEntryLayout(program.placed->executable(), values[i]));
      layouts_[layouts[i]] = out->back();
    }
    return absl::OkStatus();
  };
  auto placed = PlacedProgram::Load(bytes, load.executable_digest(), placement, environment_, &abort_);
  if (!placed.ok()) {
    programs_.erase(load.program());
    return placed.status();
  }
  program.placed = *std::move(placed);
  const Executable& executable = program.placed->executable();
  XLAD_RETURN_IF_ERROR(
      read_all(executable.parameters(), load.parameter_layouts(), &program.parameters, &program.parameter_layouts));
  XLAD_RETURN_IF_ERROR(
      read_all(executable.results(), load.result_layouts(), &program.results, &program.result_layouts));
  XLAD_RETURN_IF_ERROR(program.placed->MakeFabric());
  return OnDevices([&](int index) -> absl::Status {
    XLAD_RETURN_IF_ERROR(program.placed->Prepare(index));
    return program.placed->Connect(index);
  });
}

int SessionExecutor::FirstHere(const EntryLayout& layout, int index) const {
  int first = 0;
  while (first < index && !(layout.BoxOf(devices_[first]) ==
                            layout.BoxOf(devices_[index]))) {
    ++first;
  }
  return first;
}

absl::StatusOr<SessionExecutor::Shards> SessionExecutor::Read(int64_t array, const EntryLayout& layout) {
  Shards shards(devices_.size());
  for (int index = 0; index < std::ssize(devices_); ++index) {
    const int first = FirstHere(layout, index);
    if (first != index) {
      shards[index] = shards[first];
      continue;
    }
    const tensor::Box& box = layout.BoxOf(devices_[index]);
    const tensor::Shape part{layout.local.type, box.sizes()};
    auto shard = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(layout.local.bytes()));
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

absl::Span<const std::byte> SessionExecutor::BytesOf(const Held& held, size_t index) const {
  if (held.home == nullptr) return *held.shards[index];
  return held.home->placed->buffers(static_cast<int>(index)).At(held.home->results[held.result].slice);
}

absl::Status SessionExecutor::MakeRoom(Program* program, const SessionCommand& command) {
  const SessionCall& call = command.call();
  const auto is_freed = [&](int64_t array) { return absl::c_linear_search(command.free(), array); };
  const auto stays = [&](const Key& key, const Held& held) {
    for (int p = 0; p < call.arguments_size(); ++p) {
      const size_t at = p;
      if (call.arguments(p) == key.first && program->parameter_layouts[at] == key.second &&
          program->parameters[at].slice == program->results[held.result].slice) {
        return is_freed(key.first);
      }
    }
    return false;
  };
  std::vector<Held*> moved;
  for (auto& [key, held] : arrays_) {
    if (held.home != program || stays(key, held)) continue;
    if (is_freed(key.first) && !absl::c_linear_search(call.arguments(), key.first)) continue;
    moved.push_back(&held);
  }
  if (moved.empty()) return absl::OkStatus();
  for (Held* held : moved) held->shards.resize(devices_.size());
  XLAD_RETURN_IF_ERROR(OnDevices([&](int index) {
    for (Held* held : moved) {
      if (FirstHere(program->results[held->result], index) != index) continue;
      const absl::Span<const std::byte> bytes = BytesOf(*held, static_cast<size_t>(index));
      held->shards[index] =
          std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    }
    return absl::OkStatus();
  }));
  for (Held* held : moved) {
    for (size_t index = 0; index < devices_.size(); ++index) {
      const int first = FirstHere(program->results[held->result], static_cast<int>(index));
      held->shards[index] = held->shards[first];
    }
    held->home = nullptr;
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::Call(const SessionCommand& command) {
  const SessionCall& call = command.call();
  const auto found = programs_.find(call.program());
  if (found == programs_.end() ||
      call.arguments_size() != static_cast<int>(found->second.parameters.size()) ||
      call.results_size() != static_cast<int>(found->second.results.size())) {
    return absl::InternalError(absl::StrCat("found a call of program ", call.program(), " that does not fit it"));
  }
  Program& program = found->second;
  XLAD_RETURN_IF_ERROR(MakeRoom(&program, command));
  std::vector<const Held*> arguments;
  for (int p = 0; p < call.arguments_size(); ++p) {
    const Key key(call.arguments(p), program.parameter_layouts[p]);
    auto held = arrays_.find(key);
    if (held == arrays_.end()) {
      XLAD_ASSIGN_OR_RETURN(Shards read, Read(key.first, program.parameters[p]));
      held = arrays_.emplace(key, Held{std::move(read)}).first;
    }
    arguments.push_back(&held->second);
  }
  const absl::Status status = OnDevices([&](int index) { return CallOn(index, program, arguments); });
  if (!status.ok()) return Annotate(status, absl::StrCat("call ", program.calls));
  ++program.calls;
  for (int r = 0; r < call.results_size(); ++r) {
    const size_t at = r;
    arrays_[{call.results(r), program.result_layouts[at]}] = Held{{}, &program, at};
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::CallOn(int index, const Program& program, const std::vector<const Held*>& arguments) {
  DeviceBuffers& buffers = program.placed->buffers(index);
  for (size_t p = 0; p < arguments.size(); ++p) {
    const absl::Span<const std::byte> bytes = BytesOf(*arguments[p], static_cast<size_t>(index));
    std::byte* to = buffers.At(program.parameters[p].slice).data();
    if (!bytes.empty() && to != bytes.data()) std::memcpy(to, bytes.data(), bytes.size());
  }
  return program.placed->Run(index, program.calls);
}

absl::Status SessionExecutor::Fetch(const SessionFetch& fetch) {
  const auto held = arrays_.find({fetch.array(), fetch.layout()});
  if (held == arrays_.end()) {
    return absl::InternalError(absl::StrCat("found no array ", fetch.array(), " in layout ", fetch.layout()));
  }
  const EntryLayout& layout = layouts_.at(fetch.layout());
  for (size_t index = 0; index < devices_.size(); ++index) {
    const int device = devices_[index];
    const tensor::Box& box = layout.BoxOf(device);
    if (layout.FirstHolder(device) != device || box.elements() == 0) continue;
    const tensor::Array part = WithoutPadding(layout, device, BytesOf(held->second, index));
    const absl::Status status = environment_.store->WriteArray(fetch.array(), box, part.bytes(), &abort_);
    if (!status.ok()) return Annotate(status, absl::StrCat("array ", fetch.array()));
  }
  return absl::OkStatus();
}

absl::Status SessionExecutor::OnDevices(const std::function<absl::Status(int index)>& work) {
  std::unique_lock<std::mutex> lock(mutex_);
  work_ = &work;
  working_ = static_cast<int>(devices_.size());
  ++round_;
  changed_.notify_all();
  changed_.wait(lock, [this] { return working_ == 0; });
  return abort_.status();
}

void SessionExecutor::DeviceLoop(int index) {
  int64_t seen = 0;
  while (true) {
    const std::function<absl::Status(int index)>* work = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return round_ != seen || ended_; });
      if (round_ == seen) return;
      seen = round_;
      work = work_;
    }
    const absl::Status status = (*work)(index);
    if (!status.ok()) abort_.Raise({status, ""});
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--working_ == 0) changed_.notify_all();
  }
}

}  // namespace xlad::runtime
