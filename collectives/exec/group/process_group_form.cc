// Forms process groups and prepares operations.
#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/process/cores.h"
#include "collectives/exec/group/cores.h"
#include "collectives/exec/group/meeting.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/group/process_group.h"
#include "collectives/plan/algorithm.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

// Forms a group whose ranks find each other in the folder `name` of ControlFolder().
absl::StatusOr<std::unique_ptr<ProcessGroup>> MeetAndForm(const std::string& name,
                                                          const ProcessGroup::Options& options) {
  XLAD_ASSIGN_OR_RETURN(const std::string folder, ControlFolder());
  XLAD_ASSIGN_OR_RETURN(const auto meeting, MeetingFolder::Open(JoinPath(folder, name)));
  const std::unique_ptr<Bootstrap> bootstrap = FileBootstrap(RealFileSystem(), meeting->path());
  return ProcessGroup::Form(options, bootstrap.get());
}

// Returns 512 KiB for every peer, but at most 2 MiB, so the scratch stays in the cache.
int64_t DefaultScratchBytes(int ranks) {
  return std::min<int64_t>(int64_t{512 << 10} * std::max(1, ranks - 1), 2 << 20);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Form(const Options& options, Bootstrap* bootstrap) {
  std::unique_ptr<ProcessGroup> group(new ProcessGroup());
  const absl::Status joined = group->Join(options, bootstrap);
  if (!joined.ok() && group->rank_ == 0 && group->control_ != nullptr) group->control_->Unlink();
  XLAD_RETURN_IF_ERROR(joined);
  return group;
}

// Rank 0 creates the control file and the scratch; the others open them.
absl::Status ProcessGroup::ShareMemory(const Options& options, Rendezvous* rendezvous) {
  const auto create_scratch = [&](ControlFile& control) -> absl::Status {
    const int64_t scratch = options.scratch_bytes > 0 ? options.scratch_bytes : DefaultScratchBytes(ranks_);
    XLAD_ASSIGN_OR_RETURN(scratch_, SharedSegment::Create(scratch * ranks_));
    std::strncpy(control.head().scratch_segment, scratch_->name().c_str(), 63);
    return absl::OkStatus();
  };
  XLAD_ASSIGN_OR_RETURN(control_, ShareControlFile(absl::StrCat(options.launch.key, "-", options.generation), rank_,
                                                   ranks_, rendezvous, create_scratch));
  if (rank_ != 0) {
    XLAD_ASSIGN_OR_RETURN(scratch_, SharedSegment::Open(control_->head().scratch_segment, 0));
  }
  PreferHugePages(*scratch_);
  return absl::OkStatus();
}

absl::Status ProcessGroup::Join(const Options& options, Bootstrap* bootstrap) {
  launch_ = options.launch;
  generation_ = options.generation;
  rank_ = options.launch.rank;
  ranks_ = options.launch.ranks;
  Rendezvous rendezvous({rank_, ranks_, options.generation, options.deadline_ms,
                         absl::StrCat("ranks of the launch by ", options.launch.launcher), options.check_peer},
                        bootstrap, &RealClock());
  XLAD_RETURN_IF_ERROR(ShareMemory(options, &rendezvous));
  RankBlock& self = control_->rank(rank_);
  texts_ = std::make_shared<OperationTexts>(&self);
  self.SetProcess();
  const std::vector<uint64_t> cores = AffinityMask();
  std::copy_n(cores.begin(), std::min(cores.size(), std::size(self.cores)), self.cores);
  self.joined.store(1, std::memory_order_release);
  XLAD_RETURN_IF_ERROR(rendezvous.Fence("joined"));

  std::vector<std::vector<uint64_t>> masks;
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankBlock& block = control_->rank(rank);
    if (block.joined.load(std::memory_order_acquire) == 0) {
      return absl::InternalError(absl::StrCat("rank ", rank, " passed the fence but has not joined"));
    }
    masks.emplace_back(std::begin(block.cores), std::end(block.cores));
  }
  exclusive_ = EachHasACore(masks, CpuQuota());
  cache_bytes_ = options.cache_bytes > 0 ? options.cache_bytes : LastLevelCacheBytes();
  waiter_ = std::make_unique<GroupWaiter>(control_.get(), rank_, exclusive_);
  memory_ = std::make_unique<GroupMemory>(control_.get(), rank_);
  const int64_t half = static_cast<int64_t>(scratch_->bytes()) / ranks_ / 2 / 64 * 64;
  GroupOwner* const owner = this;
  core_ = std::make_unique<GroupCore>(
      GroupCore::Options{control_.get(), waiter_.get(), memory_.get(), scratch_->data(), half, rank_}, owner);
  // After this fence, all ranks have registered with membarrier or have said that they cannot.
  XLAD_RETURN_IF_ERROR(rendezvous.Fence("ready"));
  XLAD_RETURN_IF_ERROR(waiter_->WatchPeers());
  CollectiveSpec barrier;
  barrier.kind = CollectiveKind::kBarrier;
  barrier.ranks = ranks_;
  barrier.type = tensor::ElementType::kU8;
  barrier.counts = {0};
  XLAD_ASSIGN_OR_RETURN(barrier_, Prepare(barrier));
  return absl::OkStatus();
}

uint64_t ProcessGroup::AliveRanks() const {
  uint64_t alive = 0;
  for (int rank = 0; rank < ranks_; ++rank) alive |= uint64_t{waiter_->IsAlive(rank)} << rank;
  return alive;
}

// The ranks meet in a folder whose name contains the ranks that they believe to be alive. If one of them dies
// meanwhile, the others meet again without it.
absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Shrink(int64_t deadline_ms) {
  if (error_.ok()) {
    return absl::FailedPreconditionError("found a group without an error, expected Shrink only after an error");
  }
  while (true) {
    const uint64_t alive = AliveRanks();
    Options options;
    options.launch = launch_;
    options.launch.key = absl::StrCat(launch_.key, "-", absl::Hex(alive));
    options.launch.rank = std::popcount(alive & ((uint64_t{1} << rank_) - 1));
    options.launch.ranks = std::popcount(alive);
    options.generation = generation_ + 1;
    options.deadline_ms = deadline_ms;
    // The sizes are those of this group. scratch_bytes is computed from the scratch, because only rank 0's option was
    // used, and rank 0 may be dead.
    options.scratch_bytes = static_cast<int64_t>(scratch_->bytes()) / ranks_;
    options.cache_bytes = cache_bytes_;
    options.check_peer = [this, alive](int) {
      return AliveRanks() == alive ? absl::OkStatus() : absl::UnavailableError("a rank has died meanwhile");
    };
    const std::string name = absl::StrCat("meet-", options.launch.key, "-", options.generation);
    absl::StatusOr<std::unique_ptr<ProcessGroup>> group = MeetAndForm(name, options);
    if (!group.ok() && AliveRanks() != alive) continue;
    XLAD_RETURN_IF_ERROR(group.status());
    return group;
  }
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Split(const PartOfSplit& part, int64_t deadline_ms) {
  XLAD_ASSIGN_OR_RETURN(const std::optional<Launch> launch, LaunchOfPart(this, launch_, splits_++, part));
  if (!launch.has_value()) return nullptr;
  Options options;
  options.launch = *launch;
  options.deadline_ms = deadline_ms;
  options.cache_bytes = cache_bytes_;
  return MeetAndForm(absl::StrCat("meet-", launch->key), options);
}

ProcessGroup::~ProcessGroup() {
  if (control_ == nullptr) return;
  barrier_.reset();
  RankBlock& self = control_->rank(rank_);
  if (!error_.ok()) return;  // The file is kept for `xlad comm why`.
  self.left.store(RankBlock::kLeftInOrder, std::memory_order_release);
  if (waiter_ != nullptr) waiter_->Wake();
  bool last = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    const RankBlock& block = control_->rank(rank);
    last = last && block.left.load() == RankBlock::kLeftInOrder && block.messages.failed.load() == 0;
  }
  if (last) control_->Unlink();
}

GroupOperation::~GroupOperation() {
  if (group_ != nullptr) group_->texts_->Remove(word_);
}

GroupMachine ProcessGroup::machine() const { return {ranks_, exclusive_, core_->scratch_bytes(), cache_bytes_}; }

std::vector<CollectivePlan> ProcessGroup::Plans(const CollectiveSpec& spec, bool registered) const {
  return GroupPlans(spec, registered, machine());
}

std::string ProcessGroup::WhyChosen(const CollectiveSpec& spec, bool registered) const {
  return ChooseGroupPlan(spec, registered, machine()).why;
}

absl::StatusOr<std::unique_ptr<GroupOperation>> ProcessGroup::Prepare(const CollectiveSpec& spec,
                                                                      const PrepareOptions& options) {
  XLAD_RETURN_IF_ERROR(ValidateSpec(spec));
  if (spec.ranks != ranks_) {
    return absl::InvalidArgumentError(absl::StrCat("found a collective over ", Counted(spec.ranks, "rank"),
                                                   ", expected ", ranks_, ", the size of the group"));
  }
  if (spec.counts.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("found ", spec.counts.size(), " operands, expected one"));
  }
  std::unique_ptr<GroupOperation> operation(new GroupOperation());
  GroupOperation& op = *operation;
  op.spec_ = spec;
  if (options.plan.empty()) {
    op.plan_ = ChooseGroupPlan(spec, options.registered, machine()).plan;
  } else {
    XLAD_ASSIGN_OR_RETURN(op.plan_, ParsePlan(options.plan));
  }
  // A rank that exchanges no messages in this operation must refuse the plan, too, because the others refuse it.
  if (ranks_ > 1 && !IsMapped(op.plan_) && FindAlgorithm(op.plan_.algorithm).ok()) {
    return RefuseMessages(absl::StrCat("plan ", op.plan_.ToString()));
  }
  XLAD_ASSIGN_OR_RETURN(op.schedule_, BuildSchedule(op.plan_, spec, rank_));
  XLAD_ASSIGN_OR_RETURN(op.command_, MakeGroupCommand(spec, op.schedule_, ProtocolOf(op.plan_, spec)));
  const GroupProgram& program = op.command_.program;
  if (program.scratch_bytes > core_->scratch_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("plan ", op.plan_.ToString(), " needs ", program.scratch_bytes,
                                                   " bytes of scratch, but the group has ", core_->scratch_bytes(),
                                                   "; use another plan, or a group with more scratch_bytes"));
  }
  if (program.windows && !options.registered) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan ", op.plan_.ToString(), " accesses the buffers of other ranks, which must be registered; ",
                     "use buffers of Allocate and PrepareOptions::registered, or another plan"));
  }
  const bool has_slots = op.plan_.algorithm == kMappedSlots;
  op.command_.streams = !FitsIntoCache(spec, /*in_place=*/false, cache_bytes_) ||
                        (has_slots && !FitsIntoCacheWithSlots(spec, op.plan_.chunks, machine()));
  op.command_.streams_in_place = !FitsIntoCache(spec, /*in_place=*/true, cache_bytes_);

  const std::string text =
      absl::StrCat(spec.ToString(), ", ", op.plan_.ToString(), options.registered ? ", registered" : "");
  // Ranks that prepare operations in a different order have different indices, so only the hash is compared.
  op.word_ = texts_->Add(text);
  op.group_ = this;
  op.number_ = prepared_++;
  return operation;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinLaunchedGroup(int64_t deadline_ms) {
  XLAD_ASSIGN_OR_RETURN(const std::optional<Launch> launch, DetectLaunch());
  if (!launch.has_value()) {
    return absl::FailedPreconditionError(
        "no launcher has started this process: found the variables of no launcher, expected those of a launcher in "
        "docs/reference/launchers.md, such as XLAD_RANK and XLAD_RANKS; start it with mpirun, srun or "
        "`xlad bench --ranks N`");
  }
  XLAD_RETURN_IF_ERROR(CheckOneHost(*launch));
  ProcessGroup::Options options;
  options.launch = *launch;
  options.deadline_ms = deadline_ms;
  return MeetAndForm(absl::StrCat("meet-", launch->key), options);
}

}  // namespace xlad::collectives
