// Sends the frames of a connection through a transport plugin.
//
// The head of a frame is a message on the first stream. A payload of at most kInlineBytes is part of that message. A
// larger payload is a message on the second stream, which is received in the memory that the sink returns.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "collectives/exec/transports/frame_path.h"
#include "collectives/exec/transports/plugin/engine.h"

namespace xlad::collectives {

class EnginePath final : public FramePath {
 public:
  static constexpr size_t kInlineBytes = 8 << 10;  // Payloads above this size are messages of their own.

  // The device's thread connects to the engine of `peer_device` at the first use. `engine` must outlive the path.
  EnginePath(Engine* engine, int peer_device, std::string peer_address)
      : engine_(engine), peer_device_(peer_device), peer_address_(std::move(peer_address)) {}
  ~EnginePath() override;

  absl::StatusOr<uint64_t> Send(const FrameHead& head, absl::Span<const ConstPiece> pieces) override;
  bool CanSend() override { return !revoked_; }
  bool IsSent(uint64_t number) override;
  absl::StatusOr<Progress> Receive(FrameSink* sink) override;
  void Revoke() override;

 private:
  static constexpr size_t kHeadsAhead = 4;  // The number of receives for heads that are always posted.

  using Memory = std::unique_ptr<std::byte[]>;
  struct Sending {
    uint64_t number = 0;  // The result of Send, or 0 if the memory belongs to the path.
    Engine::Started started;
    Memory memory;           // Null if the memory belongs to the sender.
    bool is_packet = false;  // `memory` is a packet that can be reused.
  };
  struct HeadReceive {
    Engine::Started started;
    Memory memory;
  };
  struct Arriving {
    FrameHead head;
    FrameBuffer payload;
    Engine::Started started;
    bool complete = true;
  };

  absl::Status Connect();
  void Disconnect(int flush_ms);
  absl::Status PostHead(Memory memory);
  absl::Status PostOwned(Engine::Stream stream, Memory memory, size_t bytes);
  absl::Status CompleteSends();
  absl::Status TakeHeads(FrameSink* sink);
  absl::Status OnHead(const FrameHead& head, absl::Span<const std::byte> packet, FrameSink* sink);
  absl::Status Deliver(FrameSink* sink);
  Memory TakePacket();

  Engine* const engine_;
  const int peer_device_;
  const std::string peer_address_;
  xlad_transport_peer* peer_ = nullptr;
  bool revoked_ = false;
  bool ended_ = false;  // An operation has ended since Receive was called.
  uint64_t last_number_ = 0;
  std::list<Sending> sending_;
  std::deque<HeadReceive> heads_;
  std::deque<Arriving> arriving_;  // In the order of their heads, which is the order of delivery.
  std::vector<Memory> spare_packets_;
};

}  // namespace xlad::collectives
