#include "collectives/exec/scheduled_communicator.h"

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/exec/schedule_compiler.h"
#include "collectives/exec/schedule_run.h"
#include "collectives/exec/widened_launch.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {

ScheduledCommunicator::~ScheduledCommunicator() = default;

absl::StatusOr<std::unique_ptr<ScheduledCommunicator>> ScheduledCommunicator::Form(const Options& options) {
  std::unique_ptr<ScheduledCommunicator> communicator(new ScheduledCommunicator(options));
  const absl::Status status = communicator->Connect();
  if (status.ok()) return communicator;
  return communicator->Fail(Annotate(status, absl::StrCat("device ", options.device, " cannot form its communicator")));
}

absl::Status ScheduledCommunicator::Fail(const absl::Status& status) {
  options_.abort->Raise({status, ""});
  for (const auto& [key, link] : links_.by_peer) link->send->Revoke();
  return status;
}

std::vector<int> ScheduledCommunicator::Peers() const {
  std::set<int> peers;
  for (const Collective& collective : options_.collectives->collectives) {
    const auto [group, rank] = FindGroup(collective, options_.device);
    if (group != nullptr) peers.insert(group->begin(), group->end());
  }
  peers.erase(options_.device);
  return {peers.begin(), peers.end()};
}

absl::Status ScheduledCommunicator::Connect() {
  std::vector<uint64_t> hashes;
  for (const Collective& collective : options_.collectives->collectives) {
    hashes.push_back(collective.hash);
    links_.texts.emplace(collective.hash, collective.ToString());
  }
  programs_.resize(hashes.size());
  const absl::Status same = CompareHashes(Peers(), hashes);
  // Fail revokes the links, which must happen before `hashes` is destroyed.
  return same.ok() ? same : Fail(same);
}

// Sends the hashes of all schedules to every peer and compares the hashes received.
absl::Status ScheduledCommunicator::CompareHashes(const std::vector<int>& peers, const std::vector<uint64_t>& own) {
  const ConstPiece payload(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(uint64_t));
  for (int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(ScheduleLink * link, OpenLink(peer, kFormChannel));
    XLAD_RETURN_IF_ERROR(link->send->Post({}, {payload}));
    ++link->sent;
  }
  for (int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(ScheduleLink * both, OpenLink(peer, kFormChannel));
    ReceiveLink* const link = both->receive;
    XLAD_ASSIGN_OR_RETURN(const Incoming message, link->Next());
    std::vector<uint64_t> theirs(static_cast<size_t>(message.bytes) / sizeof(uint64_t));
    if (!theirs.empty()) std::memcpy(theirs.data(), message.pieces[0].data(), theirs.size() * sizeof(uint64_t));
    XLAD_RETURN_IF_ERROR(link->Release());
    if (message.bytes != std::ssize(payload)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", options_.device, " has ", own.size(), " collectives, expected ", message.bytes / 8,
          ", the number on ", options_.transport->Describe(peer), "; run the same program on all devices"));
    }
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] != theirs[i]) return Difference(i, theirs[i], both);
    }
  }
  // Waits until the peers have read the hashes from this memory.
  for (int peer : peers) {
    XLAD_ASSIGN_OR_RETURN(ScheduleLink * link, OpenLink(peer, kFormChannel));
    XLAD_RETURN_IF_ERROR(link->send->WaitReleased(link->sent));
  }
  return absl::OkStatus();
}

// Returns the error for a peer whose hash is `theirs`. The peer finds the same difference, and both devices send each
// other a description of their collective. Each device does this only with its first peer that differs, so devices do
// not wait for each other in a cycle.
absl::Status ScheduledCommunicator::Difference(size_t spec, uint64_t theirs, ScheduleLink* link) {
  const Collective& collective = options_.collectives->collectives[spec];
  difference_ = absl::StrFormat("%s (plan %s)", collective.ToString(), collective.plan.ToString());
  const ConstPiece own(reinterpret_cast<const std::byte*>(difference_.data()), difference_.size());
  XLAD_RETURN_IF_ERROR(link->send->Post({}, {own}));
  XLAD_ASSIGN_OR_RETURN(const Incoming message, link->receive->Next());
  std::string other;
  for (const ConstPiece& piece : message.pieces) {
    other.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  XLAD_RETURN_IF_ERROR(link->receive->Release());
  return absl::FailedPreconditionError(
      absl::StrFormat("schedules of %s have hash %016x on device %d and %016x on %s, which has %s", difference_,
                      collective.hash, options_.device, theirs, options_.transport->Describe(link->peer), other));
}

absl::StatusOr<ScheduleLink*> ScheduledCommunicator::OpenLink(int peer, int channel) {
  const auto found = links_.by_peer.find({peer, channel});
  if (found != links_.by_peer.end()) return found->second.get();
  auto link = std::make_unique<ScheduleLink>();
  link->peer = peer;
  link->channel = channel;
  XLAD_ASSIGN_OR_RETURN(link->send, options_.transport->OpenSend(peer, options_.first_channel + channel));
  XLAD_ASSIGN_OR_RETURN(link->receive, options_.transport->OpenReceive(peer, options_.first_channel + channel));
  return links_.by_peer.emplace(std::make_pair(peer, channel), std::move(link)).first->second.get();
}

absl::Status ScheduledCommunicator::Prepare(int spec, const Collective* other) {
  const Collective& collective = other != nullptr ? *other : options_.collectives->collectives[spec];
  const auto [group, rank] = FindGroup(collective, options_.device);
  if (group == nullptr) return absl::OkStatus();
  const std::vector<int>& devices = *group;
  links_.texts.emplace(collective.hash, collective.ToString());
  XLAD_ASSIGN_OR_RETURN(Schedule schedule, BuildSchedule(collective.plan, collective.spec, rank));
  CollectiveSpec sent = collective.spec;
  sent.type = MessageType(collective.plan, sent);
  const int64_t scratch = schedule.scratch * tensor::ByteWidth(sent.type);
  absl::StatusOr<ScheduleProgram> program =
      CompileSchedule(collective, sent, std::move(schedule), [this, &devices](int peer_rank, int channel) {
        return OpenLink(devices[peer_rank], kFirstDataChannel + channel);
      });
  if (!program.ok()) return Annotate(program.status(), collective.name);
  if (scratch > std::ssize(scratch_)) scratch_.resize(scratch);
  program->checksums = options_.checksums;
  program->links = &links_;
  programs_[spec] = std::make_unique<ScheduleProgram>(*std::move(program));
  return absl::OkStatus();
}

absl::Status ScheduledCommunicator::PrepareAll() {
  for (int spec = 0; spec < std::ssize(programs_); ++spec) XLAD_RETURN_IF_ERROR(Prepare(spec));
  return absl::OkStatus();
}

absl::Status ScheduledCommunicator::Execute(const ScheduleProgram& program, const CollectiveLaunch& launch) {
  if (program.spec.type == program.collective->spec.type) {
    return ScheduleRun(program, launch, *options_.transport, options_.recorder).Execute(&scratch_, &staging_);
  }
  const WidenedLaunch widened(program.collective->spec, program.rank, launch, &widened_);
  ScheduleRun run(program, widened.launch(), *options_.transport, options_.recorder);
  XLAD_RETURN_IF_ERROR(run.Execute(&scratch_, &staging_));
  widened.RoundResults();
  return absl::OkStatus();
}

absl::Status ScheduledCommunicator::Launch(const CollectiveLaunch& launch) {
  const int num_specs = static_cast<int>(programs_.size());
  if (launch.spec < 0 || launch.spec >= num_specs || programs_[launch.spec] == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", options_.device, " launches collective ", launch.spec,
                     ", expected a prepared collective in which it takes part (there are ", num_specs, ")"));
  }
  ScheduleProgram& program = *programs_[launch.spec];
  const size_t operands = program.collective->spec.counts.size();
  if (launch.inputs.size() != operands || launch.outputs.size() != operands) {
    return absl::InvalidArgumentError(absl::StrCat(program.collective->ToString(), ": inputs and outputs: found ",
                                                   launch.inputs.size(), " and ", launch.outputs.size(), ", expected ",
                                                   operands, " of each"));
  }
  if (options_.abort->raised()) {
    return Annotate(options_.abort->status(), absl::StrCat("before ", program.collective->ToString(), ", step ",
                                                           launch.step, ", device ", options_.device));
  }
  if (options_.links != nullptr) {
    links_.recent[static_cast<uint64_t>(launch.step) % links_.recent.size()] = {launch.step, program.collective->hash};
  }
  options_.recorder->Begin({launch.spec, program.rank, launch.step, launch.iteration}, &program.schedule);
  const absl::Status status = Execute(program, launch);
  options_.recorder->End();
  ++program.sequence;
  if (status.ok()) return status;
  return Fail(
      Annotate(status, absl::StrCat(program.collective->ToString(), ", step ", launch.step, ", device ",
                                    options_.device, ", rank ", program.rank, " of ", program.collective->spec.ranks)));
}

}  // namespace xlad::collectives
