// The run of operations. Forming and preparing are in process_group_form.cc.
#include "collectives/exec/group/process_group.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// Copies a payload of at most kBoardBytes without a call.
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

// The index of the text may differ between ranks.
inline bool SameOperation(uint64_t a, uint64_t b) { return ((a ^ b) >> 16) == 0; }

}  // namespace

std::byte* ProcessGroup::Scratch(int rank, uint64_t sequence) const {
  return scratch_->data() + (2 * rank + static_cast<int64_t>(sequence % 2)) * scratch_bytes_;
}

// Before a rank overwrites what it wrote for operation sequence - 1, all ranks must have finished that operation.
absl::Status ProcessGroup::Settle(uint64_t sequence) {
  for (int peer = 0; peer < ranks_ && settled_ < sequence; ++peer) {
    if (peer == rank_) continue;
    const std::atomic<uint64_t>& entered = control_->rank(peer).lines[sequence % 2].sequence;
    XLAD_RETURN_IF_ERROR(waiter_->Until(
        peer, 0, [&] { return entered.load(std::memory_order_acquire) >= sequence; }, [] { return absl::OkStatus(); }));
  }
  settled_ = std::max(settled_, sequence);
  return absl::OkStatus();
}

// Errors of peers are found by the rank that waits for them, hence on every rank.
absl::Status ProcessGroup::CheckAgreement(const GroupOperation& operation, int peer) {
  const EntryLine& line = control_->rank(peer).lines[sequence_ % 2];
  if (line.sequence.load(std::memory_order_acquire) != sequence_ || SameOperation(line.operation, operation.word_)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("the ranks disagree on operation ", sequence_, ": rank ", rank_,
                                                    " runs ", OperationText(control_->rank(rank_), operation.word_),
                                                    ", ", waiter_->Describe(peer), " runs ",
                                                    OperationText(control_->rank(peer), line.operation),
                                                    "; all ranks must run the same operations in the same order"));
}

absl::Status ProcessGroup::CheckAgreement(const GroupOperation& operation) {
  for (int peer = 0; peer < ranks_; ++peer) XLAD_RETURN_IF_ERROR(CheckAgreement(operation, peer));
  return absl::OkStatus();
}

absl::Status ProcessGroup::Fail(const GroupOperation& operation, const absl::Status& status) {
  error_ = Annotate(status, absl::StrCat("operation ", sequence_, " (",
                                         OperationText(control_->rank(rank_), operation.word_), ") on rank ", rank_));
  control_->rank(rank_).left.store(RankBlock::kLeftAfterError, std::memory_order_release);
  waiter_->Wake();
  return error_;
}

void ProcessGroup::Finish() { control_->rank(rank_).finished.store(sequence_, std::memory_order_release); }

// Announces the operation. The payload of the entry must have been written.
void ProcessGroup::Enter(const GroupOperation& operation, uint64_t sequence) {
  RankBlock& self = control_->rank(rank_);
  OperationRecord& record = self.records[sequence % RankBlock::kRecords];
  record.operation.store(operation.word_, std::memory_order_relaxed);
  record.ticks.store(CpuTicks(), std::memory_order_relaxed);
  EntryLine& line = self.lines[sequence % 2];
  line.operation = operation.word_;
  line.sequence.store(sequence, std::memory_order_release);
  sequence_ = sequence;
  waiter_->Wake();
}

// One round: every rank writes its input into its entry line, or into its scratch if it is larger, enters, and reads
// what the others have written.
absl::Status ProcessGroup::RunBoard(const GroupOperation& operation, const void* input, void* output) {
  if (!error_.ok()) return error_;
  const uint64_t sequence = sequence_ + 1;
  if (settled_ + 1 < sequence) {
    if (const absl::Status status = Settle(sequence - 1); !status.ok()) return Fail(operation, status);
  }
  const GroupProgram& program = operation.program_;
  const bool in_line = program.scratch_bytes <= kBoardBytes;
  if (in_line) {
    CopyPayload(control_->rank(rank_).lines[sequence % 2].payload, input, program.board_bytes);
  } else {
    std::memcpy(Scratch(rank_, sequence), input, program.board_bytes);
  }
  Enter(operation, sequence);
  for (const int peer : program.board_peers) {
    const EntryLine& line = control_->rank(peer).lines[sequence % 2];
    const auto entered = [&] { return line.sequence.load(std::memory_order_acquire) >= sequence; };
    if (!entered()) {
      const absl::Status status = waiter_->Until(peer, 0, entered, [&] { return CheckAgreement(operation); });
      if (!status.ok()) return Fail(operation, status);
    }
    if (!SameOperation(line.operation, operation.word_)) return Fail(operation, CheckAgreement(operation, peer));
  }
  if (program.hears_all) settled_ = sequence;
  if (operation.small_reduce_ != nullptr) {
    const GroupStep& step = program.steps[0];
    operation.small_reduce_(output, payloads_[sequence % 2], step.sources[0].offset, step.bytes);
  } else if (!program.steps.empty()) {
    for (int peer = 0; peer < ranks_; ++peer) {
      bases_[BaseIndex(peer, ScheduleBuffer::kScratch)] =
          in_line ? control_->rank(peer).lines[sequence % 2].payload : Scratch(peer, sequence);
    }
    bases_[BaseIndex(rank_, ScheduleBuffer::kInput)] = const_cast<std::byte*>(static_cast<const std::byte*>(input));
    bases_[BaseIndex(rank_, ScheduleBuffer::kOutput)] = static_cast<std::byte*>(output);
    for (const GroupStep& step : program.steps) XLAD_RETURN_IF_ERROR(RunStep(operation, step));
  }
  Finish();
  return absl::OkStatus();
}

absl::Status ProcessGroup::PublishBuffers(const GroupOperation& operation, const void* input, void* output,
                                          EntryLine* line) {
  WindowPositions positions;
  if (operation.input_bytes_ > 0) {
    const auto found = memory_->Find(input, operation.input_bytes_);
    if (!found.has_value()) {
      return absl::InvalidArgumentError("found an input outside the memory of Allocate, which the operation promises");
    }
    positions.input = *found;
  }
  if (operation.output_bytes_ > 0) {
    const auto found = memory_->Find(output, operation.output_bytes_);
    if (!found.has_value()) {
      return absl::InvalidArgumentError("found an output outside the memory of Allocate, which the operation promises");
    }
    positions.output = *found;
  }
  std::memcpy(line->payload, &positions, sizeof positions);
  return absl::OkStatus();
}

absl::Status ProcessGroup::RunProgram(const GroupOperation& operation, const void* input, void* output) {
  if (!error_.ok()) return error_;
  const uint64_t sequence = sequence_ + 1;
  if (const absl::Status status = Settle(sequence - 1); !status.ok()) return Fail(operation, status);
  if (operation.program_.windows) {
    XLAD_RETURN_IF_ERROR(PublishBuffers(operation, input, output, &control_->rank(rank_).lines[sequence % 2]));
    std::fill(mapped_.begin(), mapped_.end(), false);
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    bases_[BaseIndex(peer, ScheduleBuffer::kScratch)] = Scratch(peer, sequence);
  }
  bases_[BaseIndex(rank_, ScheduleBuffer::kInput)] = const_cast<std::byte*>(static_cast<const std::byte*>(input));
  bases_[BaseIndex(rank_, ScheduleBuffer::kOutput)] = static_cast<std::byte*>(output);
  Enter(operation, sequence);
  for (const GroupStep& step : operation.program_.steps) {
    if (const absl::Status status = RunStep(operation, step); !status.ok()) {
      return Fail(operation, Annotate(status, absl::StrCat("step ", step.op, " \"",
                                                           Print(operation.schedule_.ops[step.op]), "\"")));
    }
  }
  for (int flag = 0; flag < kSignalFlags; ++flag) {
    for (const int peer : operation.program_.deferred[flag]) ++expected_[flag][peer];
  }
  if (operation.program_.hears_all) settled_ = sequence;
  Finish();
  return absl::OkStatus();
}

absl::Status ProcessGroup::RunStep(const GroupOperation& operation, const GroupStep& step) {
  switch (step.kind) {
    case GroupStep::Kind::kSignal:
      Signal(step);
      return absl::OkStatus();
    case GroupStep::Kind::kWait:
      return WaitForSignals(operation, step);
    case GroupStep::Kind::kZero:
      for (const GroupRegion& dst : step.dsts) std::memset(bases_[dst.base] + dst.offset, 0, step.bytes);
      return absl::OkStatus();
    case GroupStep::Kind::kCopy:
    case GroupStep::Kind::kReduce:
      Combine(operation, step);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

void ProcessGroup::Signal(const GroupStep& step) {
  for (const int peer : step.peers) {
    control_->cell(step.flag, rank_, peer).store(++sent_[step.flag][peer], std::memory_order_release);
  }
  waiter_->Wake();
}

absl::Status ProcessGroup::WaitForSignals(const GroupOperation& operation, const GroupStep& step) {
  for (const int peer : step.peers) {
    const SignalCell& cell = control_->cell(step.flag, peer, rank_);
    const uint64_t expected = ++expected_[step.flag][peer];
    XLAD_RETURN_IF_ERROR(waiter_->Until(
        peer, step.op, [&] { return cell.load(std::memory_order_acquire) >= expected; },
        [&] { return CheckAgreement(operation); }));
    XLAD_RETURN_IF_ERROR(CheckAgreement(operation, peer));
    if (!operation.program_.windows || mapped_[peer]) continue;
    const absl::Status mapped = MapPeer(peer);
    if (mapped.ok()) continue;
    // A peer that died or gave up is the cause.
    XLAD_RETURN_IF_ERROR(waiter_->CheckPeers());
    return mapped;
  }
  return absl::OkStatus();
}

// After a signal of the peer, its entry has the positions of its buffers.
absl::Status ProcessGroup::MapPeer(int peer) {
  WindowPositions positions;
  std::memcpy(&positions, control_->rank(peer).lines[sequence_ % 2].payload, sizeof positions);
  std::byte** const bases = &bases_[BaseIndex(peer, ScheduleBuffer::kInput)];
  if (positions.input.generation != 0) {
    XLAD_ASSIGN_OR_RETURN(bases[static_cast<int>(ScheduleBuffer::kInput)], memory_->Address(peer, positions.input));
  }
  if (positions.output.generation != 0) {
    XLAD_ASSIGN_OR_RETURN(bases[static_cast<int>(ScheduleBuffer::kOutput)], memory_->Address(peer, positions.output));
  }
  mapped_[peer] = true;
  return absl::OkStatus();
}

// Results that do not fit into the cache are stored past it, except in scratch, which must stay there, and where a
// source is overwritten, whose line is in the cache already. Blocks keep what is stored twice in the first-level cache.
void ProcessGroup::Combine(const GroupOperation& operation, const GroupStep& step) {
  constexpr int64_t kBlock = 16 << 10;
  const void* sources[kMaxGroupRanks];
  void* cached[kMaxGroupRanks];
  void* streamed[kMaxGroupRanks];
  int num_cached = 0, num_streamed = 0;
  const auto address = [&](const GroupRegion& region) { return bases_[region.base] + region.offset; };
  for (size_t i = 0; i < step.sources.size(); ++i) sources[i] = address(step.sources[i]);
  for (const GroupRegion& dst : step.dsts) {
    const bool scratch = dst.base % 3 == static_cast<int>(ScheduleBuffer::kScratch);
    const void** const end = sources + step.sources.size();
    const bool overwrites = std::find(sources, end, static_cast<const void*>(address(dst))) != end;
    (operation.streams_ && !scratch && !overwrites ? streamed[num_streamed++] : cached[num_cached++]) = address(dst);
  }
  const bool both = num_cached > 0 && num_streamed > 0;
  const bool copies = step.sources.size() == 1 && step.kind == GroupStep::Kind::kCopy;
  const int64_t block = both || (copies && step.dsts.size() > 1) ? kBlock : step.bytes;
  for (int64_t at = 0; at < step.bytes; at += block) {
    const int64_t bytes = std::min(block, step.bytes - at);
    const int firsts = num_cached > 0 ? num_cached : num_streamed;
    void** const first = num_cached > 0 ? cached : streamed;
    const StoreKind store = num_cached > 0 ? StoreKind::kCached : StoreKind::kStreaming;
    if (copies) {
      for (int i = 0; i < firsts; ++i) {
        if (first[i] != sources[0]) CopyBytes(first[i], sources[0], bytes, store);
      }
    } else {
      operation.reduce_({first, static_cast<size_t>(firsts)}, {sources, step.sources.size()},
                        bytes / operation.element_bytes_, store);
    }
    for (int i = 0; both && i < num_streamed; ++i) CopyBytes(streamed[i], cached[0], bytes, StoreKind::kStreaming);
    for (size_t i = 0; i < step.sources.size(); ++i) sources[i] = static_cast<const std::byte*>(sources[i]) + bytes;
    for (int i = 0; i < num_cached; ++i) cached[i] = static_cast<std::byte*>(cached[i]) + bytes;
    for (int i = 0; i < num_streamed; ++i) streamed[i] = static_cast<std::byte*>(streamed[i]) + bytes;
  }
}

absl::Status ProcessGroup::Barrier() { return Run(*barrier_, nullptr, nullptr); }

}  // namespace xlad::collectives
