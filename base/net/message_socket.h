// Messages between two processes of this machine over a pair of Unix sockets. A message may contain a file descriptor.
//
// Example of a parent and its child:
//   XLAD_ASSIGN_OR_RETURN(auto pair, MessageSocket::MakePair());
//   // The child makes MessageSocket(FileDescriptor(kChannelDescriptor)).
//   Spawn({.argv = ..., .channel = pair.second.fd()});
//   pair.first.Queue("hello", FileDescriptor(socket));
//   XLAD_RETURN_IF_ERROR(pair.first.Flush().status());
//
// Only one thread may use a socket, except that one thread may send (Queue, Flush, SendAll) while another one receives.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/file_descriptor.h"
#include "base/status.h"

namespace xlad {

class MessageSocket {
 public:
  struct Message {
    std::string bytes;
    FileDescriptor descriptor;  // Not open if the message has no descriptor.
  };
  static constexpr size_t kMaxMessageBytes = size_t{1} << 30;

  // Returns two connected sockets. ResourceExhausted if the system cannot create them.
  static absl::StatusOr<std::pair<MessageSocket, MessageSocket>> MakePair();
  // Takes ownership of the socket.
  explicit MessageSocket(FileDescriptor fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }

  // Appends a message of at most kMaxMessageBytes bytes to the messages that Flush sends.
  void Queue(absl::string_view bytes, FileDescriptor descriptor = {});
  // Sends as much as possible without blocking. Returns whether everything has been sent. Unavailable if the peer has
  // ended.
  absl::StatusOr<bool> Flush();
  // Blocks until everything has been sent.
  absl::Status SendAll();

  // Returns a complete message, or nullopt if none has arrived yet. Unavailable if the peer has ended and all its
  // messages have been returned. ResourceExhausted if the descriptor of the message was lost because this process has
  // too many open files. DataLoss if the message has more than kMaxMessageBytes bytes. After one of these errors, later
  // calls return it too.
  absl::StatusOr<std::optional<Message>> TryReceive();
  // Blocks until a message has arrived, and returns it. Errors are those of TryReceive.
  absl::StatusOr<Message> Receive();

 private:
  struct Outgoing {
    std::string bytes;  // The bytes of the message with its header.
    size_t sent = 0;
    FileDescriptor descriptor;
  };

  // Removes the first message from the received bytes if it is complete, and returns it.
  absl::StatusOr<std::optional<Message>> TakeMessage();

  FileDescriptor fd_;
  std::deque<Outgoing> outgoing_;
  std::string received_;
  size_t taken_ = 0;                        // The number of bytes of `received_` that have been returned.
  std::deque<FileDescriptor> descriptors_;  // The received descriptors, in the order of their messages.
  bool descriptor_is_lost_ = false;         // Whether the system dropped a descriptor in the latest read.
};

}  // namespace xlad
