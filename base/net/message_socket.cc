#include "base/net/message_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace xlad {
namespace {

// The header of a message is its size. The highest bit is set if the message has a descriptor.
constexpr uint32_t kHasDescriptor = uint32_t{1} << 31;
constexpr size_t kHeaderBytes = sizeof(uint32_t);

absl::Status Ended(const char* what) {
  return absl::UnavailableError(absl::StrCat("the other process has ended (", what, ")"));
}

absl::Status DescriptorLost() {
  return absl::ResourceExhaustedError(
      "the descriptor of a message was lost: this process has too many open files; raise the limit (ulimit -n)");
}

void Wait(int fd, short events) {
  pollfd ready{fd, events, 0};
  poll(&ready, 1, -1);
}

// Sends bytes, with the descriptor unless it is -1.
ssize_t SendSome(int fd, absl::string_view bytes, int descriptor) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

absl::StatusOr<std::pair<MessageSocket, MessageSocket>> MessageSocket::MakePair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  return std::make_pair(MessageSocket(FileDescriptor(ends[0])), MessageSocket(FileDescriptor(ends[1])));
}

void MessageSocket::Queue(absl::string_view bytes, FileDescriptor descriptor) {
  XLAD_CHECK(bytes.size() <= kMaxMessageBytes)
      << "found a message of " << bytes.size() << " bytes, expected at most " << kMaxMessageBytes;
  const uint32_t header = static_cast<uint32_t>(bytes.size()) | (descriptor.is_open() ? kHasDescriptor : 0);
  Outgoing& message = outgoing_.emplace_back();
  message.bytes.resize(kHeaderBytes);
  std::memcpy(message.bytes.data(), &header, kHeaderBytes);
  message.bytes.append(bytes.data(), bytes.size());
  message.descriptor = std::move(descriptor);
}

absl::StatusOr<bool> MessageSocket::Flush() {
  while (!outgoing_.empty()) {
    Outgoing& message = outgoing_.front();
    const ssize_t n = SendSome(fd(), absl::string_view(message.bytes).substr(message.sent), message.descriptor.get());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n < 0) return Ended(std::strerror(errno));
    message.descriptor.Close();  // The descriptor has been sent with the first byte.
    message.sent += n;
    if (message.sent == message.bytes.size()) outgoing_.pop_front();
  }
  return true;
}

absl::Status MessageSocket::SendAll() {
  while (true) {
    XLAD_ASSIGN_OR_RETURN(const bool all, Flush());
    if (all) return absl::OkStatus();
    Wait(fd(), POLLOUT);
  }
}

absl::StatusOr<std::optional<MessageSocket::Message>> MessageSocket::TakeMessage() {
  const size_t available = received_.size() - taken_;
  if (available < kHeaderBytes) return std::nullopt;
  uint32_t header = 0;
  std::memcpy(&header, received_.data() + taken_, kHeaderBytes);
  const size_t size = header & ~kHasDescriptor;
  if (size > kMaxMessageBytes) {
    return absl::DataLossError(
        absl::StrCat("found a message of ", size, " bytes on a socket, expected at most ", kMaxMessageBytes));
  }
  if (available < kHeaderBytes + size) return std::nullopt;
  Message message;
  if ((header & kHasDescriptor) != 0) {
    if (descriptors_.empty()) return DescriptorLost();
    message.descriptor = std::move(descriptors_.front());
    descriptors_.pop_front();
  }
  message.bytes = received_.substr(taken_ + kHeaderBytes, size);
  taken_ += kHeaderBytes + size;
  if (taken_ == received_.size()) {
    received_.clear();
    taken_ = 0;
  }
  return message;
}

absl::StatusOr<std::optional<MessageSocket::Message>> MessageSocket::TryReceive() {
  while (true) {
    XLAD_ASSIGN_OR_RETURN(std::optional<Message> message, TakeMessage());
    if (message.has_value()) return message;
    // The next message is not complete, and the last read lost a descriptor. After more reads, the message could be
    // given the descriptor of a later one.
    if (descriptor_is_lost_) return DescriptorLost();
    received_.erase(0, std::exchange(taken_, 0));
    char buffer[64 << 10];
    iovec data{buffer, sizeof buffer};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr head{};
    head.msg_iov = &data;
    head.msg_iovlen = 1;
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd(), &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (n <= 0) return Ended(n == 0 ? "it closed the connection" : std::strerror(errno));
    descriptor_is_lost_ = (head.msg_flags & MSG_CTRUNC) != 0;
    for (cmsghdr* part = CMSG_FIRSTHDR(&head); part != nullptr; part = CMSG_NXTHDR(&head, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part), sizeof descriptor);
      descriptors_.emplace_back(descriptor);
    }
    received_.append(buffer, n);
  }
}

absl::StatusOr<MessageSocket::Message> MessageSocket::Receive() {
  while (true) {
    XLAD_ASSIGN_OR_RETURN(std::optional<Message> message, TryReceive());
    if (message.has_value()) return *std::move(message);
    Wait(fd(), POLLIN);
  }
}

}  // namespace xlad
