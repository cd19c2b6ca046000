// The schedule of one rank, resolved to links and memory, and one run of it.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
  // The spec of the collective with the MessageType of the plan. If this is another type than that of the collective,
  // a run gets buffers of this type (widened_launch.h).
  CollectiveSpec spec;
  int spec_index = 0;
  int rank = 0;
  Schedule schedule;
  uint32_t sequence = 0;  // The number of earlier runs.
  ReduceFunction reduce = nullptr;
  bool checksums = false;  // Messages have checksums of their payloads.
  const ScheduleLinks* links = nullptr;
  std::vector<ScheduleInstruction> ops;
  std::vector<std::pair<ScheduleLink*, int64_t>> sent;  // By link: the number of messages per run.
};

class ScheduleRun {
 public:
  ScheduleRun(ScheduleProgram* program, const CollectiveLaunch& launch, const Transport& transport, Recorder* recorder);

  // Runs all operations and waits until the peers have released all messages. `scratch` has at least the size that the
  // schedule requires; `staging` grows as needed.
  absl::Status Execute(std::vector<std::byte>* scratch, std::vector<std::byte>* staging);

 private:
  void StageInputsIfNeeded(std::vector<std::byte>* staging);
  const std::byte* Address(ScheduleBuffer buffer, const Piece& piece) const;
  Pieces Resolve(const ScheduleOperand& operand) const;
  absl::Status RunInstruction(const ScheduleInstruction& op);
  absl::Status Send(const ScheduleInstruction& op);
  absl::Status Write(const ScheduleInstruction& op);
  absl::Status Receive(const ScheduleInstruction& op, std::vector<Pieces>* sources, int* held);
  absl::Status PostInto(const ScheduleInstruction& op, ReceiveLink* link);
  absl::Status WaitUntilFree(const ScheduleInstruction& op);
  absl::Status WriteFrom(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  absl::Status Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources);
  std::string DescribeOther(const MessageHeader& other) const;
  absl::Status CheckMessage(const Incoming& message, const ScheduleOperand& operand, int64_t bytes) const;
  MessageHeader Header(uint32_t message_index) const;
  void Note(bool sent, const ScheduleLink& link, uint32_t message_index);
  void ShowWait(int peer);

  ScheduleProgram& program_;
  const CollectiveLaunch& launch_;
  const Transport& transport_;
  Recorder* const recorder_;
  absl::InlinedVector<const std::byte*, 4> inputs_;
  std::byte* scratch_ = nullptr;
  uint32_t operation_ = 0;  // The index of the running operation.
};

}  // namespace xlad::collectives
