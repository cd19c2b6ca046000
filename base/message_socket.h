// Messages between two processes of this machine over a pair of Unix sockets; a message may carry a file descriptor.
//
// Example of a parent and its child:
//   XLAD_ASSIGN_OR_RETURN(auto pair, MessageSocket::MakePair());
//   Spawn({.argv = ..., .channel = pair.second.fd()});       // The child makes MessageSocket(kChannelDescriptor).
//   pair.first.Queue("hello", FileDescriptor(socket));
//   XLAD_RETURN_IF_ERROR(pair.first.Flush().status());
//
// Used by one thread, except that one thread may send (Queue, Flush, SendAll) while another one receives.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/spawn.h"
#include "base/status.h"

namespace xlad {

class MessageSocket {
 public:
  struct Message {
    std::string bytes;
    FileDescriptor descriptor;  // Not open if the message has none.
  };
  static constexpr size_t kMaxMessageBytes = size_t{1} << 30;

  static absl::StatusOr<std::pair<MessageSocket, MessageSocket>> MakePair();
  // Takes over the socket.
  explicit MessageSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }

  // Appends a message of at most kMaxMessageBytes to those that Flush sends.
  void Queue(absl::string_view bytes, FileDescriptor descriptor = {});
  // Sends as much as possible without blocking. Returns whether all has been sent; Unavailable if the peer has ended.
  absl::StatusOr<bool> Flush();
  // Sends everything, blocking.
  absl::Status SendAll();

  // A complete message, or nothing if none has arrived yet. Unavailable if the peer has ended and all its messages have
  // been returned.
  absl::StatusOr<std::optional<Message>> TryReceive();
  // Blocks until there is a message.
  absl::StatusOr<Message> Receive();

 private:
  struct Outgoing {
    std::string bytes;  // With the header.
    size_t sent = 0;
    FileDescriptor descriptor;
  };

  // Takes the first message off the received bytes, if it is complete.
  absl::StatusOr<std::optional<Message>> TakeMessage();

  FileDescriptor fd_;
  std::deque<Outgoing> outgoing_;
  std::string received_;
  size_t taken_ = 0;  // Bytes of `received_` that have been returned.
  std::deque<FileDescriptor> descriptors_;  // Received, in the order of the messages that they belong to.
};

}  // namespace xlad
