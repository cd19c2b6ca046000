#include "collectives/exec/transports/tcp_connection.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace xlad::collectives {
namespace {

// Smaller frames are assembled in memory and written at once.
constexpr int64_t kJoinBelowBytes = 16 * 1024;

struct Buffer {
  std::unique_ptr<std::byte[]> data;
  size_t capacity = 0;
};

}  // namespace

// The progress of the frame that is being received from shared memory.
struct TcpConnection::Arriving {
  FrameHead head;
  size_t head_bytes = 0;
  Inbox* inbox = nullptr;
  Buffer buffer;
  size_t bytes = 0;
};

class TcpConnection::Outbox final : public SendLink {
 public:
  Outbox(TcpConnection* connection, int channel) : connection_(connection), channel_(channel) {}

  absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) override {
    TcpConnection& c = *connection_;
    const int slots = c.options_.slots;
    if (!c.waiter_->Wait(*c.abort_, [&] { return posted_ - released_.load() < slots || c.received_bye_.load(); })) {
      return c.abort_->status();
    }
    FrameHead head;
    head.channel = static_cast<uint32_t>(channel_);
    head.message = header;
    for (const ConstPiece& piece : pieces) head.bytes += piece.size();
    ++posted_;
    if (c.WriteFrame(head, pieces).ok()) return absl::OkStatus();
    // The reader thread reports the reason, which the peer may have sent before it closed.
    if (!c.waiter_->Wait(*c.abort_, [&] { return c.received_bye_.load(); })) return c.abort_->status();
    return absl::FailedPreconditionError(
        absl::StrCat(c.options_.peer, " has finished and takes nothing more from ", c.options_.self));
  }

  // The system has copied the payload.
  absl::Status WaitReleased(int64_t) override { return absl::OkStatus(); }
  void Revoke() override {}

  void Released(uint32_t count) { released_.fetch_add(count); }

 private:
  TcpConnection* const connection_;
  const int channel_;
  int64_t posted_ = 0;
  std::atomic<int64_t> released_ = 0;
};

class TcpConnection::Inbox final : public ReceiveLink {
 public:
  Inbox(TcpConnection* connection, int channel) : connection_(connection), channel_(channel) {}

  absl::StatusOr<Incoming> Next() override {
    TcpConnection& c = *connection_;
    const auto ready = [&] { return arrived_.load() > taken_ || c.received_bye_.load(); };
    if (!c.waiter_->Wait(*c.abort_, ready)) return c.abort_->status();
    // The last messages of the peer may have arrived after the previous test and before the end of its task.
    if (arrived_.load() == taken_) c.Pump();
    if (arrived_.load() == taken_) {
      return absl::FailedPreconditionError(
          absl::StrCat(c.options_.peer, " has finished and sends nothing more to ", c.options_.self));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    Received& received = messages_[taken_ - released_];
    ++taken_;
    return Incoming{received.header, absl::MakeConstSpan(&received.piece, 1),
                    std::ssize(received.piece)};
  }

  absl::Status Release() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      spare_.push_back(std::move(messages_.front().buffer));
      messages_.pop_front();
      ++released_;
    }
    // Sent in batches, so that not every message needs a frame in the other direction.
    if (++unsent_releases_ >= std::max(1, connection_->options_.slots / 2)) connection_->SendReleased(this);
    return absl::OkStatus();
  }

  // Returns the number of releases to send now; 0 if there are too few for a frame.
  FrameHead TakeReleases() {
    FrameHead head;
    head.kind = FrameKind::kReleased;
    head.channel = static_cast<uint32_t>(channel_);
    if (unsent_releases_ >= std::max(1, connection_->options_.slots / 2)) {
      head.count = static_cast<uint32_t>(std::exchange(unsent_releases_, 0));
    }
    return head;
  }

  // Called by the reader thread.
  Buffer TakeBuffer(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!spare_.empty()) {
        Buffer buffer = std::move(spare_.back());
        spare_.pop_back();
        if (buffer.capacity >= bytes) return buffer;
      }
    }
    const size_t capacity = std::max<size_t>(bytes, 1);
    return {std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[capacity]), capacity};
  }

  void Arrived(const MessageHeader& header, Buffer buffer, size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const ConstPiece piece(buffer.data.get(), bytes);
      messages_.push_back({header, std::move(buffer), piece});
    }
    arrived_.fetch_add(1);
  }

  bool IsFull() {
    std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(messages_.size()) >= connection_->options_.slots;
  }

 private:
  struct Received {
    MessageHeader header;
    Buffer buffer;
    ConstPiece piece;
  };

  TcpConnection* const connection_;
  const int channel_;
  std::mutex mutex_;
  // Messages that are not released. A deque, because growing does not move its elements.
  std::deque<Received> messages_;
  std::vector<Buffer> spare_;
  std::atomic<int64_t> arrived_ = 0;
  int64_t taken_ = 0;  // Used by the device's thread only.
  int64_t released_ = 0;
  int unsent_releases_ = 0;
};

TcpConnection::TcpConnection(const Options& options, std::unique_ptr<Connection> connection,
                             std::unique_ptr<SharedPipe> pipe, Waiter* waiter, AbortSignal* abort)
    : options_(options),
      connection_(std::move(connection)),
      pipe_(std::move(pipe)),
      waiter_(waiter),
      abort_(abort),
      arriving_(std::make_unique<Arriving>()) {
  reader_ = std::thread([this] { ReadLoop(); });
}

TcpConnection::~TcpConnection() {
  connection_->Shutdown();
  if (reader_.joinable()) reader_.join();
}

TcpConnection::Outbox* TcpConnection::FindOutbox(int channel) {
  std::lock_guard<std::mutex> lock(links_mutex_);
  std::unique_ptr<Outbox>& outbox = outboxes_[channel];
  if (outbox == nullptr) outbox = std::make_unique<Outbox>(this, channel);
  return outbox.get();
}

TcpConnection::Inbox* TcpConnection::FindInbox(int channel) {
  std::lock_guard<std::mutex> lock(links_mutex_);
  std::unique_ptr<Inbox>& inbox = inboxes_[channel];
  if (inbox == nullptr) inbox = std::make_unique<Inbox>(this, channel);
  return inbox.get();
}

SendLink* TcpConnection::OpenSend(int channel) { return FindOutbox(channel); }
ReceiveLink* TcpConnection::OpenReceive(int channel) { return FindInbox(channel); }

absl::Status TcpConnection::WriteFrame(const FrameHead& head, absl::Span<const ConstPiece> pieces) {
  absl::Status status;
  if (pipe_ != nullptr && (head.kind == FrameKind::kMessage || head.kind == FrameKind::kReleased)) {
    writing_ = true;
    status = WriteShared(ConstPiece(reinterpret_cast<const std::byte*>(&head), sizeof head));
    for (const ConstPiece& piece : pieces) {
      if (status.ok()) status = WriteShared(piece);
    }
    writing_ = false;
    pipe_->NotifyPeer();
    return status;
  }
  {
    std::lock_guard<std::mutex> lock(write_mutex_);
    status = WriteLocked(head, pieces);
  }
  if (abort_wanted_) TellAbort();
  return status;
}

// Waits for room in the ring. Receives meanwhile, because the peer may be waiting for room too.
absl::Status TcpConnection::WriteShared(ConstPiece bytes) {
  while (true) {
    XLAD_ASSIGN_OR_RETURN(const size_t written, pipe_->Write(bytes));
    bytes.remove_prefix(written);
    if (bytes.empty()) return absl::OkStatus();
    pipe_->NotifyPeer();
    pipe_->WantRoom(true);
    const bool go_on = waiter_->Wait(*abort_, [&] {
      const absl::StatusOr<size_t> room = pipe_->Room();
      return !room.ok() || *room > 0 || received_bye_.load();
    });
    pipe_->WantRoom(false);
    if (!go_on) return abort_->status();
    if (received_bye_) return absl::UnavailableError("the peer has finished");
  }
}

// Never waits: if there is no room now, the next Pump tries again.
void TcpConnection::SendReleased(Inbox* inbox) {
  if (pipe_ != nullptr) {
    const absl::StatusOr<size_t> room = pipe_->Room();
    releases_pending_ = writing_ || !room.ok() || *room < sizeof(FrameHead);
    if (releases_pending_) return;
  }
  const FrameHead head = inbox->TakeReleases();
  // The reader thread detects and reports a broken connection.
  if (head.count > 0) WriteFrame(head, {}).IgnoreError();
}

void TcpConnection::Pump() {
  if (pipe_ == nullptr) return;
  if (releases_pending_ && !writing_) {
    std::lock_guard<std::mutex> lock(links_mutex_);
    releases_pending_ = false;
    for (const auto& [channel, inbox] : inboxes_) {
      if (!releases_pending_) SendReleased(inbox.get());
    }
  }
  const absl::Status status = PumpFrames();
  if (status.ok()) return;
  abort_->Raise({absl::Status(status.code(), absl::StrCat("lost ", options_.peer, ": ", status.message())),
                 options_.peer_worker});
}

absl::Status TcpConnection::PumpFrames() {
  while (!abort_->raised()) {
    XLAD_ASSIGN_OR_RETURN(size_t there, pipe_->Readable());
    if (there == 0) return absl::OkStatus();
    Arriving& a = *arriving_;
    if (a.head_bytes < sizeof a.head) {
      std::byte* const head = reinterpret_cast<std::byte*>(&a.head);
      XLAD_ASSIGN_OR_RETURN(const size_t n, pipe_->Read({head + a.head_bytes, sizeof a.head - a.head_bytes}));
      a.head_bytes += n;
      if (a.head_bytes < sizeof a.head) continue;
      if (a.head.magic != FrameHead::kFrameMagic || a.head.channel >= kMaxChannels ||
          (a.head.kind != FrameKind::kMessage && a.head.kind != FrameKind::kReleased)) {
        return absl::DataLossError("found bytes in shared memory that do not start a frame");
      }
      if (a.head.kind == FrameKind::kMessage) {
        a.inbox = FindInbox(static_cast<int>(a.head.channel));
        XLAD_RETURN_IF_ERROR(CheckMessage(a.head, a.inbox));
        a.buffer = a.inbox->TakeBuffer(a.head.bytes);
        if (a.buffer.data == nullptr) {
          return absl::ResourceExhaustedError(absl::StrCat("no memory for a message of ", a.head.bytes, " bytes"));
        }
      }
    } else {
      XLAD_ASSIGN_OR_RETURN(const size_t n, pipe_->Read({a.buffer.data.get() + a.bytes, a.head.bytes - a.bytes}));
      a.bytes += n;
    }
    if (a.head.kind == FrameKind::kReleased) {
      FindOutbox(static_cast<int>(a.head.channel))->Released(a.head.count);
    } else if (a.bytes == a.head.bytes) {
      a.inbox->Arrived(a.head.message, std::move(a.buffer), a.bytes);
    } else {
      continue;
    }
    a = Arriving();
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::WriteLocked(const FrameHead& head, absl::Span<const ConstPiece> pieces) {
  const ConstPiece start(reinterpret_cast<const std::byte*>(&head), sizeof head);
  if (static_cast<int64_t>(head.bytes) <= kJoinBelowBytes) {
    std::byte joined[sizeof head + kJoinBelowBytes];
    size_t at = sizeof head;
    std::memcpy(joined, &head, sizeof head);
    for (const ConstPiece& piece : pieces) {
      if (!piece.empty()) std::memcpy(joined + at, piece.data(), piece.size());
      at += piece.size();
    }
    return connection_->Write(ConstPiece(joined, at));
  }
  XLAD_RETURN_IF_ERROR(connection_->Write(start));
  for (const ConstPiece& piece : pieces) XLAD_RETURN_IF_ERROR(connection_->Write(piece));
  return absl::OkStatus();
}

void TcpConnection::SendBye() {
  if (sent_bye_.exchange(true)) return;
  FrameHead head;
  head.kind = FrameKind::kBye;
  WriteFrame(head, {}).IgnoreError();
}

void TcpConnection::WaitForBye() {
  if (reader_.joinable()) reader_.join();
}

bool TcpConnection::TellAbort() {
  abort_wanted_ = true;
  std::unique_lock<std::mutex> lock(write_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  connection_->TryWrite(AsBytes(AbortFrame(abort_->failure())));
  connection_->Shutdown();
  return true;
}

void TcpConnection::ReadLoop() {
  const absl::Status status = ReadFrames();
  if (status.ok() || (sent_bye_ && received_bye_)) return;
  // Cancelled means that this side closed it. Otherwise the first thread that detects the failure names the peer.
  if (!absl::IsCancelled(status)) {
    abort_->Raise({absl::Status(status.code(), absl::StrCat("lost ", options_.peer, ": ", status.message())),
                   options_.peer_worker});
  }
}

// Reads until both sides have sent the end of the task, or an error occurs.
absl::Status TcpConnection::ReadFrames() {
  while (true) {
    FrameHead head;
    XLAD_RETURN_IF_ERROR(
        ReadFully(connection_.get(), absl::MakeSpan(reinterpret_cast<std::byte*>(&head), sizeof head)));
    if (head.magic != FrameHead::kFrameMagic || head.channel >= kMaxChannels) {
      return absl::DataLossError("found bytes that do not start a frame");
    }
    switch (head.kind) {
      case FrameKind::kMessage:
        XLAD_RETURN_IF_ERROR(OnMessage(head));
        break;
      case FrameKind::kReleased:
        FindOutbox(static_cast<int>(head.channel))->Released(head.count);
        break;
      case FrameKind::kAbort:
        return OnAbort(head);
      case FrameKind::kBye:
        received_bye_ = true;
        waiter_->Notify();
        return absl::OkStatus();
      default:
        return absl::DataLossError(absl::StrCat("found a frame of kind ", static_cast<uint32_t>(head.kind)));
    }
    waiter_->Notify();
  }
}

absl::Status TcpConnection::OnMessage(const FrameHead& head) {
  Inbox* inbox = FindInbox(static_cast<int>(head.channel));
  XLAD_RETURN_IF_ERROR(CheckMessage(head, inbox));
  Buffer buffer = inbox->TakeBuffer(head.bytes);
  if (buffer.data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a message of ", head.bytes, " bytes"));
  }
  XLAD_RETURN_IF_ERROR(ReadFully(connection_.get(), absl::MakeSpan(buffer.data.get(), head.bytes)));
  inbox->Arrived(head.message, std::move(buffer), head.bytes);
  return absl::OkStatus();
}

absl::Status TcpConnection::CheckMessage(const FrameHead& head, Inbox* inbox) const {
  if (head.bytes > static_cast<uint64_t>(options_.max_message_bytes) || inbox->IsFull()) {
    return absl::DataLossError(absl::StrCat("found a message of ", head.bytes,
                                            " bytes or too many messages, expected at most ",
                                            options_.max_message_bytes, " bytes and ", options_.slots, " messages"));
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::OnAbort(const FrameHead& head) {
  if (head.bytes > kMaxReasonBytes) return absl::DataLossError("found an abort of too many bytes");
  std::string reason(head.bytes, '\0');
  XLAD_RETURN_IF_ERROR(
      ReadFully(connection_.get(), absl::MakeSpan(reinterpret_cast<std::byte*>(reason.data()), reason.size())));
  const size_t end = reason.find('\n');
  const std::string suspect = reason.substr(0, end);
  const std::string text = end == std::string::npos ? "" : reason.substr(end + 1);
  const bool known_code = head.count > 0 && head.count <= 16;
  const auto code = known_code ? static_cast<absl::StatusCode>(head.count) : absl::StatusCode::kUnknown;
  abort_->Raise({absl::Status(code, absl::StrCat(options_.peer, " reports: ", text)), suspect});
  return absl::CancelledError("the peer aborted");
}

}  // namespace xlad::collectives
