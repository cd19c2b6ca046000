#include "collectives/exec/transports/plugin/engine_path.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/exec/reduce.h"

namespace xlad::collectives {
namespace {

constexpr size_t kPacketBytes = sizeof(FrameHead) + EnginePath::kInlineBytes;
constexpr size_t kMaxSparePackets = 64;
// How long the destructor waits until messages have left this process, in milliseconds.
constexpr int kFlushMs = 500;

// Keeps memory that a library may still access until the process ends.
void KeepUntilExit(std::unique_ptr<std::byte[]> memory) {
  if (memory != nullptr) static_cast<void>(memory.release());
}

// Copies the pieces one after another to `to`.
void Join(absl::Span<const ConstPiece> pieces, std::byte* to) {
  for (const ConstPiece& piece : pieces) {
    CopyBytes(to, piece.data(), std::ssize(piece), StoreKind::kCached);
    to += piece.size();
  }
}

}  // namespace

EnginePath::~EnginePath() { Disconnect(kFlushMs); }

absl::Status EnginePath::Connect() {
  if (revoked_) return absl::FailedPreconditionError("the connection has already failed");
  if (peer_ != nullptr) return absl::OkStatus();
  XLAD_ASSIGN_OR_RETURN(peer_, engine_->Connect(peer_device_, peer_address_));
  for (size_t i = 0; i < kHeadsAhead; ++i) XLAD_RETURN_IF_ERROR(PostHead(TakePacket()));
  return absl::OkStatus();
}

EnginePath::Memory EnginePath::TakePacket() {
  if (spare_packets_.empty()) return Memory(new std::byte[kPacketBytes]);
  Memory packet = std::move(spare_packets_.back());
  spare_packets_.pop_back();
  return packet;
}

absl::Status EnginePath::PostHead(Memory memory) {
  XLAD_ASSIGN_OR_RETURN(const Engine::Started started,
                        engine_->PostReceive(peer_, Engine::kHeads, {memory.get(), kPacketBytes}));
  heads_.push_back({started, std::move(memory)});
  return absl::OkStatus();
}

absl::Status EnginePath::PostOwned(Engine::Stream stream, Memory memory, size_t bytes) {
  XLAD_ASSIGN_OR_RETURN(const Engine::Started started, engine_->Post(peer_, stream, {memory.get(), bytes}));
  sending_.push_back({0, started, std::move(memory), stream == Engine::kHeads});
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EnginePath::Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) {
  XLAD_RETURN_IF_ERROR(Connect());
  Memory packet = TakePacket();
  std::memcpy(packet.get(), &head, sizeof head);
  const bool is_inline = head.bytes <= kInlineBytes || head.kind != FrameKind::kMessage;
  const size_t packed = is_inline && head.kind == FrameKind::kMessage ? head.bytes : 0;
  if (packed > 0) Join(pieces, packet.get() + sizeof head);
  XLAD_RETURN_IF_ERROR(PostOwned(Engine::kHeads, std::move(packet), sizeof head + packed));
  if (is_inline) return 0;
  if (pieces.size() > 1 || engine_->keeps_memory()) {
    Memory body(new (std::nothrow) std::byte[head.bytes]);
    if (body == nullptr) return absl::ResourceExhaustedError(absl::StrCat("no memory for ", head.bytes, " bytes"));
    Join(pieces, body.get());
    XLAD_RETURN_IF_ERROR(PostOwned(Engine::kBodies, std::move(body), head.bytes));
    return 0;
  }
  XLAD_ASSIGN_OR_RETURN(const Engine::Started started, engine_->Post(peer_, Engine::kBodies, pieces[0]));
  if (started.request == nullptr) return 0;
  sending_.push_back({++last_number_, started, nullptr});
  return last_number_;
}

bool EnginePath::IsSent(uint64_t number) {
  for (const Sending& sending : sending_) {
    if (sending.number == number && number != 0) return false;
  }
  return true;
}

absl::Status EnginePath::CompleteSends() {
  for (auto at = sending_.begin(); at != sending_.end();) {
    const auto next = std::next(at);
    XLAD_ASSIGN_OR_RETURN(const bool done, engine_->Test(&at->started));
    if (done) {
      ended_ = true;
      if (at->is_packet && spare_packets_.size() < kMaxSparePackets) {
        spare_packets_.push_back(std::move(at->memory));
      }
      sending_.erase(at);
    }
    at = next;
  }
  return absl::OkStatus();
}

absl::Status EnginePath::OnHead(const FrameHead& head, absl::Span<const std::byte> packet, FrameSink* sink) {
  XLAD_RETURN_IF_ERROR(CheckPathFrame(head));
  Arriving arriving;
  arriving.head = head;
  if (head.kind == FrameKind::kMessage) {
    const bool is_inline = head.bytes <= kInlineBytes;
    if (packet.size() != sizeof head + (is_inline ? head.bytes : 0)) {
      return absl::DataLossError(absl::StrCat("found a frame of ", packet.size(), " bytes for a message of ",
                                              head.bytes, " bytes, expected ",
                                              sizeof head + (is_inline ? head.bytes : 0)));
    }
    XLAD_ASSIGN_OR_RETURN(arriving.payload, sink->OnHead(head));
    if (is_inline && head.bytes > 0) std::memcpy(arriving.payload.data, packet.data() + sizeof head, head.bytes);
    if (!is_inline) {
      XLAD_ASSIGN_OR_RETURN(arriving.started,
                            engine_->PostReceive(peer_, Engine::kBodies, {arriving.payload.data, head.bytes}));
      arriving.complete = false;  // Deliver checks the payload's size, even if the receive has ended.
    }
  }
  arriving_.push_back(std::move(arriving));
  return absl::OkStatus();
}

absl::Status EnginePath::TakeHeads(FrameSink* sink) {
  while (!heads_.empty()) {
    HeadReceive& first = heads_.front();
    XLAD_ASSIGN_OR_RETURN(const bool done, engine_->Test(&first.started));
    if (!done) return absl::OkStatus();
    ended_ = true;
    const size_t bytes = first.started.received;
    Memory memory = std::move(first.memory);
    heads_.pop_front();
    if (bytes < sizeof(FrameHead) || bytes > kPacketBytes) {
      return absl::DataLossError(
          absl::StrCat("found a frame of ", bytes, " bytes, expected ", sizeof(FrameHead), " to ", kPacketBytes));
    }
    FrameHead head;
    std::memcpy(&head, memory.get(), sizeof head);
    XLAD_RETURN_IF_ERROR(OnHead(head, {memory.get(), bytes}, sink));
    XLAD_RETURN_IF_ERROR(PostHead(std::move(memory)));
  }
  return absl::OkStatus();
}

absl::Status EnginePath::Deliver(FrameSink* sink) {
  while (!arriving_.empty()) {
    Arriving& first = arriving_.front();
    if (!first.complete) {
      XLAD_ASSIGN_OR_RETURN(first.complete, engine_->Test(&first.started));
      if (!first.complete) return absl::OkStatus();
      if (first.started.received != first.head.bytes) {
        return absl::DataLossError(
            absl::StrCat("found a payload of ", first.started.received, " bytes, expected ", first.head.bytes));
      }
    }
    ended_ = true;
    sink->OnFrame(first.head, std::move(first.payload));
    arriving_.pop_front();
  }
  return absl::OkStatus();
}

absl::StatusOr<Progress> EnginePath::Receive(FrameSink* sink) {
  XLAD_RETURN_IF_ERROR(Connect());
  // Some libraries do not know whether a call has made progress, but all know whether an operation has ended.
  const bool reported = engine_->Progress();
  ended_ = false;
  XLAD_RETURN_IF_ERROR(CompleteSends());
  XLAD_RETURN_IF_ERROR(TakeHeads(sink));
  XLAD_RETURN_IF_ERROR(Deliver(sink));
  if (ended_) return Progress::kMade;
  return reported ? Progress::kReported : Progress::kNone;
}

void EnginePath::Revoke() {
  revoked_ = true;
  Disconnect(0);
}

void EnginePath::Disconnect(int flush_ms) {
  if (peer_ == nullptr) return;
  engine_->Disconnect(peer_, flush_ms);
  peer_ = nullptr;
  if (!engine_->keeps_memory()) return;
  for (Sending& sending : sending_) KeepUntilExit(std::move(sending.memory));
  for (HeadReceive& head : heads_) KeepUntilExit(std::move(head.memory));
  for (Arriving& arriving : arriving_) {
    if (!arriving.complete) KeepUntilExit(std::move(arriving.payload.owned));
  }
}

}  // namespace xlad::collectives
