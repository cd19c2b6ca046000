// The schedule of one rank, resolved to links and memory, and what its runs in host memory and in device memory share.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rounding.h"
#include "collectives/exec/collective_set.h"
#include "collectives/exec/communicator.h"
#include "collectives/exec/layout.h"
#include "collectives/exec/ranges.h"
#include "collectives/exec/recorder.h"
#include "collectives/exec/reduce.h"
#include "collectives/exec/transport.h"

namespace xlad::collectives {

// Both directions of the connection to a peer device on one channel.
struct ScheduleLink {
  int peer = 0;
  int channel = 0;
  SendLink* send = nullptr;
  ReceiveLink* receive = nullptr;
  int64_t sent = 0;  // The number of messages sent in earlier runs.
};

// The addresses to which a run writes the index of the operation that is waiting, and the device that it waits for (-1
// if the run does not wait).
struct ShownWait {
  std::atomic<uint32_t>* operation = nullptr;  // Null if and only if `waits_for` is null.
  std::atomic<int32_t>* waits_for = nullptr;
};

// The links of one device.
struct ScheduleLinks {
  std::map<std::pair<int, int>, std::unique_ptr<ScheduleLink>> by_peer;  // By peer and channel.
  // Descriptions of the collectives whose messages use these links, by schedule hash. Errors about other ranks contain
  // them.
  std::map<uint64_t, std::string> texts;
  // The most recent runs, by step modulo the size; only recorded if communicators share the links. A rank that does not
  // wait for other ranks may run a different collective than its peers and detect the difference only in a later step.
  struct Ran {
    int64_t step = -1;
    uint64_t hash = 0;
  };
  std::array<Ran, 64> recent;
  ShownWait shown_wait;
};

// A message if `link` is set, otherwise elements of a buffer.
struct ScheduleOperand {
  ScheduleLink* link = nullptr;
  uint32_t message_index = 0;
  ScheduleBuffer buffer = ScheduleBuffer::kInput;
  std::vector<Piece> pieces;
};

struct ScheduleInstruction {
  OpKind kind = OpKind::kCopy;
  ScheduleLink* to = nullptr;  // Only for kSend.
  uint32_t message_index = 0;  // Only for kSend.
  std::vector<ScheduleOperand> sources;
  ScheduleOperand dst;
  int64_t bytes = 0;  // The size of dst in bytes.
  // By link: the number of messages of this run that must be released before dst is overwritten, because receivers may
  // read them from dst.
  std::vector<std::pair<ScheduleLink*, int64_t>> overwrites;
};

struct ScheduleProgram {
  const Collective* collective = nullptr;
  // The spec of the collective with the MessageType of the plan. If this is a different type than that of the
  // collective, a run gets buffers of this type (widened_launch.h).
  CollectiveSpec spec;
  int rank = 0;
  Schedule schedule;
  uint32_t sequence = 0;  // The number of earlier runs.
  ReduceFunction reduce = nullptr;
  bool checksums = false;  // Messages have checksums of their payloads.
  const ScheduleLinks* links = nullptr;
  std::vector<ScheduleInstruction> ops;
  std::vector<std::pair<ScheduleLink*, int64_t>> sent;  // By link: the number of messages per run.
};

// Identifies message `index` of a run of `collective` that `sequence` runs have preceded.
inline MessageHeader HeaderOf(const CollectiveLaunch& launch, const Collective& collective, uint32_t sequence,
                              uint32_t index = 0) {
  MessageHeader header;
  header.step = launch.step;
  header.iteration = launch.iteration;
  header.schedule_hash = collective.hash;
  header.spec = static_cast<uint32_t>(launch.spec);
  header.sequence = sequence;
  header.index = index;
  return header;
}

// Identifies a message of the current run for the recorder. The sequence number distinguishes the runs of a collective
// in one step whose iterations are equal.
inline Recorder::MessageId MessageIdOf(const ScheduleProgram& program, const ScheduleLink& link, bool sent,
                                       uint32_t message_index) {
  const uint64_t number = uint64_t{program.sequence} << 32 ^ static_cast<uint64_t>(link.channel) << 24 ^ message_index;
  return {link.peer, sent, number};
}

// The memory that one run of a schedule reads and writes.
struct ScheduleMemory {
  absl::InlinedVector<const std::byte*, 4> inputs;
  absl::Span<std::byte* const> outputs;
  std::byte* scratch = nullptr;  // At least of the size that the schedule requires.

  const std::byte* Address(ScheduleBuffer buffer, const Piece& piece) const {
    const std::byte* base = buffer == ScheduleBuffer::kInput    ? inputs[piece.operand]
                            : buffer == ScheduleBuffer::kOutput ? outputs[piece.operand]
                                                                : scratch;
    return base + piece.offset;
  }
  Pieces Resolve(const ScheduleOperand& operand) const {
    Pieces pieces;
    for (const Piece& piece : operand.pieces) {
      pieces.push_back(ConstPiece(Address(operand.buffer, piece), static_cast<size_t>(piece.bytes)));
    }
    return pieces;
  }
};

// Returns the memory of a run of `program`. If the outputs would overwrite inputs too early, allocate(bytes) must
// return memory for copies of the inputs, which copy(to, from, bytes) makes.
template <typename Allocate, typename Copy>
absl::StatusOr<ScheduleMemory> MemoryOfRun(const ScheduleProgram& program, const CollectiveLaunch& launch,
                                           std::byte* scratch, const Allocate& allocate, const Copy& copy) {
  constexpr int64_t kAlignment = 64;  // The alignment of the copies, in bytes.
  const CollectiveSpec& spec = program.spec;
  ScheduleMemory memory{{launch.inputs.begin(), launch.inputs.end()}, launch.outputs, scratch};
  if (!NeedsCopyOfInputs(spec, program.rank, program.schedule.in_place, launch.inputs, launch.outputs)) return memory;
  const int64_t width = tensor::ByteWidth(spec.type);
  const std::vector<int64_t> counts = InputCounts(spec, program.rank);
  int64_t all = 0;
  for (const int64_t count : counts) all += RoundUp(count * width, kAlignment);
  XLAD_ASSIGN_OR_RETURN(std::byte * at, allocate(all));
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) XLAD_RETURN_IF_ERROR(copy(at, launch.inputs[i], counts[i] * width));
    memory.inputs[i] = at;
    at += RoundUp(counts[i] * width, kAlignment);
  }
  return memory;
}

// Calls send(instruction) or write(instruction) for each operation of the program, in order. Signals and waits of the
// schedule have no effect, because of this order. Then calls wait_released(link, messages) for the messages of this run
// on each link, and counts them. Errors name the operation.
template <typename Send, typename Write, typename WaitReleased>
absl::Status RunProgram(const ScheduleProgram& program, Recorder* recorder, const Send& send, const Write& write,
                        const WaitReleased& wait_released) {
  const int operations = static_cast<int>(program.ops.size());
  for (int i = 0; i < operations; ++i) {
    recorder->AtOp(i);
    const ScheduleInstruction& op = program.ops[i];
    if (op.kind == OpKind::kSignal || op.kind == OpKind::kWait) continue;
    const absl::Status status = op.kind == OpKind::kSend ? send(op) : write(op);
    if (status.ok()) continue;
    return Annotate(status, absl::StrCat("operation ", i, " \"", Print(program.schedule.ops[i]), "\""));
  }
  recorder->AtOp(operations);
  for (const auto& [link, messages] : program.sent) {
    XLAD_RETURN_IF_ERROR(wait_released(link, messages));
    link->sent += messages;
  }
  return absl::OkStatus();
}

}  // namespace xlad::collectives
