// Short texts between a device and its peers while a communicator forms.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "collectives/exec/transport.h"

namespace xlad::collectives {

// The channel must carry nothing else. After an error, Revoke must be called before the object is destroyed.
class TextLinks {
 public:
  TextLinks(Transport* transport, int channel) : transport_(*transport), channel_(channel) {}

  absl::Status Send(int peer, const std::string& text) {
    XLAD_ASSIGN_OR_RETURN(SendLink* const link, transport_.OpenSend(peer, channel_));
    const std::string& kept = sent_[peer].emplace_back(text);
    return link->Post({}, {ConstPiece(reinterpret_cast<const std::byte*>(kept.data()), kept.size())});
  }

  absl::StatusOr<std::string> Receive(int peer) {
    XLAD_ASSIGN_OR_RETURN(ReceiveLink* const link, transport_.OpenReceive(peer, channel_));
    XLAD_ASSIGN_OR_RETURN(const Incoming message, link->Next());
    std::string text;
    for (const ConstPiece& piece : message.pieces) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    XLAD_RETURN_IF_ERROR(link->Release());
    return text;
  }

  // Waits until the peers have read the texts. The object must not be destroyed earlier.
  absl::Status WaitUntilReceived() {
    for (const auto& [peer, texts] : sent_) {
      XLAD_ASSIGN_OR_RETURN(SendLink* const link, transport_.OpenSend(peer, channel_));
      XLAD_RETURN_IF_ERROR(link->WaitReleased(std::ssize(texts)));
    }
    return absl::OkStatus();
  }
  // Withdraws the texts after an error, so that they can be destroyed.
  void Revoke() {
    for (const auto& [peer, texts] : sent_) {
      const absl::StatusOr<SendLink*> link = transport_.OpenSend(peer, channel_);
      if (link.ok()) (*link)->Revoke();
    }
  }

 private:
  Transport& transport_;
  const int channel_;
  std::map<int, std::deque<std::string>> sent_;
};

}  // namespace xlad::collectives
