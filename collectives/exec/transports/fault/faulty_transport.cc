#include "collectives/exec/transports/fault/faulty_transport.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

class FaultyLink final : public SendLink {
 public:
  FaultyLink(const FaultPlan& plan, SendLink* inner, FaultState* state) : plan_(plan), inner_(inner), state_(*state) {}

  absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) override {
    const int64_t number = posted_++;
    if (swallows_) return absl::OkStatus();
    if (state_.messages++ != plan_.message) return inner_->Post(header, pieces);
    at_ = number;
    state_.happened = true;
    if (plan_.at_fault != nullptr) plan_.at_fault();
    switch (plan_.fault) {
      case Fault::kDrop:
        return absl::OkStatus();
      case Fault::kDuplicate:
        XLAD_RETURN_IF_ERROR(inner_->Post(header, pieces));
        return inner_->Post(header, pieces);
      case Fault::kDelay:
        return inner_->Post(header, pieces);
      case Fault::kCorrupt:
        return PostCorrupted(header, pieces);
      case Fault::kCorruptHeader: {
        MessageHeader changed = header;
        changed.index ^= 0x100;
        return inner_->Post(changed, pieces);
      }
      case Fault::kHalfClose:
        swallows_ = true;
        return absl::OkStatus();
      case Fault::kKill:
        swallows_ = true;
        return absl::CancelledError("the fault plan ended this device");
    }
    return absl::OkStatus();
  }

  absl::Status WaitReleased(int64_t messages) override { return inner_->WaitReleased(InnerMessages(messages)); }
  void Revoke() override { inner_->Revoke(); }

 private:
  absl::Status PostCorrupted(const MessageHeader& header, absl::Span<const ConstPiece> pieces) {
    for (const ConstPiece& piece : pieces) payload_.insert(payload_.end(), piece.begin(), piece.end());
    if (!payload_.empty()) payload_[payload_.size() / 2] ^= std::byte{0x10};
    return inner_->Post(header, {ConstPiece(payload_)});
  }

  // Returns how many messages were posted on the inner link for the first `messages` messages of this link.
  int64_t InnerMessages(int64_t messages) const {
    if (at_ < 0 || messages <= at_) return messages;
    if (swallows_) return at_;
    if (plan_.fault == Fault::kDrop) return messages - 1;
    return plan_.fault == Fault::kDuplicate ? messages + 1 : messages;
  }

  const FaultPlan& plan_;
  SendLink* const inner_;
  FaultState& state_;
  int64_t posted_ = 0;
  int64_t at_ = -1;  // The index of the message of this link that the fault has affected, or -1.
  bool swallows_ = false;
  // The payload of the corrupted message, which receivers may read until the link is destroyed.
  std::vector<std::byte> payload_;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(const FaultPlan& plan, int device, Transport* inner, FaultState* state)
      : plan_(plan), device_(device), inner_(inner), state_(state) {}

  absl::StatusOr<SendLink*> OpenSend(int peer, int channel) override {
    XLAD_ASSIGN_OR_RETURN(SendLink * link, inner_->OpenSend(peer, channel));
    const bool is_harmed =
        device_ == plan_.device && (plan_.peer < 0 || plan_.peer == peer) && channel >= plan_.first_channel;
    if (!is_harmed) return link;
    std::unique_ptr<FaultyLink>& made = links_[{peer, channel}];
    if (made == nullptr) made = std::make_unique<FaultyLink>(plan_, link, state_);
    return made.get();
  }
  absl::StatusOr<ReceiveLink*> OpenReceive(int peer, int channel) override {
    return inner_->OpenReceive(peer, channel);
  }
  std::string Describe(int peer) const override { return inner_->Describe(peer); }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(absl::Span<std::byte> memory, MemoryKind kind) override {
    return inner_->Register(memory, kind);
  }
  absl::StatusOr<absl::Span<std::byte>> OpenWindow(int peer, const std::string& key) override {
    return inner_->OpenWindow(peer, key);
  }
  void Poll() override { inner_->Poll(); }

 private:
  const FaultPlan plan_;
  const int device_;
  Transport* const inner_;
  FaultState* const state_;
  std::map<std::pair<int, int>, std::unique_ptr<FaultyLink>> links_;  // By peer and channel.
};

}  // namespace

std::unique_ptr<Transport> MakeFaultyTransport(const FaultPlan& plan, int device, Transport* inner, FaultState* state) {
  return std::make_unique<FaultyTransport>(plan, device, inner, state);
}

}  // namespace xlad::collectives
