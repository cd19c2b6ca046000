#include "collectives/exec/device/device_communicator.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
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

DeviceCommunicator::DeviceCommunicator(const Options& options, std::unique_ptr<StagedCommunicator> staged)
    : options_(options), staged_(std::move(staged)) {
  runner_.device = options.device;
  runner_.ops = options.ops;
  runner_.mailbox = options.mailboxes->Find(options.first_channel, options.device);
  runner_.recorder = options.recorder;
  programs_.resize(options.collectives->collectives.size());
}

// The host does not wait for the streams, so a peer's stream may still read messages that the peer has released.
DeviceCommunicator::~DeviceCommunicator() {
  runner_.mailbox->WaitUntilRead();
  options_.ops->Synchronize().IgnoreError();  // The work that uses the memory of this object has ended.
}

absl::StatusOr<std::unique_ptr<Communicator>> DeviceCommunicator::Form(const Options& options,
                                                                       std::unique_ptr<StagedCommunicator> staged) {
  if (options.ops->memory_name().empty()) return staged;
  std::unique_ptr<DeviceCommunicator> made(new DeviceCommunicator(options, std::move(staged)));
  std::map<std::string, int> reasons;
  bool is_needed = false;
  for (int spec = 0; spec < std::ssize(options.collectives->collectives); ++spec) {
    const Collective& collective = options.collectives->collectives[spec];
    const std::vector<int>* const devices = FindGroup(collective, options.device).first;
    if (devices == nullptr) continue;
    const std::string why = made->WhyNot(collective, *devices);
    if (!why.empty()) {
      ++reasons[why];
      made->staged_->SetReason(spec, why);
      continue;
    }
    is_needed = true;
    absl::Status status = made->Prepare(spec);
    if (status.ok()) continue;
    status = Annotate(status, absl::StrCat("device ", options.device, " cannot form its communicator"));
    options.abort->Raise({status, ""});
    return status;
  }
  made->LogChoice(reasons);
  if (is_needed) return made;
  return std::move(made->staged_);
}

// Returns "" if the collective runs in device memory. All devices of the group return the same, because the result
// depends only on the collective and on properties that all of them know.
std::string DeviceCommunicator::WhyNot(const Collective& collective, const std::vector<int>& devices) const {
  const CollectiveSpec& spec = collective.spec;
  if (!collective.plan.engine.empty()) return absl::StrCat("the plan requires ", collective.plan.engine);
  if (IsMapped(collective.plan)) return "the plan requires mapped memory";
  for (const int device : devices) {
    const auto mailbox = options_.mailboxes->Find(options_.first_channel, device);
    if (mailbox == nullptr) return "some devices of the group are in other processes";
    if (mailbox->memory() != runner_.mailbox->memory()) return "the devices of the group do not share one memory";
  }
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

ScheduleLink* DeviceCommunicator::OpenLink(int peer, int channel) {
  std::unique_ptr<ScheduleLink>& link = links_.by_peer[{peer, channel}];
  if (link != nullptr) return link.get();
  link = std::make_unique<ScheduleLink>();
  link->peer = peer;
  link->channel = channel;
  runner_.peers[peer] = options_.mailboxes->Find(options_.first_channel, peer);
  return link.get();
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
  return Grow(&scratch_, scratch);
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
  const absl::Status status = Enqueue(program, launch);
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
  return annotated;
}

}  // namespace xlad::collectives
