#include "collectives/exec/schedule_run.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "collectives/exec/checksum.h"

namespace xlad::collectives {
namespace {

// Messages of fewer bytes are not received in place, because copying them is faster than offering memory for them.
constexpr int64_t kInPlaceBytes = 16 << 10;

}  // namespace

ScheduleRun::ScheduleRun(const ScheduleProgram& program, const CollectiveLaunch& launch, const Transport& transport,
                         Recorder* recorder)
    : program_(program), launch_(launch), transport_(transport), recorder_(recorder) {}

absl::Status ScheduleRun::Execute(std::vector<std::byte>* scratch, std::vector<std::byte>* staging) {
  const auto grow = [&](int64_t bytes) -> absl::StatusOr<std::byte*> {
    staging->resize(std::max(staging->size(), static_cast<size_t>(bytes)));
    return staging->data();
  };
  const auto copy = [](std::byte* to, const std::byte* from, int64_t bytes) {
    CopyBytes(to, from, bytes, StoreKind::kCached);
    return absl::OkStatus();
  };
  XLAD_ASSIGN_OR_RETURN(memory_, MemoryOfRun(program_, launch_, scratch->data(), grow, copy));
  return RunProgram(
      program_, recorder_, [this](const ScheduleInstruction& op) { return Send(op); },
      [this](const ScheduleInstruction& op) { return Write(op); },
      [](ScheduleLink* link, int64_t messages) { return WaitReleased(*link, messages); });
}

void ScheduleRun::ShowWait(const ScheduleInstruction& op, int peer) {
  const ShownWait& shown = program_.links->shown_wait;
  if (shown.waits_for == nullptr) return;
  shown.operation->store(static_cast<uint32_t>(&op - program_.ops.data()), std::memory_order_relaxed);
  shown.waits_for->store(peer, std::memory_order_relaxed);
}

absl::Status ScheduleRun::Send(const ScheduleInstruction& op) {
  const Pieces pieces = memory_.Resolve(op.sources[0]);
  MessageHeader header = Header(op.message_index);
  if (program_.checksums) header.checksum = PayloadChecksum(pieces);
  recorder_->NoteMessage(MessageIdOf(program_, *op.to, /*sent=*/true, op.message_index));
  ShowWait(op, op.to->peer);
  const absl::Status status = op.to->send->Post(header, pieces);
  ShowWait(op, -1);
  return status;
}

absl::Status ScheduleRun::CheckMessage(const Incoming& message, const ScheduleOperand& operand, int64_t bytes) const {
  MessageHeader expected = Header(operand.message_index);
  expected.checksum = message.header.checksum;
  if (message.header == expected && message.bytes == bytes) {
    const uint32_t sent = message.header.checksum;
    if (sent == 0 || PayloadChecksum(message.pieces) == sent) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("the payload of ", DescribeMessage(expected, bytes),
                                            " was changed on its way from ", transport_.Describe(operand.link->peer),
                                            " to here: found a wrong checksum"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks disagree: here ", DescribeMessage(expected, bytes), "; ", transport_.Describe(operand.link->peer),
      " sent ", DescribeMessage(message.header, message.bytes), DescribeOther(message.header)));
}

// Describes the collective that a message of another schedule belongs to, and the collective that this rank ran last in
// the message's step if that is a different one. Returns "" if the message's schedule is the expected one or is unknown
// here.
std::string ScheduleRun::DescribeOther(const MessageHeader& other) const {
  const ScheduleLinks& links = *program_.links;
  const auto theirs = links.texts.find(other.schedule_hash);
  const ScheduleLinks::Ran& ran = links.recent[static_cast<uint64_t>(other.step) % links.recent.size()];
  const auto own = ran.step == other.step ? links.texts.find(ran.hash) : links.texts.end();
  std::string text;
  if (other.schedule_hash == program_.collective->hash || theirs == links.texts.end()) return text;
  absl::StrAppend(&text, " of ", theirs->second);
  if (own != links.texts.end() && own != theirs) absl::StrAppend(&text, ", instead of ", own->second);
  return text;
}

// Runs an operation that writes dst: receives those sources that are messages, waits until dst may be overwritten, and
// combines the sources.
absl::Status ScheduleRun::Write(const ScheduleInstruction& op) {
  std::vector<Pieces> sources;
  int held = 0;
  absl::Status status = Receive(op, &sources, &held);
  if (status.ok()) status = WriteFrom(op, sources);
  for (const ScheduleOperand& operand : op.sources) {
    if (operand.link == nullptr || held-- <= 0) continue;
    const absl::Status released = operand.link->receive->Release();
    if (status.ok()) status = released;
  }
  return status;
}

// Offers dst for a message of at least kInPlaceBytes if the message is only copied, dst is contiguous and the link
// receives in place.
absl::Status ScheduleRun::PostInto(const ScheduleInstruction& op, ReceiveLink* link) {
  if (op.kind != OpKind::kRecv || op.dst.pieces.size() != 1 || op.bytes < kInPlaceBytes || !link->ReceivesInPlace()) {
    return absl::OkStatus();
  }
  XLAD_RETURN_IF_ERROR(WaitUntilFree(op));
  const Piece& piece = op.dst.pieces[0];
  auto* const dst = const_cast<std::byte*>(memory_.Address(op.dst.buffer, piece));
  link->PostInto({dst, static_cast<size_t>(piece.bytes)});
  return absl::OkStatus();
}

// Waits until the peers have read the messages that were sent from dst.
absl::Status ScheduleRun::WaitUntilFree(const ScheduleInstruction& op) {
  for (const auto& [link, messages] : op.overwrites) {
    XLAD_RETURN_IF_ERROR(WaitReleased(*link, messages));
  }
  return absl::OkStatus();
}

// `held` counts the received messages, which must be released even after an error.
absl::Status ScheduleRun::Receive(const ScheduleInstruction& op, std::vector<Pieces>* sources, int* held) {
  for (const ScheduleOperand& operand : op.sources) {
    if (operand.link == nullptr) {
      sources->push_back(memory_.Resolve(operand));
      continue;
    }
    XLAD_RETURN_IF_ERROR(PostInto(op, operand.link->receive));
    ShowWait(op, operand.link->peer);
    const absl::StatusOr<Incoming> next = operand.link->receive->Next();
    ShowWait(op, -1);
    XLAD_RETURN_IF_ERROR(next.status());
    const Incoming& message = *next;
    ++*held;
    recorder_->NoteMessage(MessageIdOf(program_, *operand.link, /*sent=*/false, operand.message_index));
    XLAD_RETURN_IF_ERROR(CheckMessage(message, operand, op.bytes));
    sources->emplace_back(message.pieces.begin(), message.pieces.end());
  }
  return absl::OkStatus();
}

absl::Status ScheduleRun::WriteFrom(const ScheduleInstruction& op, absl::Span<const Pieces> sources) {
  const bool is_noop = op.kind == OpKind::kCopy && AreSameMemory(memory_.Resolve(op.dst), sources[0]);
  if (is_noop) return absl::OkStatus();
  XLAD_RETURN_IF_ERROR(WaitUntilFree(op));
  return Combine(op, sources);
}

absl::Status ScheduleRun::Combine(const ScheduleInstruction& op, absl::Span<const Pieces> sources) {
  const int64_t width = tensor::ByteWidth(program_.spec.type);
  const size_t n = sources.size();
  return ForEachRange(memory_.Resolve(op.dst), sources,
                      [&](const ConstPiece& to, absl::Span<const void* const> addresses) {
                        auto* const dst = const_cast<std::byte*>(to.data());
                        if (n == 0) {
                          std::memset(dst, 0, to.size());
                        } else if (n == 1) {
                          if (addresses[0] != dst) CopyBytes(dst, addresses[0], std::ssize(to), StoreKind::kCached);
                        } else {
                          void* const dsts[] = {dst};
                          program_.reduce(dsts, addresses, std::ssize(to) / width, StoreKind::kCached);
                        }
                        return absl::OkStatus();
                      });
}

}  // namespace xlad::collectives
