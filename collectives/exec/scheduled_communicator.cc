#include "collectives/exec/scheduled_communicator.h"

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/schedule_run.h"
#include "collectives/exec/widened_launch.h"
#include "collectives/plan/message_type.h"

namespace xlad::collectives {
namespace {

// Whether two regions of one rank may overlap in memory.
bool Overlap(const Region& a, const Region& b, const Schedule& schedule, const InPlaceOffsets& offsets) {
  const bool shared = schedule.in_place && a.buffer != ScheduleBuffer::kScratch && b.buffer != ScheduleBuffer::kScratch;
  if (a.buffer != b.buffer && !shared) return false;
  const auto begin = [&](const Region& region) {
    if (!shared) return region.begin;
    return region.begin + (region.buffer == ScheduleBuffer::kInput ? offsets.output : offsets.input);
  };
  return begin(a) < begin(b) + b.count && begin(b) < begin(a) + a.count;
}

// Resolves the schedule of one rank. Regions become pieces of operands, and ranks become links. Each write lists the
// earlier messages whose memory it overwrites.
class Compiler {
 public:
  using OpenLink = std::function<absl::StatusOr<ScheduleLink*>(int peer_rank, int channel)>;

  // `spec` is that of the collective, with the type of the plan's messages.
  Compiler(const Collective& collective, const CollectiveSpec& spec, Schedule schedule, OpenLink open_link)
      : collective_(collective), spec_(spec), schedule_(std::move(schedule)), open_link_(std::move(open_link)) {
    const int64_t bytes = tensor::ByteWidth(spec.type);
    if (spec.sizes.empty()) {
      layouts_.emplace_back(spec.counts, InputHasParts(spec.kind) ? spec.ranks : 1, bytes);
      layouts_.emplace_back(spec.output_counts(), OutputHasParts(spec.kind) ? spec.ranks : 1, bytes);
    } else {  // There is one operand, whose elements are those of the schedule.
      layouts_.emplace_back(std::vector<int64_t>{schedule_.input}, 1, bytes);
      layouts_.emplace_back(std::vector<int64_t>{schedule_.output}, 1, bytes);
    }
    layouts_.emplace_back(std::vector<int64_t>{schedule_.scratch}, 1, bytes);
  }

  absl::StatusOr<ScheduleProgram> Compile(int spec_index) {
    ScheduleProgram program;
    program.collective = &collective_;
    program.spec = spec_;
    program.spec_index = spec_index;
    program.rank = schedule_.rank;
    if (Reduces(spec_.kind)) {
      // There may be a kernel for the type of the messages, but none for that of the elements.
      XLAD_RETURN_IF_ERROR(ReduceFunctionOf(collective_.spec).status());
      XLAD_ASSIGN_OR_RETURN(program.reduce, ReduceFunctionOf(spec_));
    }
    for (const ScheduleOp& op : schedule_.ops) {
      XLAD_ASSIGN_OR_RETURN(program.ops.emplace_back(), CompileOp(op));
    }
    program.sent.assign(sent_.begin(), sent_.end());
    program.schedule = std::move(schedule_);
    return program;
  }

 private:
  struct Sent {
    Region region;
    ScheduleLink* link;
    int64_t messages;
  };

  ScheduleOperand ToOperand(const Region& region) const {
    ScheduleOperand operand;
    operand.buffer = region.buffer;
    operand.pieces = layouts_[static_cast<int>(region.buffer)].Pieces(region.begin, region.count);
    return operand;
  }

  absl::Status AddReceive(int peer, int channel, ScheduleInstruction* out) {
    ScheduleOperand operand;
    XLAD_ASSIGN_OR_RETURN(operand.link, open_link_(peer, channel));
    operand.message_index = received_[operand.link]++;
    out->sources.push_back(std::move(operand));
    return absl::OkStatus();
  }

  absl::StatusOr<ScheduleInstruction> CompileOp(const ScheduleOp& op) {
    if (NeedsWindows(op, schedule_.rank) || !op.more_dsts.empty()) {
      return absl::UnimplementedError(absl::StrCat("found operation \"", Print(op),
                                                   "\", which this communicator cannot run; expected operations on "
                                                   "its own memory with one destination"));
    }
    if (HasSources(op.kind)) XLAD_RETURN_IF_ERROR(CheckOrder(spec_, op));
    ScheduleInstruction out;
    out.kind = op.kind;
    // Nothing to do: operations run in the order of the list.
    if (op.kind == OpKind::kSignal || op.kind == OpKind::kWait) return out;
    if (op.kind == OpKind::kSend) {
      XLAD_ASSIGN_OR_RETURN(out.to, open_link_(op.peer, op.channel));
      out.message_index = static_cast<uint32_t>(sent_[out.to]++);
      out.sources.push_back(ToOperand(op.src));
      sends_.push_back({op.src, out.to, sent_[out.to]});
      return out;
    }
    out.dst = ToOperand(op.dst);
    out.bytes = op.dst.count * tensor::ByteWidth(spec_.type);
    if (op.kind == OpKind::kRecv || op.kind == OpKind::kRecvReduce) {
      XLAD_RETURN_IF_ERROR(AddReceive(op.peer, op.channel, &out));
    }
    if (op.kind == OpKind::kCopy || op.kind == OpKind::kRecvReduce) out.sources.push_back(ToOperand(op.src));
    for (const ReduceSource& source : op.sources) {
      if (source.peer < 0) {
        out.sources.push_back(ToOperand(source.region));
      } else {
        XLAD_RETURN_IF_ERROR(AddReceive(source.peer, op.channel, &out));
      }
    }
    for (const Sent& sent : sends_) {
      if (Overlap(sent.region, op.dst, schedule_, InPlaceOffsetsOf(spec_, schedule_.rank)))
        out.overwrites.emplace_back(sent.link, sent.messages);
    }
    return out;
  }

  const Collective& collective_;
  const CollectiveSpec spec_;
  Schedule schedule_;
  const OpenLink open_link_;
  std::vector<BufferLayout> layouts_;
  std::vector<Sent> sends_;
  std::map<ScheduleLink*, int64_t> sent_;
  std::map<ScheduleLink*, uint32_t> received_;
};

}  // namespace

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
          "device ", options_.device, " has ", own.size(), " collectives, expected the number on ",
          options_.transport->Describe(peer), ", ", message.bytes / 8, "; run the same program on all devices"));
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
  Compiler compiler(collective, sent, std::move(schedule), [this, &devices](int peer_rank, int channel) {
    return OpenLink(devices[peer_rank], kFirstDataChannel + channel);
  });
  absl::StatusOr<ScheduleProgram> program = compiler.Compile(spec);
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

absl::Status ScheduledCommunicator::Execute(ScheduleProgram* program, const CollectiveLaunch& launch) {
  if (program->spec.type == program->collective->spec.type) {
    return ScheduleRun(program, launch, *options_.transport, options_.recorder).Execute(&scratch_, &staging_);
  }
  const WidenedLaunch widened(program->collective->spec, program->rank, launch, &widened_);
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
  const absl::Status status = Execute(&program, launch);
  options_.recorder->End();
  ++program.sequence;
  if (status.ok()) return status;
  return Fail(
      Annotate(status, absl::StrCat(program.collective->ToString(), ", step ", launch.step, ", device ",
                                    options_.device, ", rank ", program.rank, " of ", program.collective->spec.ranks)));
}

}  // namespace xlad::collectives
