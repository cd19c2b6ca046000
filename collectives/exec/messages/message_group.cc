#include "collectives/exec/messages/message_group.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/hash.h"
#include "base/net/network.h"
#include "base/random.h"
#include "base/rounding.h"
#include "collectives/exec/bootstrap/rendezvous.h"
#include "collectives/exec/group/control.h"
#include "collectives/exec/group/meeting.h"
#include "collectives/exec/transports/shared_memory/shared_memory.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

constexpr char kPeerKey[] = "peer";
constexpr char kSecretKey[] = "key";
// The time in milliseconds to wait until a process whose connections are closed has ended.
constexpr int64_t kGoneMs = 1000;

PeerInfo SelfOf(int rank, const DataPlane* data_plane) {
  PeerInfo self;
  self.worker_id = absl::StrCat("rank ", rank);
  self.incarnation = SystemRandom()->Next();
  self.host = HostName();
  self.pid = getpid();
  self.data_address = data_plane == nullptr ? "" : data_plane->address();
  return self;
}

std::string EncodeRank(const RankProcess& process, const PeerInfo& peer) {
  return absl::StrCat(process.machine, "\n", process.start_ticks, "\n", EncodePeer(peer));
}

CollectiveSpec BarrierSpec(int ranks) {
  CollectiveSpec spec;
  spec.kind = CollectiveKind::kBarrier;
  spec.type = tensor::ElementType::kU8;
  spec.counts = {0};
  spec.ranks = ranks;
  return spec;
}

absl::StatusOr<std::unique_ptr<DataPlane>> ListenOn(const MessageGroup::Options& options) {
  const std::string& host = options.listen_host;
  const std::string address = JoinHostPort(host, 0);
  if (IsLoopback(host)) return DataPlane::Listen(&TcpNetwork(), address);
  XLAD_ASSIGN_OR_RETURN(auto data_plane, DataPlane::ListenForSecured(&TcpNetwork(), address));
  XLAD_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(data_plane->address()));
  if (bound.host == "0.0.0.0" || bound.host == "::") {
    return absl::InvalidArgumentError(
        absl::StrCat("found the address ", host, ", expected an address at which other ranks can reach this rank"));
  }
  return data_plane;
}

// InvalidArgument if `self` is on loopback and a rank is on another host.
absl::Status CheckReachable(const PeerInfo& self, const std::vector<PeerInfo>& peers) {
  const absl::StatusOr<HostPort> own = ParseHostPort(self.data_address);
  if (!own.ok() || !IsLoopback(own->host)) return absl::OkStatus();
  for (const PeerInfo& peer : peers) {
    if (peer.host == self.host) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "found the loopback address ", own->host, " for ", self.worker_id, " on ", self.host, ", but ", peer.worker_id,
        " is on ", peer.host, "; expected an address of this host that the other host can reach (--listen ADDRESS)"));
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<ProcessState> StateOfRank(const RankProcess& process, int64_t pid) {
  if (process.machine.empty() || process.machine != MachineName()) return std::nullopt;
  return StateOfProcess(pid, process.start_ticks);
}

MessageGroup::Shared::~Shared() {
  if (fabric != nullptr && !abort.raised()) fabric->Finish().IgnoreError();
}

// Adds the rank of a text of EncodeRank. InvalidArgument if it is another text.
absl::Status MessageGroup::AddRank(const std::string& text, Met* met) {
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('\n', 2));
  RankProcess process{parts[0]};
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &process.start_ticks)) {
    return absl::InvalidArgumentError(absl::StrCat("found the rank \"", absl::CEscape(text),
                                                   "\", expected its machine, start time and peer in lines"));
  }
  XLAD_ASSIGN_OR_RETURN(met->peers.emplace_back(), DecodePeer(parts[2]));
  met->processes[met->peers.back().worker_id] = std::move(process);
  return absl::OkStatus();
}

// The ranks exchange their processes and addresses, and the key of rank 0, through files.
absl::StatusOr<MessageGroup::Met> MessageGroup::Meet(const Options& options, const PeerInfo& self) {
  const bool on_one_host = options.meeting_folder.empty();
  std::string folder = options.meeting_folder;
  if (on_one_host) {
    XLAD_ASSIGN_OR_RETURN(folder, ControlFolder());
  }
  const std::string path = absl::StrCat(folder, "/meet-", options.launch.key, "-messages");
  if (!on_one_host) MeetingFolder::RemoveIfUnused(path);  // Ranks that were killed while they met have left it.
  XLAD_ASSIGN_OR_RETURN(const auto meeting, MeetingFolder::Open(path));
  const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), meeting->path());
  const int ranks = options.launch.ranks;
  Rendezvous rendezvous({options.launch.rank, ranks, 0, options.deadline_ms,
                         absl::StrCat("ranks of the launch by ", options.launch.launcher), options.check_peer},
                        bootstrap.get(), &RealClock());
  const RankProcess process{on_one_host ? MachineName() : "", StartOfProcess(getpid())};
  XLAD_RETURN_IF_ERROR(rendezvous.Put(kPeerKey, EncodeRank(process, self)));
  if (options.launch.rank == 0) {
    XLAD_RETURN_IF_ERROR(rendezvous.Put(kSecretKey, SystemRandom()->Hex(64)));
  }
  Met met;
  met.record = options.record;
  if (on_one_host && met.record == nullptr) {
    XLAD_ASSIGN_OR_RETURN(met.record, FlightRecord::Join(options.launch.key, options.launch.rank, ranks, &rendezvous));
  }
  XLAD_RETURN_IF_ERROR(rendezvous.Fence("addresses"));
  XLAD_ASSIGN_OR_RETURN(met.key, rendezvous.Get(0, kSecretKey));
  for (int rank = 0; rank < ranks; ++rank) {
    XLAD_ASSIGN_OR_RETURN(const std::string text, rendezvous.Get(rank, kPeerKey));
    XLAD_RETURN_IF_ERROR(AddRank(text, &met));
  }
  return met;
}

absl::Status MessageGroup::CheckListenHost(const Options& options) {
  if (IsLoopback(options.listen_host) || !options.meeting_folder.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("found the address ", options.listen_host, " (--listen) without a folder in which the ranks meet ",
                   "(--meet FOLDER), expected a folder that the hosts of all ranks see, or a loopback address"));
}

absl::StatusOr<std::unique_ptr<MessageGroup>> MessageGroup::Join(const Options& options) {
  XLAD_RETURN_IF_ERROR(CheckListenHost(options));
  auto shared = std::make_shared<Shared>();
  XLAD_ASSIGN_OR_RETURN(shared->data_plane, ListenOn(options));
  const int rank = options.launch.rank;
  const PeerInfo self = SelfOf(rank, shared->data_plane.get());
  XLAD_ASSIGN_OR_RETURN(Met met, Meet(options, self));
  XLAD_RETURN_IF_ERROR(CheckReachable(self, met.peers));
  FabricOptions fabric;
  fabric.devices = {rank};
  fabric.num_devices = options.launch.ranks;
  fabric.tcp.job_id = options.launch.key;
  fabric.tcp.attempt = 1;
  fabric.tcp.worker_id = self.worker_id;
  fabric.tcp.incarnation = self.incarnation;
  fabric.tcp.key = met.key;
  fabric.tcp.accept_timeout_ms = options.deadline_ms;
  fabric.tcp.has_ended = [processes = met.processes](const PeerInfo& peer) {
    return StateOfRank(processes.at(peer.worker_id), peer.pid) == ProcessState::kGone;
  };
  fabric.tcp.data_address = self.data_address;
  fabric.network = &TcpNetwork();
  fabric.data_plane = shared->data_plane.get();
  fabric.transport = options.transport;
  std::map<std::string, std::string> values;
  for (int peer = 0; peer < std::ssize(met.peers); ++peer) values[PeerKey(peer)] = EncodePeer(met.peers[peer]);
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap(std::move(values));
  XLAD_ASSIGN_OR_RETURN(shared->fabric, Fabric::Make(fabric, *bootstrap, &shared->abort));
  Options kept = options;
  kept.check_peer = nullptr;  // It may refer to a group that ends before this one.
  std::unique_ptr<MessageGroup> group(new MessageGroup(rank, kept, std::move(shared), std::move(met.peers)));
  group->processes_ = std::move(met.processes);
  group->record_ = std::move(met.record);
  if (group->record_ != nullptr) group->links_.shown_wait = group->record_->shown_wait();
  XLAD_ASSIGN_OR_RETURN(group->barrier_, group->Prepare(BarrierSpec(group->ranks())));
  return group;
}

absl::StatusOr<std::vector<std::unique_ptr<MessageGroup>>> MessageGroup::InProcess(int ranks, const Options& options) {
  auto shared = std::make_shared<Shared>();
  FabricOptions fabric;
  fabric.num_devices = ranks;
  fabric.transport = options.transport;
  std::vector<PeerInfo> peers;
  for (int rank = 0; rank < ranks; ++rank) {
    fabric.devices.push_back(rank);
    peers.push_back(SelfOf(rank, nullptr));
  }
  const std::unique_ptr<Bootstrap> bootstrap = MapBootstrap({});
  XLAD_ASSIGN_OR_RETURN(shared->fabric, Fabric::Make(fabric, *bootstrap, &shared->abort));
  std::vector<std::unique_ptr<MessageGroup>> groups;
  for (int rank = 0; rank < ranks; ++rank) {
    groups.push_back(std::unique_ptr<MessageGroup>(new MessageGroup(rank, options, shared, peers)));
  }
  return groups;
}

MessageGroup::~MessageGroup() {
  barrier_.reset();
  if (record_ != nullptr && shared_->abort.raised()) record_->Fail();
}

MessageGroup::Operation::~Operation() {
  if (record_ != nullptr) record_->Remove(word_);
}

absl::StatusOr<std::unique_ptr<MessageGroup::Operation>> MessageGroup::Prepare(const CollectiveSpec& spec,
                                                                               const std::string& plan) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  if (spec.ranks != ranks()) {
    return absl::InvalidArgumentError(absl::StrCat("found a collective over ", Counted(spec.ranks, "rank"),
                                                   ", expected ", ranks(), ", the size of the group"));
  }
  auto operation = std::make_unique<Operation>();
  CollectiveSet& set = operation->set_;
  Collective& collective = set.collectives.emplace_back();
  collective.name = std::string(ToString(spec.kind));
  collective.spec = spec;
  if (plan.empty()) {
    XLAD_ASSIGN_OR_RETURN(collective.plan, ChoosePlan(spec, costs_));
  } else {
    XLAD_ASSIGN_OR_RETURN(collective.plan, ParsePlan(plan));
  }
  if (IsMapped(collective.plan)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "found plan ", collective.plan.ToString(), ", which is for ranks that map each other's memory ",
        "(ProcessGroup), expected a plan that sends messages: ", AlgorithmNames(/*on_mapped_memory=*/false, &spec)));
  }
  XLAD_ASSIGN_OR_RETURN(collective.hash, ScheduleHash(collective.plan, spec));
  for (int rank = 0; rank < ranks(); ++rank) {
    if (rank == 0) collective.groups.emplace_back();
    collective.groups[0].push_back(rank);
  }
  set.num_devices = ranks();
  operation->recorder_ = std::make_unique<Recorder>(rank_, &set, &RealClock());
  XLAD_ASSIGN_OR_RETURN(
      operation->communicator_,
      ScheduledCommunicator::Form({rank_, /*first_channel=*/0, &set, &shared_->fabric->transport(rank_),
                                   &shared_->abort, operation->recorder_.get(), options_.checksums, &links_}));
  XLAD_RETURN_IF_ERROR(operation->communicator_->PrepareAll());
  if (record_ != nullptr) {
    operation->word_ = record_->Add(absl::StrCat(spec.ToString(), ", ", collective.plan.ToString()));
    operation->record_ = record_.get();
  }
  operation->number_ = prepared_++;
  return operation;
}

absl::Status MessageGroup::Run(Operation& operation, const void* input, void* output) {
  const auto* const in = static_cast<const std::byte*>(input);
  auto* const out = static_cast<std::byte*>(output);
  CollectiveLaunch launch;
  launch.inputs = {&in, 1};
  launch.outputs = {&out, 1};
  launch.step = runs_++;
  if (record_ == nullptr) return operation.communicator_->Launch(launch);
  record_->Begin(operation.word_);
  const absl::Status status = operation.communicator_->Launch(launch);
  status.ok() ? record_->End() : record_->Fail();
  return status;
}

absl::Status MessageGroup::Barrier() {
  if (barrier_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(barrier_, Prepare(BarrierSpec(ranks())));
  }
  return Run(*barrier_, nullptr, nullptr);
}

// Unimplemented if Join has not formed the group.
absl::Status MessageGroup::CheckProcesses() const {
  if (!options_.transport.one_process && !options_.launch.key.empty()) return absl::OkStatus();
  return absl::UnimplementedError("found ranks that are threads of one process, expected processes");
}

absl::StatusOr<std::unique_ptr<MessageGroup>> MessageGroup::Split(const PartOfSplit& part, int64_t deadline_ms) {
  XLAD_RETURN_IF_ERROR(CheckProcesses());
  XLAD_ASSIGN_OR_RETURN(const std::optional<Launch> launch, LaunchOfPart(this, options_.launch, splits_++, part));
  if (!launch.has_value()) return nullptr;
  Options options = options_;
  options.launch = *launch;
  options.deadline_ms = deadline_ms;
  options.record = nullptr;  // The record is that of this group.
  return Join(options);
}

// Returns whether the process of another rank has ended. A process that cannot be examined is assumed to have ended if
// it is the suspect of the error. If ranks may be on other hosts, no process is examined, so that all ranks agree.
bool MessageGroup::HasGone(int rank) const {
  if (rank == rank_) return false;
  const std::string& worker = peers_[rank].worker_id;
  const std::optional<ProcessState> state = StateOfRank(processes_.at(worker), pid(rank));
  return state.has_value() ? *state == ProcessState::kGone : worker == shared_->abort.failure().suspect_worker;
}

// Returns the ranks that are alive. If the error names a suspect, first waits until the suspect's process has ended,
// because its connections are closed shortly before.
std::vector<int> MessageGroup::AliveRanks() const {
  const std::string suspect = shared_->abort.failure().suspect_worker;
  std::vector<int> alive;
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto has_gone = [&] { return HasGone(rank); };
    const int64_t end_ns = RealClock().NowNs() + kGoneMs * kNsPerMs;
    while (peers_[rank].worker_id == suspect && !has_gone() && RealClock().NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (!has_gone()) alive.push_back(rank);
  }
  return alive;
}

// The ranks meet in a folder whose name contains a hash of the ranks that they believe to be alive. If one of them dies
// meanwhile, the others meet again without it.
absl::StatusOr<std::unique_ptr<MessageGroup>> MessageGroup::Shrink(int64_t deadline_ms) {
  if (!shared_->abort.raised()) {
    return absl::FailedPreconditionError("found a group without an error, expected Shrink only after an error");
  }
  XLAD_RETURN_IF_ERROR(CheckProcesses());
  if (options_.transport.name == "mpi") {
    return absl::UnimplementedError("a group over MPI cannot shrink: the launcher ends all ranks when one has died");
  }
  while (true) {
    const std::vector<int> alive = AliveRanks();
    Options options = options_;
    const std::string text = absl::StrJoin(alive, ",");
    options.launch.key = absl::StrCat(options_.launch.key, "-", absl::Hex(Hash64(text)));
    options.launch.rank = static_cast<int>(std::find(alive.begin(), alive.end(), rank_) - alive.begin());
    options.launch.ranks = static_cast<int>(alive.size());
    options.deadline_ms = deadline_ms;
    options.record = nullptr;  // The record is that of this group.
    options.check_peer = [this, alive](int) {
      const bool all = std::none_of(alive.begin(), alive.end(), [this](int rank) { return HasGone(rank); });
      return all ? absl::OkStatus() : absl::UnavailableError("a rank has died meanwhile");
    };
    absl::StatusOr<std::unique_ptr<MessageGroup>> group = Join(options);
    if (group.ok() || AliveRanks() == alive) return group;
  }
}

absl::StatusOr<std::byte*> MessageGroup::Allocate(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  const int64_t all = RoundUp(std::max<int64_t>(bytes, 1), kPage);
  Allocated allocated;
  allocated.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, all)));
  std::byte* const address = allocated.memory.get();
  if (address == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  XLAD_ASSIGN_OR_RETURN(allocated.registration, shared_->fabric->transport(rank_).Register(
                                                    {address, static_cast<size_t>(all)}, MemoryKind::kHost));
  allocated_[address] = std::move(allocated);
  return address;
}

absl::Status MessageGroup::Free(std::byte* address) {
  if (allocated_.erase(address) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "found an address that is not allocated, expected a result of Allocate that has not been freed");
}

}  // namespace xlad::collectives
