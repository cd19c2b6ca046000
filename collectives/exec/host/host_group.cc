#include "collectives/exec/host/host_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "collectives/exec/group/plans.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/reduce.h"
#include "collectives/plan/mapped.h"

namespace xlad::collectives {
namespace {

// Below this number of bytes, one round on copies in a board is faster than two rounds of direct accesses.
constexpr int64_t kBoardUpTo = 16 << 10;
// One half of a rank's scratch contains the payload of a board, or the positions of an operation's buffers.
constexpr int64_t kScratchBytes = kBoardUpTo;
static_assert(2 * HostGroup::kMaxOperands * static_cast<int64_t>(sizeof(WindowPosition)) <= kScratchBytes);

int64_t ControlBytes(int ranks) { return ControlFile::BytesFor(ranks); }
// The scratch is aligned to cache lines, because the data of an area begins 64 bytes after the start of a page, and the
// control file occupies whole cache lines.
std::byte* ScratchOf(const SharedSegment& area, int ranks) { return area.data() + ControlBytes(ranks); }

// Tells the peers which operation a rank runs.
struct Note {
  MessageHeader header;
  int64_t bytes = 0;
};
static_assert(sizeof(Note) <= RankBlock::kNoteBytes);

}  // namespace

int64_t HostGroup::AreaBytes(int ranks) { return ControlBytes(ranks) + 2 * ranks * kScratchBytes; }

bool HostGroup::CanRun(const Collective& collective) {
  const CollectiveSpec& spec = collective.spec;
  if (spec.ranks < 2 || spec.ranks > kMaxGroupRanks || !spec.sizes.empty()) return false;
  if (std::ssize(spec.counts) > kMaxOperands) return false;
  // In canonical mode, all plans reduce in the same order.
  return !Reduces(spec.kind) || spec.mode != ReductionMode::kRunToRun ||
         ReductionOrder(collective.plan) == ReductionOrder({.algorithm = kMappedWindows});
}

bool HostGroup::IsLocal(int rank) const {
  return options_.members[rank].address.process == options_.memory->address().process;
}

absl::StatusOr<std::unique_ptr<HostGroup>> HostGroup::Make(const Options& options, SharedSegment* area, bool create) {
  std::unique_ptr<HostGroup> group(new HostGroup(options));
  const int ranks = static_cast<int>(options.members.size());
  if (static_cast<int64_t>(area->bytes()) < AreaBytes(ranks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("found an area of ", area->bytes(), " bytes, expected ", AreaBytes(ranks)));
  }
  group->all_local_ = true;
  for (int rank = 0; rank < ranks; ++rank) group->all_local_ = group->all_local_ && group->IsLocal(rank);
  for (int rank = 0; rank < ranks && !group->all_local_; ++rank) {
    XLAD_ASSIGN_OR_RETURN(group->arenas_.emplace_back(),
                          options.memory->OpenArena(options.members[rank].address.arena));
  }
  group->control_ = ControlFile::InMemory(area->data(), ranks, create);
  group->waiter_ = std::make_unique<GroupWaiter>(group->control_.get(), options.rank, options.exclusive);
  WindowMemory* const memory = group.get();
  GroupOwner* const owner = group.get();
  group->core_ = std::make_unique<GroupCore>(GroupCore::Options{group->control_.get(), group->waiter_.get(), memory,
                                                                ScratchOf(*area, ranks), kScratchBytes, options.rank},
                                             owner);
  return group;
}

HostGroup::~HostGroup() {
  for (const Staged& staged : staged_) {
    if (staged.address != nullptr && staged.heap == nullptr) options_.memory->Free(staged.address, staged.bytes);
  }
}

absl::StatusOr<std::unique_ptr<HostOperation>> HostGroup::Prepare(const Collective& collective) const {
  auto operation = std::make_unique<HostOperation>();
  operation->collective = &collective;
  const CollectiveSpec& spec = collective.spec;
  const CollectivePlan plan{.algorithm = spec.input_bytes() < kBoardUpTo ? kMappedOneShot : kMappedWindows};
  XLAD_ASSIGN_OR_RETURN(operation->schedule, BuildSchedule(plan, spec, options_.rank));
  XLAD_ASSIGN_OR_RETURN(operation->command, MakeGroupCommand(spec, operation->schedule, ProtocolOf(plan, spec)));
  operation->command.streams = !FitsIntoCache(spec, /*in_place=*/false, options_.cache_bytes);
  operation->command.streams_in_place = !FitsIntoCache(spec, /*in_place=*/true, options_.cache_bytes);
  return operation;
}

// In a board, each rank reads copies of the peers' data. In other operations the peers access this rank's buffers
// directly. Buffers that the peers cannot map are therefore copied to memory that they can map.
absl::Status HostGroup::Run(HostOperation* operation, const CollectiveLaunch& launch) {
  const GroupCommand& command = operation->command;
  absl::InlinedVector<const void*, 8> inputs(launch.inputs.begin(), launch.inputs.end());
  absl::InlinedVector<void*, 8> outputs(launch.outputs.begin(), launch.outputs.end());
  const bool copies_inputs = NeedsCopyOfInputs(operation->collective->spec, options_.rank, operation->schedule.in_place,
                                               launch.inputs, launch.outputs);
  const auto is_hidden = [&](const void* address, int64_t bytes) {
    return command.program.windows && bytes > 0 && !Find(address, bytes).has_value();
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t bytes = command.input_bytes[i];
    if (bytes == 0 || (!copies_inputs && !is_hidden(inputs[i], bytes))) continue;
    XLAD_ASSIGN_OR_RETURN(std::byte* const copy, Stage(i, bytes));
    CopyBytes(copy, inputs[i], bytes, StoreKind::kCached);
    inputs[i] = copy;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int64_t bytes = command.output_bytes[i];
    if (!is_hidden(outputs[i], bytes)) continue;
    XLAD_ASSIGN_OR_RETURN(outputs[i], Stage(inputs.size() + i, bytes));
  }
  XLAD_RETURN_IF_ERROR(RunOn(operation, launch, inputs, outputs));
  if (!WritesOutputs(operation->collective->spec, options_.rank)) return absl::OkStatus();
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == launch.outputs[i]) continue;
    CopyBytes(launch.outputs[i], outputs[i], command.output_bytes[i], StoreKind::kCached);
  }
  return absl::OkStatus();
}

absl::Status HostGroup::RunOn(HostOperation* operation, const CollectiveLaunch& launch,
                              absl::Span<const void* const> inputs, absl::Span<void* const> outputs) {
  header_ = HeaderOf(launch, *operation->collective, operation->runs++);
  Note note{header_, operation->collective->spec.input_bytes()};
  bytes_ = note.bytes;
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&note), sizeof note);
  const uint64_t word = Hash64(absl::string_view(reinterpret_cast<const char*>(&note), sizeof note)) << 16;
  std::atomic<uint32_t>& busy = control_->rank(options_.rank).busy;
  // A device that fails raises the signal and then waits until no other device is busy. So `busy` is set before the
  // signal is read.
  busy.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool runs = !options_.abort->raised();
  const bool is_staged = !std::equal(outputs.begin(), outputs.end(), launch.outputs.begin());
  const absl::Status status =
      runs ? core_->Run({&operation->command, word, bytes, inputs, outputs, is_staged}) : options_.abort->status();
  busy.store(0, std::memory_order_release);
  // If the core has not run, its step is that of an earlier operation.
  const int step = runs ? core_->step() : -1;
  if (status.ok() || step < 0) return status;
  const std::vector<ScheduleOp>& ops = operation->schedule.ops;
  return Annotate(status, absl::StrCat("operation ", step, " \"", Print(ops[step]), "\""));
}

void HostGroup::WaitUntilUnused() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < std::ssize(options_.members); ++rank) {
    if (rank == options_.rank || !IsLocal(rank)) continue;
    while (control_->rank(rank).busy.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
  }
}

absl::StatusOr<std::byte*> HostGroup::Stage(size_t index, int64_t bytes) {
  staged_.resize(std::max(staged_.size(), index + 1));
  Staged& staged = staged_[index];
  if (staged.bytes >= bytes) return staged.address;
  if (all_local_) {
    staged.heap.reset(new std::byte[bytes]);
    staged.address = staged.heap.get();
  } else {
    XLAD_ASSIGN_OR_RETURN(std::byte* const address, options_.memory->Allocate(bytes));
    if (staged.address != nullptr) options_.memory->Free(staged.address, staged.bytes);
    staged.address = address;
  }
  staged.bytes = bytes;
  return staged.address;
}

std::optional<WindowPosition> HostGroup::Find(const void* address, int64_t bytes) const {
  if (all_local_) return WindowPosition{0, 1, reinterpret_cast<uint64_t>(address)};
  const std::optional<uint64_t> offset = options_.memory->Find(address, bytes);
  if (!offset.has_value()) return std::nullopt;
  return WindowPosition{0, 1, *offset};
}

absl::StatusOr<std::byte*> HostGroup::Address(int peer, const WindowPosition& position, int64_t bytes) {
  if (all_local_) return reinterpret_cast<std::byte*>(position.offset);
  const HostMemory::Arena& arena = arenas_[peer];
  const auto size = static_cast<uint64_t>(arena.bytes);
  if (position.offset <= size && static_cast<uint64_t>(bytes) <= size - position.offset) {
    return arena.base + position.offset;
  }
  return absl::DataLossError(absl::StrCat("found a buffer of ", options_.members[peer].text, " at ", position.offset,
                                          " of its arena of ", size, " bytes, expected room for ", bytes, " bytes"));
}

absl::Status HostGroup::CheckWhileWaiting() {
  return options_.abort->raised() ? options_.abort->status() : absl::OkStatus();
}

absl::Status HostGroup::Disagreement(int peer) {
  // If another device has raised the signal, its error is the cause.
  XLAD_RETURN_IF_ERROR(CheckWhileWaiting());
  Note theirs;
  std::memcpy(static_cast<void*>(&theirs), control_->rank(peer).notes[core_->sequence() % 2], sizeof theirs);
  return absl::FailedPreconditionError(absl::StrCat("ranks disagree: here ", DescribeMessage(header_, bytes_), "; ",
                                                    options_.members[peer].text, " sent ",
                                                    DescribeMessage(theirs.header, theirs.bytes)));
}

}  // namespace xlad::collectives
