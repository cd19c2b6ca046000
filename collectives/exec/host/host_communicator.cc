#include "collectives/exec/host/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/containers.h"
#include "base/log.h"
#include "collectives/exec/text_links.h"

namespace xlad::collectives {
namespace {

// Separates a device's address, its greeting and the name of its rules.
constexpr char kSeparator = '\t';

// Whether two processes are the same, or may share memory.
bool AreOnOneHost(const HostAddress& a, const HostAddress& b) {
  return a.process == b.process || (!a.machine.empty() && a.machine == b.machine);
}

}  // namespace

// What the devices tell each other while they form the communicator.
class HostCommunicator::Meeting : public TextLinks {
 public:
  using TextLinks::TextLinks;
  // Returns a number for each device, which is equal for devices of one host.
  std::vector<int> HostsOf(const std::vector<int>& devices) const {
    std::vector<int> hosts;
    for (const int device : devices) {
      const auto is_same = [&](int other) { return AreOnOneHost(addresses.at(device), addresses.at(other)); };
      hosts.push_back(static_cast<int>(std::find_if(devices.begin(), devices.end(), is_same) - devices.begin()));
    }
    return hosts;
  }

  // Whether the rules of all devices have this name.
  bool HaveRules(const std::vector<int>& devices, const std::string& name) const {
    return std::all_of(devices.begin(), devices.end(), [&](int device) { return rules.at(device) == name; });
  }

  // By device, including this device.
  std::map<int, HostAddress> addresses;
  std::map<int, std::string> rules;  // The names of the rules. Empty for a worker of a version without rules.
};

absl::StatusOr<std::unique_ptr<HostCommunicator>> HostCommunicator::Form(const Options& options) {
  std::unique_ptr<HostCommunicator> made(new HostCommunicator(options));
  XLAD_ASSIGN_OR_RETURN(made->messages_, ScheduledCommunicator::Form(options.messages));
  const absl::Status status = made->FormGroups();
  if (status.ok()) return made;
  return made->messages_->Fail(
      Annotate(status, absl::StrCat("device ", options.messages.device, " cannot form its communicator")));
}

// All devices form their groups in the order of the collectives, so two devices cannot wait for each other in different
// groups.
absl::Status HostCommunicator::FormGroups() {
  const std::vector<Collective>& collectives = options_.messages.collectives->collectives;
  mapped_.resize(collectives.size());
  Meeting meeting(options_.messages.transport, options_.messages.first_channel + kHostChannel);
  const absl::Status status = [&]() -> absl::Status {
    XLAD_RETURN_IF_ERROR(Greet(&meeting));
    for (int spec = 0; spec < std::ssize(collectives); ++spec) {
      const auto [devices, rank] = FindGroup(collectives[spec], options_.messages.device);
      if (devices == nullptr) continue;
      HostGroup* group = nullptr;
      if (HostGroup::CanRun(collectives[spec])) {
        XLAD_ASSIGN_OR_RETURN(group, FormGroup(*devices, rank, &meeting));
      }
      if (group == nullptr) {
        XLAD_RETURN_IF_ERROR(PlacePlan(spec, *devices, meeting));
        continue;
      }
      mapped_[spec].group = group;
      XLAD_ASSIGN_OR_RETURN(mapped_[spec].operation, group->Prepare(collectives[spec]));
    }
    XLAD_RETURN_IF_ERROR(ComparePlans(&meeting));
    for (int spec = 0; spec < std::ssize(collectives); ++spec) {
      if (!IsMapped(spec)) XLAD_RETURN_IF_ERROR(messages_->Prepare(spec, &PlacedAs(spec)));
    }
    return meeting.WaitUntilReceived();
  }();
  if (status.ok()) return status;
  options_.messages.abort->Raise({status, ""});
  meeting.Revoke();
  return status;
}

// Exchanges addresses, greetings and the names of rules with all peers. A worker of a version without rules sends no
// name. It treats a name that it receives as the end of the greeting, which has no effect.
absl::Status HostCommunicator::Greet(Meeting* meeting) {
  const int device = options_.messages.device;
  const std::vector<int> peers = messages_->Peers();
  meeting->addresses[device] = options_.memory->address();
  meeting->rules[device] = options_.rules.name;
  std::string own = options_.memory->address().Encode();
  absl::StrAppend(&own, std::string(1, kSeparator), options_.greeting);
  if (!options_.rules.name.empty()) absl::StrAppend(&own, std::string(1, kSeparator), options_.rules.name);
  for (const int peer : peers) XLAD_RETURN_IF_ERROR(meeting->Send(peer, own));
  for (const int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(const std::string text, meeting->Receive(peer));
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(kSeparator, 1));
    XLAD_ASSIGN_OR_RETURN(meeting->addresses[peer], HostAddress::Decode(parts.first));
    const size_t end = parts.second.rfind(kSeparator);
    greetings_[peer] = parts.second.substr(0, end);
    meeting->rules[peer] = end == std::string::npos ? "" : parts.second.substr(end + 1);
  }
  return absl::OkStatus();
}

const Collective& HostCommunicator::PlacedAs(int spec) const {
  const auto found = placed_.find(spec);
  return found != placed_.end() ? found->second : options_.messages.collectives->collectives[spec];
}

// Decides whether a group replaces the plan of a collective. All members know the addresses and the rules of all
// members, so they make the same decision.
absl::Status HostCommunicator::PlacePlan(int spec, const std::vector<int>& devices, const Meeting& meeting) {
  const Collective& collective = options_.messages.collectives->collectives[spec];
  const PlacementRules& rules = options_.rules;
  if (collective.is_given || rules.name.empty() || !meeting.HaveRules(devices, rules.name)) return absl::OkStatus();
  std::optional<CollectivePlan> plan = rules.replace(collective.plan, collective.spec, meeting.HostsOf(devices));
  if (!plan.has_value()) return absl::OkStatus();
  Collective placed = collective;
  placed.name = absl::StrCat(collective.name, " (plan ", plan->ToString(), ")");
  placed.plan = *std::move(plan);
  XLAD_ASSIGN_OR_RETURN(placed.hash, ScheduleHash(placed.plan, placed.spec));
  placed_[spec] = std::move(placed);
  return absl::OkStatus();
}

// Compares the hashes of all plans with those of each peer whose rules have the same name. If a plan differs, both
// devices send each other their plan. Each device does this only with its first peer that differs, so devices do not
// wait for each other in a cycle.
absl::Status HostCommunicator::ComparePlans(Meeting* meeting) const {
  const std::vector<Collective>& collectives = options_.messages.collectives->collectives;
  const int device = options_.messages.device;
  std::vector<int> peers = messages_->Peers();
  std::erase_if(
      peers, [&](int peer) { return options_.rules.name.empty() || !meeting->HaveRules({peer}, options_.rules.name); });
  std::vector<uint64_t> own, theirs(collectives.size());
  for (int spec = 0; spec < std::ssize(collectives); ++spec) own.push_back(PlacedAs(spec).hash);
  const size_t bytes = own.size() * sizeof(uint64_t);
  for (const int peer : peers) {
    XLAD_RETURN_IF_ERROR(meeting->Send(peer, std::string(reinterpret_cast<const char*>(own.data()), bytes)));
  }
  for (const int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(const std::string text, meeting->Receive(peer));
    if (text.size() != bytes) {
      return absl::DataLossError(absl::StrCat("found ", text.size(), " bytes of plan hashes from ",
                                              options_.messages.transport->Describe(peer), ", expected ", bytes));
    }
    if (bytes > 0) std::memcpy(theirs.data(), text.data(), bytes);
    for (int spec = 0; spec < std::ssize(collectives); ++spec) {
      const std::vector<int>* const group = FindGroup(collectives[spec], device).first;
      const bool are_together = group != nullptr && Contains(*group, peer);
      if (!are_together || own[spec] == theirs[spec]) continue;
      const std::string plan = PlacedAs(spec).plan.ToString();
      XLAD_RETURN_IF_ERROR(meeting->Send(peer, plan));
      XLAD_ASSIGN_OR_RETURN(const std::string other, meeting->Receive(peer));
      return absl::FailedPreconditionError(absl::StrCat(
          collectives[spec].ToString(), ": found plan \"", other, "\" on ", options_.messages.transport->Describe(peer),
          ", expected \"", plan, "\" as on device ", device, ": start the same version of xlad on all workers"));
    }
  }
  return absl::OkStatus();
}

// Rank 0 creates the area and sends its name to the others. Each of them maps the area and the memory of all members,
// and answers with its error, or with an empty text. Returns null if the group uses messages.
absl::StatusOr<HostGroup*> HostCommunicator::FormGroup(const std::vector<int>& devices, int rank, Meeting* meeting) {
  const auto [found, is_new] = groups_.try_emplace(devices);
  if (!is_new) return found->second.get();
  const int ranks = static_cast<int>(devices.size());
  HostGroup::Options options;
  options.rank = rank;
  options.exclusive = options_.exclusive;
  options.memory = options_.memory;
  options.abort = options_.messages.abort;
  options.recorder = options_.recorder;
  const HostAddress& own = options_.memory->address();
  for (const int member : devices) {
    const HostAddress& address = meeting->addresses[member];
    if (!AreOnOneHost(own, address)) return nullptr;
    const std::string text = member == options_.messages.device ? absl::StrCat("device ", member)
                                                                : options_.messages.transport->Describe(member);
    options.members.push_back({member, text, address});
  }
  absl::StatusOr<std::unique_ptr<HostGroup>> group = nullptr;
  if (rank == 0) {
    const absl::StatusOr<SharedSegment*> area = options_.memory->CreateArea(HostGroup::AreaBytes(ranks));
    group = area.ok() ? HostGroup::Make(options, *area, /*create=*/true) : area.status();
    std::string why(group.status().message());  // Empty if all members can map the memory.
    const std::string name = group.ok() ? (*area)->name() : "";
    for (int r = 1; r < ranks; ++r) XLAD_RETURN_IF_ERROR(meeting->Send(devices[r], name));
    for (int r = 1; r < ranks; ++r) {
      XLAD_ASSIGN_OR_RETURN(const std::string answer, meeting->Receive(devices[r]));
      if (why.empty()) why = answer;
    }
    const bool all = group.ok() && why.empty();
    if (!all) LogWarn("devices of one host cannot share memory and exchange messages instead", {{"reason", why}});
    for (int r = 1; r < ranks; ++r) XLAD_RETURN_IF_ERROR(meeting->Send(devices[r], all ? "map" : "messages"));
    if (!all) return nullptr;
  } else {
    XLAD_ASSIGN_OR_RETURN(const std::string name, meeting->Receive(devices[0]));
    const absl::StatusOr<SharedSegment*> opened = options_.memory->OpenArea(name);
    group = opened.ok() ? HostGroup::Make(options, *opened, /*create=*/false) : opened.status();
    XLAD_RETURN_IF_ERROR(meeting->Send(devices[0], std::string(group.status().message())));
    XLAD_ASSIGN_OR_RETURN(const std::string decision, meeting->Receive(devices[0]));
    if (decision != "map") return nullptr;
  }
  (*group)->Start();
  found->second = *std::move(group);
  return found->second.get();
}

absl::Status HostCommunicator::Check(const HostOperation& operation, const CollectiveLaunch& launch) const {
  const size_t inputs = operation.command.input_bytes.size(), outputs = operation.command.output_bytes.size();
  if (launch.inputs.size() != inputs || launch.outputs.size() != outputs) {
    return absl::InvalidArgumentError(absl::StrCat(operation.collective->ToString(), ": inputs and outputs: found ",
                                                   launch.inputs.size(), " and ", launch.outputs.size(), ", expected ",
                                                   inputs, " and ", outputs));
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::Launch(const CollectiveLaunch& launch) {
  if (!IsMapped(launch.spec)) {
    if (progress_ != nullptr) progress_->Drain();
    return messages_->Launch(launch);
  }
  const Mapped& mapped = mapped_[launch.spec];
  HostOperation& operation = *mapped.operation;
  XLAD_RETURN_IF_ERROR(Check(operation, launch));
  AbortSignal& abort = *options_.messages.abort;
  const Collective& collective = *operation.collective;
  const int device = options_.messages.device;
  if (abort.raised()) {
    return Annotate(abort.status(),
                    absl::StrCat("before ", collective.ToString(), ", step ", launch.step, ", device ", device));
  }
  Recorder& recorder = *options_.recorder;
  recorder.Begin({launch.spec, operation.schedule.rank, launch.step, launch.iteration}, &operation.schedule);
  const absl::Status status = mapped.group->Run(&operation, launch);
  recorder.End();
  if (status.ok()) return status;
  abort.Raise({status, ""});
  options_.memory->KeepAll();
  for (const auto& [devices, group] : groups_) {
    if (group != nullptr) group->WaitUntilUnused();
  }
  if (progress_ != nullptr) progress_->Drain();
  return messages_->Fail(
      Annotate(status, absl::StrCat(collective.ToString(), ", step ", launch.step, ", device ", device, ", rank ",
                                    operation.schedule.rank, " of ", collective.spec.ranks)));
}

absl::StatusOr<int64_t> HostCommunicator::Start(const CollectiveLaunch& launch) {
  if (IsMapped(launch.spec) || options_.recorder == options_.messages.recorder) {
    XLAD_RETURN_IF_ERROR(Launch(launch));
    return 0;
  }
  if (progress_ == nullptr) progress_ = std::make_unique<ProgressThread>();
  using Inputs = std::vector<const std::byte*>;
  using Outputs = std::vector<std::byte*>;
  return progress_->Start([this, launch, inputs = Inputs(launch.inputs.begin(), launch.inputs.end()),
                           outputs = Outputs(launch.outputs.begin(), launch.outputs.end())] {
    return messages_->Launch({launch.spec, inputs, outputs, launch.step, launch.iteration});
  });
}

absl::Status HostCommunicator::Wait(int64_t number) {
  const bool is_done = number == 0 || progress_ == nullptr;  // Without the thread, Start returns only 0.
  return is_done ? Communicator::Wait(number) : progress_->Wait(number);
}

}  // namespace xlad::collectives
