#include "collectives/exec/device/device_communicator.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/rounding.h"
#include "collectives/exec/schedule_compiler.h"
#include "collectives/plan/mapped.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {
namespace {

DeviceReduction ReductionOf(const CollectiveSpec& spec) {
  return {spec.type, spec.reduction, spec.mode == ReductionMode::kCanonical};
}

// The largest number of sources of a reduction in the schedules of all ranks.
absl::StatusOr<size_t> MostSources(const Collective& collective) {
  XLAD_ASSIGN_OR_RETURN(const std::vector<Schedule> schedules, BuildSchedules(collective.plan, collective.spec));
  size_t most = 2;
  for (const Schedule& schedule : schedules) {
    for (const ScheduleOp& op : schedule.ops) most = std::max(most, op.sources.size());
  }
  return most;
}

}  // namespace

DeviceCommunicator::BlockLayout::BlockLayout(const ScheduleProgram& program) {
  constexpr int64_t kAlignment = 64;
  const int64_t width = tensor::ByteWidth(program.spec.type);
  const auto add = [&](const std::vector<int64_t>& counts, std::vector<Part>* parts) {
    for (const int64_t count : counts) {
      parts->push_back({bytes, count * width});
      bytes += RoundUp(count * width, kAlignment);
    }
  };
  add(InputCounts(program.spec, program.rank), &inputs);
  add(OutputCounts(program.spec, program.rank), &outputs);
  scratch = bytes;
  bytes += program.schedule.scratch * width;
}

DeviceCommunicator::DeviceCommunicator(const Options& options, std::unique_ptr<StagedCommunicator> staged)
    : options_(options), blocks_(options.ops, options.device, options.blocks), staged_(std::move(staged)) {
  runner_.device = options.device;
  runner_.ops = options.ops;
  runner_.mailbox = options.mailboxes->Find(options.first_channel, options.device);
  runner_.blocks = &blocks_;
  runner_.recorder = options.recorder;
  programs_.resize(options.collectives->collectives.size());
}

// The host does not wait for the streams, so a peer's stream may still read messages that the peer has released.
DeviceCommunicator::~DeviceCommunicator() {
  runner_.mailbox->WaitUntilRead();
  options_.ops->Synchronize().IgnoreError();  // The work that uses the memory of this object has ended.
  if (options_.abort->raised()) blocks_.KeepOwn();
}

absl::StatusOr<std::unique_ptr<Communicator>> DeviceCommunicator::Form(const Options& options,
                                                                       std::unique_ptr<StagedCommunicator> staged) {
  if (options.ops->memory_name().empty()) return staged;
  std::unique_ptr<DeviceCommunicator> made(new DeviceCommunicator(options, std::move(staged)));
  std::map<std::string, int> reasons;
  XLAD_RETURN_IF_ERROR(made->PrepareAll(&reasons));
  made->LogChoice(reasons);
  const auto& programs = made->programs_;
  if (std::any_of(programs.begin(), programs.end(), [](const auto& program) { return program != nullptr; }))
    return made;
  return std::move(made->staged_);
}

// All devices of a group make the same decisions, because they know the same names and the same problems.
absl::Status DeviceCommunicator::PrepareAll(std::map<std::string, int>* reasons) {
  const auto decline = [&](int spec, const std::string& why) {
    ++(*reasons)[why];
    staged_->SetReason(spec, why);
  };
  const std::vector<Collective>& collectives = options_.collectives->collectives;
  int64_t shared_bytes = 0;
  for (int spec = 0; spec < std::ssize(collectives); ++spec) {
    const std::vector<int>* const devices = FindGroup(collectives[spec], options_.device).first;
    if (devices == nullptr) continue;
    const std::string why =
        options_.by_nccl.contains(spec) ? "NCCL runs the collective" : WhyNot(collectives[spec], *devices);
    if (!why.empty()) {
      decline(spec, why);
      continue;
    }
    if (const absl::Status prepared = Prepare(spec); !prepared.ok()) return CannotForm(prepared);
    const auto shared = shared_.find(spec);
    if (shared != shared_.end()) shared_bytes = std::max(shared_bytes, shared->second.bytes);
  }
  if (shared_.empty()) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(ShareMemory(shared_bytes));
  for (auto at = shared_.begin(); at != shared_.end();) {
    const int spec = at->first;
    std::string why;
    for (const int device : *FindGroup(collectives[spec], options_.device).first) {
      if (why.empty()) why = blocks_.ProblemOf(device);
    }
    if (why.empty()) {
      ++at;
      continue;
    }
    programs_[spec] = nullptr;
    at = shared_.erase(at);
    decline(spec, why);
  }
  if (shared_.empty()) blocks_.Drop();
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::ShareMemory(int64_t bytes) {
  std::set<int> peers, direct;
  for (const auto& [spec, layout] : shared_) {
    const std::vector<int>& devices = *FindGroup(options_.collectives->collectives[spec], options_.device).first;
    peers.insert(devices.begin(), devices.end());
  }
  peers.erase(options_.device);
  for (const int peer : peers) {
    if (HasOwnMemory(peer)) direct.insert(peer);
  }
  TextLinks links(options_.transport, kDeviceChannels + options_.first_channel + kFormChannel);
  const absl::Status status = blocks_.Exchange(peers, direct, bytes, &links);
  if (status.ok()) return status;
  absl::Status raised = CannotForm(status);
  links.Revoke();
  return raised;
}

// Raises the error, with the device, and returns it.
absl::Status DeviceCommunicator::CannotForm(const absl::Status& status) const {
  absl::Status annotated = Annotate(status, absl::StrCat("device ", options_.device, " cannot form its communicator"));
  options_.abort->Raise({annotated, ""});
  return annotated;
}

// Whether `device` is in this process and has the same memory as the device of this communicator.
bool DeviceCommunicator::HasOwnMemory(int device) const {
  const auto mailbox = options_.mailboxes->Find(options_.first_channel, device);
  return mailbox != nullptr && mailbox->memory() == runner_.mailbox->memory();
}

bool DeviceCommunicator::HaveOwnMemory(const std::vector<int>& devices) const {
  return std::all_of(devices.begin(), devices.end(), [this](int device) { return HasOwnMemory(device); });
}

// Returns "" if the devices of a group have one memory or can share memory.
std::string DeviceCommunicator::WhyNotIn(const std::vector<int>& devices) const {
  if (HaveOwnMemory(devices)) return "";
  const auto name_of = [this](int device) {
    const auto found = options_.shared_memory.find(device);
    return found == options_.shared_memory.end() ? "" : found->second;
  };
  const std::string own = name_of(options_.device);
  const bool can_share =
      !own.empty() && options_.transport != nullptr &&
      std::all_of(devices.begin(), devices.end(), [&](int device) { return name_of(device) == own; });
  return can_share ? "" : "the devices of the group do not share one memory";
}

// Returns "" if the collective runs in device memory. All devices of the group return the same, because the result
// depends only on the collective, on what the devices have told each other, and on the version of this code, which is a
// part of the names of shared memory.
std::string DeviceCommunicator::WhyNot(const Collective& collective, const std::vector<int>& devices) const {
  const CollectiveSpec& spec = collective.spec;
  if (!collective.plan.engine.empty()) return absl::StrCat("the plan requires ", collective.plan.engine);
  if (IsMapped(collective.plan)) return "the plan requires mapped memory";
  if (std::string why = WhyNotIn(devices); !why.empty()) return why;
  if (MessageType(collective.plan, spec) != spec.type) return "partial results have another type";
  if (!Reduces(spec.kind)) return "";
  if (!options_.ops->CanReduce(ReductionOf(spec))) {
    return absl::StrCat("there is no kernel for this reduction of ", tensor::ToString(spec.type));
  }
  if (spec.ranks <= static_cast<int>(DeviceReduction::kMaxSources)) return "";
  const absl::StatusOr<size_t> sources = MostSources(collective);
  if (!sources.ok()) return std::string(sources.status().message());
  if (*sources <= DeviceReduction::kMaxSources) return "";
  return absl::StrCat("some reductions have more than ", DeviceReduction::kMaxSources, " sources");
}

void DeviceCommunicator::LogChoice(const std::map<std::string, int>& reasons) const {
  const auto own = std::count_if(programs_.begin(), programs_.end(), [](const auto& p) { return p != nullptr; });
  int others = 0;
  std::vector<std::string> texts;
  for (const auto& [why, count] : reasons) {
    others += count;
    texts.push_back(why);
  }
  if (own + others == 0) return;
  LogInfo("collectives in device memory", {{"device", absl::StrCat(options_.device)},
                                           {"in_device_memory", absl::StrCat(own, " of ", own + others)},
                                           {"others_because", absl::StrJoin(texts, "; ")}});
}

absl::StatusOr<ScheduleLink*> DeviceCommunicator::OpenLink(int peer, int channel) {
  const auto found = links_.by_peer.find({peer, channel});
  if (found != links_.by_peer.end()) return found->second.get();
  auto link = std::make_unique<ScheduleLink>();
  link->peer = peer;
  link->channel = channel;
  if (HasOwnMemory(peer)) {
    runner_.peers[peer] = options_.mailboxes->Find(options_.first_channel, peer);
  } else {
    const int number = options_.first_channel + kFirstDataChannel + channel;
    XLAD_ASSIGN_OR_RETURN(link->send, options_.transport->OpenSend(peer, kDeviceChannels + number));
    XLAD_ASSIGN_OR_RETURN(link->receive, options_.transport->OpenReceive(peer, kDeviceChannels + number));
    ReadMessages& read = runner_.read[link.get()];
    XLAD_ASSIGN_OR_RETURN(read.to_sender, options_.transport->OpenSend(peer, kReadChannels + number));
    XLAD_ASSIGN_OR_RETURN(read.from_receiver, options_.transport->OpenReceive(peer, kReadChannels + number));
  }
  return links_.by_peer.emplace(std::make_pair(peer, channel), std::move(link)).first->second.get();
}

absl::Status DeviceCommunicator::Prepare(int spec) {
  const Collective& collective = options_.collectives->collectives[spec];
  const auto [group, rank] = FindGroup(collective, options_.device);
  const std::vector<int>& devices = *group;
  XLAD_ASSIGN_OR_RETURN(Schedule schedule, BuildSchedule(collective.plan, collective.spec, rank));
  const int64_t scratch = schedule.scratch * tensor::ByteWidth(collective.spec.type);
  absl::StatusOr<ScheduleProgram> program =
      CompileSchedule(collective, collective.spec, std::move(schedule),
                      [this, &devices](int peer_rank, int channel) { return OpenLink(devices[peer_rank], channel); });
  if (!program.ok()) return Annotate(program.status(), collective.name);
  program->links = &links_;
  programs_[spec] = std::make_unique<ScheduleProgram>(*std::move(program));
  if (HaveOwnMemory(devices)) return Grow(&scratch_, scratch);
  shared_.emplace(spec, BlockLayout(*programs_[spec]));
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::Grow(Memory* memory, int64_t bytes) {
  if (memory->bytes >= bytes) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(options_.ops->Synchronize());
  XLAD_ASSIGN_OR_RETURN(memory->address, options_.ops->AllocateDevice(bytes));
  memory->bytes = bytes;
  return absl::OkStatus();
}

absl::Status DeviceCommunicator::Enqueue(const ScheduleProgram& program, const CollectiveLaunch& launch) {
  const auto grow = [this](int64_t bytes) -> absl::StatusOr<std::byte*> {
    XLAD_RETURN_IF_ERROR(Grow(&inputs_, bytes));
    return inputs_.address.get();
  };
  const auto copy = [this](std::byte* to, const std::byte* from, int64_t bytes) {
    return options_.ops->Copy(to, from, bytes);
  };
  XLAD_ASSIGN_OR_RETURN(ScheduleMemory memory, MemoryOfRun(program, launch, scratch_.address.get(), grow, copy));
  return DeviceRun(&runner_, program, launch, std::move(memory), ReductionOf(program.spec)).Execute();
}

// No peer reads the block between runs. The next run on it waits for the copies of this one, because they are on the
// same stream or because EndRun records their end.
absl::Status DeviceCommunicator::EnqueueShared(const ScheduleProgram& program, const BlockLayout& layout,
                                               const CollectiveLaunch& launch) {
  XLAD_RETURN_IF_ERROR(blocks_.BeginRun());
  std::byte* const block = blocks_.own();
  ScheduleMemory memory;
  std::vector<std::byte*> outputs;
  for (size_t i = 0; i < launch.inputs.size(); ++i) {
    const auto [offset, bytes] = layout.inputs[i];
    memory.inputs.push_back(block + offset);
    outputs.push_back(block + layout.outputs[i].offset);
    if (bytes > 0) XLAD_RETURN_IF_ERROR(options_.ops->Copy(block + offset, launch.inputs[i], bytes));
  }
  memory.outputs = outputs;
  memory.scratch = block + layout.scratch;
  XLAD_RETURN_IF_ERROR(DeviceRun(&runner_, program, launch, memory, ReductionOf(program.spec)).Execute());
  for (size_t i = 0; i < outputs.size() && WritesOutputs(program.spec, program.rank); ++i) {
    const int64_t bytes = layout.outputs[i].bytes;
    if (bytes > 0) XLAD_RETURN_IF_ERROR(options_.ops->Copy(launch.outputs[i], outputs[i], bytes));
  }
  return blocks_.EndRun();
}

absl::Status DeviceCommunicator::Launch(const CollectiveLaunch& launch) {
  if (!IsOwn(launch.spec)) return staged_->Launch(launch);
  ScheduleProgram& program = *programs_[launch.spec];
  const size_t operands = program.spec.counts.size();
  if (launch.inputs.size() != operands || launch.outputs.size() != operands) {
    return absl::InvalidArgumentError(absl::StrCat(program.collective->ToString(), ": inputs and outputs: found ",
                                                   launch.inputs.size(), " and ", launch.outputs.size(), ", expected ",
                                                   operands, " of each"));
  }
  if (!runner_.mailbox->Enter()) {
    return Annotate(options_.abort->status(), absl::StrCat("before ", program.collective->ToString(), ", step ",
                                                           launch.step, ", device ", options_.device));
  }
  options_.recorder->Begin({launch.spec, program.rank, launch.step, launch.iteration}, &program.schedule);
  const auto shared = shared_.find(launch.spec);
  const absl::Status status =
      shared != shared_.end() ? EnqueueShared(program, shared->second, launch) : Enqueue(program, launch);
  options_.recorder->End();
  ++program.sequence;
  runner_.mailbox->Leave();
  return status.ok() ? status : Fail(program, launch, status);
}

absl::StatusOr<int64_t> DeviceCommunicator::Start(const CollectiveLaunch& launch) {
  if (!IsOwn(launch.spec)) return staged_->Start(launch);
  XLAD_RETURN_IF_ERROR(Launch(launch));
  return 0;
}

// The caller may free its buffers after an error. So this waits until no peer enqueues work that reads them, and until
// the work that has been enqueued has ended.
absl::Status DeviceCommunicator::Fail(const ScheduleProgram& program, const CollectiveLaunch& launch,
                                      const absl::Status& status) {
  const absl::Status annotated =
      Annotate(status, absl::StrCat(program.collective->ToString(), ", step ", launch.step, ", device ",
                                    options_.device, ", rank ", program.rank, " of ", program.spec.ranks));
  options_.abort->Raise({annotated, ""});
  for (const auto& [device, mailbox] : runner_.peers) {
    while (device != options_.device && mailbox->is_busy()) std::this_thread::yield();
  }
  runner_.mailbox->WaitUntilRead();
  options_.ops->Synchronize().IgnoreError();
  for (const auto& [key, link] : links_.by_peer) {
    if (link->send != nullptr) link->send->Revoke();
  }
  return annotated;
}

}  // namespace xlad::collectives
