#include "collectives/exec/device/device_run.h"

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// The number of messages to a peer on one channel that may wait to be read before a send blocks. It must not exceed the
// number of slots of a link, so that a peer never waits for a slot to say that it has read a message. Schedules are
// correct with any number (collectives/plan/check.h).
constexpr int64_t kMaxUnread = kMinDeviceSlots;

}  // namespace

absl::Status DeviceRun::Execute() {
  return RunProgram(
      program_, runner_.recorder, [this](const ScheduleInstruction& op) { return Send(op); },
      [this](const ScheduleInstruction& op) { return Write(op); },
      [this](ScheduleLink* link, int64_t messages) { return WaitReleased(link, messages); });
}

absl::StatusOr<std::shared_ptr<const Event>> DeviceRun::Mark() {
  if (mark_ == nullptr) {
    XLAD_ASSIGN_OR_RETURN(mark_, ops_.Record());
  }
  return mark_;
}

absl::Status DeviceRun::Send(const ScheduleInstruction& op) {
  XLAD_ASSIGN_OR_RETURN(std::shared_ptr<const Event> written, Mark());
  if (op.to->send != nullptr) {
    ReadMessages& messages = runner_.read.at(op.to);
    XLAD_RETURN_IF_ERROR(WaitRead(&messages, messages.sent + 1 - kMaxUnread));
    XLAD_RETURN_IF_ERROR(written->Wait());
    ++messages.sent;
    runner_.recorder->NoteMessage(MessageIdOf(program_, *op.to, /*sent=*/true, op.message_index));
    const ConstPiece payload = runner_.blocks->Payload(&op, [&] { return memory_.Resolve(op.sources[0]); });
    return op.to->send->Post(Header(op.message_index), {payload});
  }
  DeviceMessage message{Header(op.message_index), memory_.Resolve(op.sources[0]), std::move(written)};
  runner_.peers.at(op.to->peer)->Post(runner_.device, op.to->channel, std::move(message));
  return absl::OkStatus();
}

absl::Status DeviceRun::Write(const ScheduleInstruction& op) {
  std::vector<Pieces> sources;
  size_t held = 0;
  absl::Status status = Receive(op, &sources, &held);
  const bool is_noop = status.ok() && op.kind == OpKind::kCopy && AreSameMemory(memory_.Resolve(op.dst), sources[0]);
  if (is_noop) return absl::OkStatus();
  for (const auto& [link, messages] : op.overwrites) {
    if (status.ok()) status = WaitReleased(link, messages);
  }
  if (status.ok()) status = Combine(op, sources);
  if (held == 0) return status;
  const absl::Status released = Release(op, held);
  return status.ok() ? released : status;
}

// Every message that was taken is released, even after an error, because its sender frees the memory only when the
// stream's work has read it. If no event can be recorded, the work ends here, and no message of a peer in `peers` is
// released, so that the peer waits for the abort signal, which has the cause.
absl::Status DeviceRun::Release(const ScheduleInstruction& op, size_t held) {
  const absl::StatusOr<std::shared_ptr<const Event>> read = Mark();
  absl::Status status = read.status();
  if (!read.ok()) ops_.Synchronize().IgnoreError();
  for (const ScheduleOperand& operand : op.sources) {
    if (operand.link == nullptr || held == 0) continue;
    --held;
    if (operand.link->receive != nullptr) {
      const absl::Status ended = read.ok() ? (*read)->Wait() : read.status();
      absl::Status released = operand.link->receive->Release();
      if (ended.ok() && released.ok()) released = runner_.read.at(operand.link).to_sender->Post({}, {});
      if (status.ok()) status = ended.ok() ? released : ended;
    } else if (read.ok()) {
      runner_.peers.at(operand.link->peer)->Release(runner_.device, operand.link->channel, *read);
    }
  }
  return status;
}

absl::StatusOr<DeviceMessage> DeviceRun::Take(const ScheduleOperand& operand, size_t* held) {
  const ScheduleLink& link = *operand.link;
  if (link.receive == nullptr) {
    XLAD_ASSIGN_OR_RETURN(DeviceMessage message, runner_.mailbox->Take(link.peer, link.channel));
    ++*held;
    return message;
  }
  XLAD_ASSIGN_OR_RETURN(const Incoming message, link.receive->Next());
  ++*held;
  runner_.recorder->NoteMessage(MessageIdOf(program_, link, /*sent=*/false, operand.message_index));
  XLAD_ASSIGN_OR_RETURN(Pieces pieces, runner_.blocks->Resolve(link.peer, message));
  return DeviceMessage{message.header, std::move(pieces), nullptr};
}

absl::Status DeviceRun::Receive(const ScheduleInstruction& op, std::vector<Pieces>* sources, size_t* held) {
  for (const ScheduleOperand& operand : op.sources) {
    if (operand.link == nullptr) {
      sources->push_back(memory_.Resolve(operand));
      continue;
    }
    XLAD_ASSIGN_OR_RETURN(const DeviceMessage message, Take(operand, held));
    XLAD_RETURN_IF_ERROR(CheckMessage(message, operand, op.bytes));
    if (message.written != nullptr) {
      mark_ = nullptr;
      XLAD_RETURN_IF_ERROR(ops_.WaitFor(*message.written));
    }
    sources->push_back(message.pieces);
  }
  return absl::OkStatus();
}

absl::Status DeviceRun::CheckMessage(const DeviceMessage& message, const ScheduleOperand& operand,
                                     int64_t bytes) const {
  const MessageHeader expected = Header(operand.message_index);
  int64_t found = 0;
  for (const ConstPiece& piece : message.pieces) found += std::ssize(piece);
  if (message.header == expected && found == bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks disagree: here ", DescribeMessage(expected, bytes), "; device ", operand.link->peer,
      operand.link->receive == nullptr ? " of this process" : "", " sent ", DescribeMessage(message.header, found)));
}

absl::Status DeviceRun::WaitReleased(ScheduleLink* link, int64_t messages) {
  const int64_t all = link->sent + messages;
  if (link->send != nullptr) return WaitRead(&runner_.read.at(link), all);
  int64_t& waited = runner_.waited[link];
  if (waited >= all) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<const Event> read,
                        runner_.mailbox->WaitReleased(link->peer, link->channel, all));
  waited = all;
  mark_ = nullptr;
  return ops_.WaitFor(*read);
}

absl::Status DeviceRun::WaitRead(ReadMessages* messages, int64_t count) {
  while (messages->read < count) {
    XLAD_RETURN_IF_ERROR(messages->from_receiver->Next().status());
    ++messages->read;
    XLAD_RETURN_IF_ERROR(messages->from_receiver->Release());
  }
  return absl::OkStatus();
}

absl::Status DeviceRun::Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources) {
  const int64_t width = tensor::ByteWidth(program_.spec.type);
  mark_ = nullptr;
  return ForEachRange(memory_.Resolve(op.dst), sources,
                      [&](const ConstPiece& to, absl::Span<const void* const> addresses) {
                        auto* const dst = const_cast<std::byte*>(to.data());
                        const int64_t bytes = std::ssize(to);
                        if (addresses.empty()) return ops_.FillZero(dst, bytes);
                        if (addresses.size() > 1) return ops_.Reduce(reduction_, dst, addresses, bytes / width);
                        return addresses[0] == dst ? absl::OkStatus() : ops_.Copy(dst, addresses[0], bytes);
                      });
}

}  // namespace xlad::collectives
