#include "collectives/exec/group/core.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/exec/layout.h"

namespace xlad::collectives {
namespace {

// Copies a payload of at most kBoardBytes. The sizes of the copies are constants, so the compiler inlines memcpy.
inline void CopyPayload(void* to, const void* from, int64_t bytes) {
  auto* const dst = static_cast<std::byte*>(to);
  const auto* const src = static_cast<const std::byte*>(from);
  if (bytes >= 16) {
    for (int64_t at = 0; at + 16 <= bytes; at += 16) std::memcpy(dst + at, src + at, 16);
    std::memcpy(dst + bytes - 16, src + bytes - 16, 16);
  } else if (bytes >= 8) {
    std::memcpy(dst, src, 8);
    std::memcpy(dst + bytes - 8, src + bytes - 8, 8);
  } else if (bytes >= 4) {
    std::memcpy(dst, src, 4);
    std::memcpy(dst + bytes - 4, src + bytes - 4, 4);
  } else {
    for (int64_t at = 0; at < bytes; ++at) dst[at] = src[at];
  }
}

// The lower 16 bits may differ between ranks.
inline bool SameOperation(uint64_t a, uint64_t b) { return ((a ^ b) >> 16) == 0; }

inline const std::byte* Bytes(const void* address) { return static_cast<const std::byte*>(address); }

// Whether the payloads are in the entry lines and the only step of a board reduces all of them, in order.
bool ReducesPayloads(const GroupProgram& program, int ranks) {
  const bool one_reduction = program.steps.size() == 1 && program.steps[0].kind == GroupStep::Kind::kReduce;
  if (!program.board || program.scratch_bytes > kBoardBytes || !one_reduction) return false;
  const GroupStep& step = program.steps[0];
  if (std::ssize(step.sources) != ranks || step.dsts[0].offset != 0) return false;
  for (int rank = 0; rank < ranks; ++rank) {
    const GroupRegion& source = step.sources[rank];
    if (source.base != program.bases.Scratch(rank) || source.offset != step.sources[0].offset) return false;
  }
  return true;
}

// Copies to scratch, whose lines are in the caches of the ranks that have read them. A store waits until its line is in
// the cache of this core. The lines are therefore requested before the first store.
void CopyToScratch(void* dst, const void* src, int64_t bytes, StoreKind store) {
#ifdef __x86_64__
  constexpr int64_t kAhead = 2048, kLine = 64, kLeast = 4096;
  if (bytes < kLeast || store != StoreKind::kCached) return CopyBytes(dst, src, bytes, store);
  auto* const to = static_cast<std::byte*>(dst);
  const auto into_line = static_cast<int64_t>(reinterpret_cast<uintptr_t>(dst) % kLine);
  for (int64_t at = 0; at < bytes; at += kAhead) {
    const int64_t size = std::min(kAhead, bytes - at);
    // The compiler's builtin requests the lines for reading unless it is told that all CPUs have this instruction. CPUs
    // that do not have it ignore it.
    for (int64_t i = at - into_line; i < at + size; i += kLine) asm volatile("prefetchw %0" : : "m"(to[i]));
    CopyBytes(to + at, Bytes(src) + at, size, store);
  }
#else
  CopyBytes(dst, src, bytes, store);
#endif
}

// Copies or reduces the sources of a step to its destinations. If `streams` is true, results are written with stores
// that bypass the cache. There are two exceptions: scratch, which must stay in the cache, and sources that are
// overwritten, whose lines are already in the cache. A copy to several destinations runs in blocks that fit into the
// first-level cache, and so does a step with both cached and streamed destinations.
void Combine(const GroupCommand& command, const GroupStep& step, const std::vector<std::byte*>& bases, bool streams) {
  constexpr int64_t kBlock = 16 << 10;
  const void* sources[kMaxGroupRanks];
  void* cached[kMaxGroupRanks];
  void* streamed[kMaxGroupRanks];
  int num_cached = 0, num_streamed = 0;
  const auto address = [&](const GroupRegion& region) { return bases[region.base] + region.offset; };
  for (size_t i = 0; i < step.sources.size(); ++i) sources[i] = address(step.sources[i]);
  for (const GroupRegion& dst : step.dsts) {
    const void** const end = sources + step.sources.size();
    const bool overwrites = std::find(sources, end, static_cast<const void*>(address(dst))) != end;
    const bool bypasses = streams && !command.program.bases.IsScratch(dst.base) && !overwrites;
    (bypasses ? streamed[num_streamed++] : cached[num_cached++]) = address(dst);
  }
  const bool both = num_cached > 0 && num_streamed > 0;
  const bool copies = step.kind == GroupStep::Kind::kCopy;
  const auto copy = copies && command.program.bases.IsScratch(step.dsts[0].base) ? CopyToScratch : CopyBytes;
  const int64_t block = both || (copies && step.dsts.size() > 1) ? kBlock : step.bytes;
  for (int64_t at = 0; at < step.bytes; at += block) {
    const int64_t bytes = std::min(block, step.bytes - at);
    const int firsts = num_cached > 0 ? num_cached : num_streamed;
    void** const first = num_cached > 0 ? cached : streamed;
    const StoreKind store = num_cached > 0 ? StoreKind::kCached : StoreKind::kStreaming;
    if (copies) {
      for (int i = 0; i < firsts; ++i) {
        if (first[i] != sources[0]) copy(first[i], sources[0], bytes, store);
      }
    } else {
      command.reduce({first, static_cast<size_t>(firsts)}, {sources, step.sources.size()},
                     bytes / command.element_bytes, store);
    }
    for (int i = 0; both && i < num_streamed; ++i) CopyBytes(streamed[i], cached[0], bytes, StoreKind::kStreaming);
    for (size_t i = 0; i < step.sources.size(); ++i) sources[i] = Bytes(sources[i]) + bytes;
    for (int i = 0; i < num_cached; ++i) cached[i] = static_cast<std::byte*>(cached[i]) + bytes;
    for (int i = 0; i < num_streamed; ++i) streamed[i] = static_cast<std::byte*>(streamed[i]) + bytes;
  }
}

// Returns, for each base, the end of the furthest access of any step.
std::vector<int64_t> AccessedBytes(const GroupProgram& program, int ranks) {
  std::vector<int64_t> bytes(static_cast<size_t>(ranks) * program.bases.stride(), 0);
  const auto add = [&](const std::vector<GroupRegion>& regions, const GroupStep& step) {
    for (const GroupRegion& region : regions) {
      bytes[region.base] = std::max(bytes[region.base], region.offset + step.bytes);
    }
  };
  for (const GroupStep& step : program.steps) {
    add(step.sources, step);
    add(step.dsts, step);
  }
  return bytes;
}

}  // namespace

bool StreamsResults(const GroupLaunch& launch) {
  const GroupCommand& command = *launch.command;
  if (launch.are_outputs_copied) return false;
  if (!command.streams || command.streams_in_place) return command.streams;
  for (size_t i = 0; i < std::min(launch.inputs.size(), launch.outputs.size()); ++i) {
    const std::byte *const input = Bytes(launch.inputs[i]), *const output = Bytes(launch.outputs[i]);
    if (input >= output + command.output_bytes[i] || output >= input + command.input_bytes[i]) return true;
  }
  return false;
}

absl::StatusOr<GroupCommand> MakeGroupCommand(const CollectiveSpec& spec, const Schedule& schedule,
                                              GroupProtocol protocol) {
  GroupCommand command;
  XLAD_ASSIGN_OR_RETURN(command.program, LowerForGroup(spec, schedule, protocol));
  command.element_bytes = tensor::ByteWidth(spec.type);
  command.accessed_bytes = AccessedBytes(command.program, spec.ranks);
  for (const int64_t count : InputCounts(spec, schedule.rank)) {
    command.input_bytes.push_back(count * command.element_bytes);
  }
  for (const int64_t count : OutputCounts(spec, schedule.rank)) {
    command.output_bytes.push_back(count * command.element_bytes);
  }
  if (Reduces(spec.kind)) {
    XLAD_ASSIGN_OR_RETURN(command.reduce, ReduceFunctionOf(spec));
    // The function for small arrays reduces from left to right.
    const bool is_tree =
        spec.mode == ReductionMode::kCanonical && spec.ranks > 3 && DependsOnOrder(spec.type, spec.reduction);
    if (!is_tree && ReducesPayloads(command.program, spec.ranks)) {
      command.small_reduce = FindVectorReduceKernels(spec.type, spec.reduction).small;
    }
  }
  return command;
}

GroupCore::GroupCore(const Options& options, GroupOwner* owner)
    : options_(options),
      owner_(*owner),
      control_(*options.control),
      waiter_(*options.waiter),
      rank_(options.rank),
      ranks_(options.control->ranks()),
      mapped_(ranks_) {
  for (int flag = 0; flag < kSignalFlags; ++flag) {
    sent_[flag].resize(ranks_);
    expected_[flag].resize(ranks_);
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const int parity : {0, 1}) payloads_[parity].push_back(control_.rank(rank).lines[parity].payload);
  }
}

std::byte* GroupCore::Scratch(int rank, uint64_t sequence) const {
  return options_.scratch + (2 * rank + static_cast<int64_t>(sequence % 2)) * options_.scratch_bytes;
}

// Waits until all ranks have entered operation `sequence`. They have then finished operation sequence - 1, so this rank
// may overwrite what it wrote for that operation.
absl::Status GroupCore::WaitUntilEntered(uint64_t sequence) {
  for (int peer = 0; peer < ranks_ && entered_by_all_ < sequence; ++peer) {
    if (peer == rank_) continue;
    const std::atomic<uint64_t>& entered = control_.rank(peer).lines[sequence % 2].sequence;
    XLAD_RETURN_IF_ERROR(waiter_.Until(
        peer, 0, [&] { return entered.load(std::memory_order_acquire) >= sequence; },
        [&] { return owner_.CheckWhileWaiting(); }));
  }
  entered_by_all_ = std::max(entered_by_all_, sequence);
  return absl::OkStatus();
}

// Compares the operation of a peer with that of this rank. A rank checks every peer that it waits for.
absl::Status GroupCore::CheckPeer(uint64_t word, int peer) {
  const EntryLine& line = entry(peer);
  if (line.sequence.load(std::memory_order_acquire) != sequence_ || SameOperation(line.operation, word)) {
    return absl::OkStatus();
  }
  return owner_.Disagreement(peer);
}

absl::Status GroupCore::CheckAll(uint64_t word) {
  for (int peer = 0; peer < ranks_; ++peer) XLAD_RETURN_IF_ERROR(CheckPeer(word, peer));
  return owner_.CheckWhileWaiting();
}

void GroupCore::Finish() { control_.rank(rank_).finished.store(sequence_, std::memory_order_release); }

// Announces the operation. The payload of the entry must have been written before.
void GroupCore::Enter(const GroupLaunch& launch, uint64_t sequence) {
  RankBlock& self = control_.rank(rank_);
  const uint64_t messages = self.messages.entered.load(std::memory_order_relaxed);
  OperationRecord& record = self.records[(sequence + messages) % RankBlock::kRecords];
  record.operation.store(launch.word, std::memory_order_relaxed);
  record.ticks.store(CpuTicks(), std::memory_order_relaxed);
  if (!launch.note.empty()) std::memcpy(self.notes[sequence % 2], launch.note.data(), launch.note.size());
  EntryLine& line = self.lines[sequence % 2];
  line.operation = launch.word;
  line.sequence.store(sequence, std::memory_order_release);
  sequence_ = sequence;
  waiter_.Wake();
}

void GroupCore::SetBases(const GroupLaunch& launch, uint64_t sequence, bool in_line) {
  streams_ = StreamsResults(launch);
  const GroupBases& bases = launch.command->program.bases;
  bases_.resize(std::max<size_t>(bases_.size(), ranks_ * bases.stride()));
  for (int peer = 0; peer < ranks_; ++peer) {
    bases_[bases.Scratch(peer)] = in_line ? control_.rank(peer).lines[sequence % 2].payload : Scratch(peer, sequence);
  }
  for (int i = 0; i < bases.inputs; ++i) {
    bases_[bases.Input(rank_, i)] = const_cast<std::byte*>(Bytes(launch.inputs[i]));
  }
  for (int i = 0; i < bases.outputs; ++i) {
    bases_[bases.Output(rank_, i)] = static_cast<std::byte*>(launch.outputs[i]);
  }
}

// Runs a board, which has one round. Every rank writes its input into its entry line, or into its scratch if the input
// is larger. It then enters the operation and reads the data of the others.
absl::Status GroupCore::RunBoard(const GroupLaunch& launch) {
  const GroupCommand& command = *launch.command;
  const GroupProgram& program = command.program;
  const uint64_t sequence = sequence_ + 1;
  step_ = -1;
  if (entered_by_all_ + 1 < sequence) XLAD_RETURN_IF_ERROR(WaitUntilEntered(sequence - 1));
  const bool in_line = program.scratch_bytes <= kBoardBytes;
  if (in_line) {
    std::byte* const payload = control_.rank(rank_).lines[sequence % 2].payload;
    for (const BoardCopy& copy : program.board_copies) {
      CopyPayload(payload + copy.to, Bytes(launch.inputs[copy.operand]) + copy.from, copy.bytes);
    }
  } else {
    std::byte* const scratch = Scratch(rank_, sequence);
    for (const BoardCopy& copy : program.board_copies) {
      CopyBytes(scratch + copy.to, Bytes(launch.inputs[copy.operand]) + copy.from, copy.bytes, StoreKind::kCached);
    }
  }
  Enter(launch, sequence);
  for (const int peer : program.board_peers) {
    const EntryLine& line = control_.rank(peer).lines[sequence % 2];
    const auto entered = [&] { return line.sequence.load(std::memory_order_acquire) >= sequence; };
    if (!entered()) {
      XLAD_RETURN_IF_ERROR(waiter_.Until(peer, 0, entered, [&] { return CheckAll(launch.word); }));
    }
    if (!SameOperation(line.operation, launch.word)) return owner_.Disagreement(peer);
  }
  if (program.waits_for_all_peers) entered_by_all_ = sequence;
  if (command.small_reduce != nullptr) {
    const GroupStep& step = program.steps[0];
    command.small_reduce(launch.outputs[step.dsts[0].base - program.bases.Output(rank_)], payloads_[sequence % 2],
                         step.sources[0].offset, step.bytes);
  } else if (!program.steps.empty()) {
    SetBases(launch, sequence, in_line);
    for (const GroupStep& step : program.steps) XLAD_RETURN_IF_ERROR(RunStep(launch, step));
  }
  Finish();
  return absl::OkStatus();
}

// Returns the positions of the buffers of a rank. They are in its entry if there is room, otherwise in its scratch,
// which operations with windows do not use for data.
std::byte* GroupCore::Positions(const GroupCommand& command, int rank, uint64_t sequence) const {
  const size_t bytes = (command.input_bytes.size() + command.output_bytes.size()) * sizeof(WindowPosition);
  return bytes <= kBoardBytes ? control_.rank(rank).lines[sequence % 2].payload : Scratch(rank, sequence);
}

absl::Status GroupCore::PublishBuffers(const GroupLaunch& launch, uint64_t sequence) {
  const GroupCommand& command = *launch.command;
  std::byte* at = Positions(command, rank_, sequence);
  const auto publish = [&](const void* buffer, int64_t bytes, absl::string_view what) -> absl::Status {
    WindowPosition position;
    if (bytes > 0) {
      const std::optional<WindowPosition> found = options_.memory->Find(buffer, bytes);
      if (!found.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("found an ", what,
                         " outside the memory of Allocate, expected a buffer inside it, because the operation is "
                         "registered"));
      }
      position = *found;
    }
    std::memcpy(at, &position, sizeof position);
    at += sizeof position;
    return absl::OkStatus();
  };
  for (size_t i = 0; i < command.input_bytes.size(); ++i) {
    XLAD_RETURN_IF_ERROR(publish(launch.inputs[i], command.input_bytes[i], "input"));
  }
  for (size_t i = 0; i < command.output_bytes.size(); ++i) {
    XLAD_RETURN_IF_ERROR(publish(launch.outputs[i], command.output_bytes[i], "output"));
  }
  return absl::OkStatus();
}

// Maps the buffers of a peer. Their positions are valid after a signal of the peer.
absl::Status GroupCore::MapPeer(const GroupCommand& command, int peer) {
  const std::byte* at = Positions(command, peer, sequence_);
  const GroupBases& bases = command.program.bases;
  for (int i = 0; i < bases.inputs + bases.outputs; ++i, at += sizeof(WindowPosition)) {
    WindowPosition position;
    std::memcpy(&position, at, sizeof position);
    const int base = bases.Input(peer, i);
    if (position.generation == 0 && command.accessed_bytes[base] == 0) continue;
    XLAD_ASSIGN_OR_RETURN(bases_[base], options_.memory->Address(peer, position, command.accessed_bytes[base]));
  }
  mapped_[peer] = true;
  return absl::OkStatus();
}

absl::Status GroupCore::RunProgram(const GroupLaunch& launch) {
  const GroupProgram& program = launch.command->program;
  const uint64_t sequence = sequence_ + 1;
  step_ = -1;
  XLAD_RETURN_IF_ERROR(WaitUntilEntered(sequence - 1));
  if (program.windows) {
    XLAD_RETURN_IF_ERROR(PublishBuffers(launch, sequence));
    std::fill(mapped_.begin(), mapped_.end(), false);
  }
  SetBases(launch, sequence, /*in_line=*/false);
  Enter(launch, sequence);
  for (const GroupStep& step : program.steps) {
    step_ = step.op;
    owner_.AtStep(step.op);
    XLAD_RETURN_IF_ERROR(RunStep(launch, step));
  }
  for (int flag = 0; flag < kSignalFlags; ++flag) {
    for (const int peer : program.deferred[flag]) ++expected_[flag][peer];
  }
  if (program.waits_for_all_peers) entered_by_all_ = sequence;
  Finish();
  return absl::OkStatus();
}

absl::Status GroupCore::RunStep(const GroupLaunch& launch, const GroupStep& step) {
  switch (step.kind) {
    case GroupStep::Kind::kSignal:
      Signal(step);
      return absl::OkStatus();
    case GroupStep::Kind::kWait:
      return WaitForSignals(launch, step);
    case GroupStep::Kind::kZero:
      for (const GroupRegion& dst : step.dsts) std::memset(bases_[dst.base] + dst.offset, 0, step.bytes);
      return absl::OkStatus();
    case GroupStep::Kind::kCopy:
    case GroupStep::Kind::kReduce:
      Combine(*launch.command, step, bases_, streams_);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void GroupCore::Signal(const GroupStep& step) {
  for (const int peer : step.peers) {
    control_.cell(step.flag, rank_, peer).store(++sent_[step.flag][peer], std::memory_order_release);
  }
  waiter_.Wake();
}

absl::Status GroupCore::WaitForSignals(const GroupLaunch& launch, const GroupStep& step) {
  for (const int peer : step.peers) {
    const SignalCell& cell = control_.cell(step.flag, peer, rank_);
    const uint64_t expected = ++expected_[step.flag][peer];
    XLAD_RETURN_IF_ERROR(waiter_.Until(
        peer, step.op, [&] { return cell.load(std::memory_order_acquire) >= expected; },
        [&] { return CheckAll(launch.word); }));
    XLAD_RETURN_IF_ERROR(CheckPeer(launch.word, peer));
    if (!launch.command->program.windows || mapped_[peer]) continue;
    const absl::Status mapped = MapPeer(*launch.command, peer);
    if (mapped.ok()) continue;
    // If a peer died or left, its error is the cause.
    XLAD_RETURN_IF_ERROR(waiter_.CheckPeers());
    return mapped;
  }
  return absl::OkStatus();
}

}  // namespace xlad::collectives
