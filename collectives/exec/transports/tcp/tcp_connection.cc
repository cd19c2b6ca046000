#include "collectives/exec/transports/tcp/tcp_connection.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "collectives/exec/short_slices.h"

namespace xlad::collectives {
namespace {

// Frames with payloads of at most this size are assembled in memory and written at once.
constexpr int64_t kJoinBelowBytes = 16 * 1024;

// Reads bytes and discards them.
absl::Status Drop(Connection* connection, uint64_t bytes) {
  std::vector<std::byte> dropped(std::min<uint64_t>(bytes, 64 << 10));
  while (bytes > 0) {
    const absl::Span<std::byte> next = absl::MakeSpan(dropped).first(std::min<uint64_t>(bytes, dropped.size()));
    XLAD_ASSIGN_OR_RETURN(const size_t n, connection->Read(next));
    bytes -= n;
  }
  return absl::OkStatus();
}

}  // namespace

class TcpConnection::Outbox final : public SendLink {
 public:
  Outbox(TcpConnection* connection, int channel) : connection_(connection), channel_(channel) {}

  absl::Status Post(const MessageHeader& header, absl::Span<const ConstPiece> pieces) override {
    TcpConnection& c = *connection_;
    const int slots = c.options_.slots;
    const auto free = [&] { return posted_ - released_.load() < slots || c.PeerHasFinished(); };
    if (!c.waiter_->Wait(*c.abort_, free)) return c.abort_->status();
    FrameHead head;
    head.channel = static_cast<uint32_t>(channel_);
    head.message = header;
    for (const ConstPiece& piece : pieces) head.bytes += piece.size();
    ++posted_;
    const absl::StatusOr<uint64_t> sent = c.SendMessage(head, pieces);
    if (sent.ok()) {
      if (*sent != 0) unsent_.emplace_back(posted_, *sent);
      return absl::OkStatus();
    }
    c.PathHasFailed(sent.status());
    // The peer may have sent the reason before it closed the connection. The reader thread reports that reason.
    if (!c.waiter_->Wait(*c.abort_, [&] { return c.PeerHasFinished(); })) return c.abort_->status();
    return absl::FailedPreconditionError(
        absl::StrCat(c.options_.peer, " has finished and takes nothing more from ", c.options_.self));
  }

  // The system or the path has copied the payloads of all messages except those in `unsent_`.
  absl::Status WaitReleased(int64_t messages) override {
    TcpConnection& c = *connection_;
    const auto is_sent = [&] {
      while (!unsent_.empty() && c.path_->IsSent(unsent_.front().second)) unsent_.pop_front();
      return unsent_.empty() || unsent_.front().first > messages;
    };
    if (unsent_.empty() || c.waiter_->Wait(*c.abort_, is_sent)) return absl::OkStatus();
    return c.abort_->status();
  }
  void Revoke() override { connection_->RevokePath(); }

  void Released(uint32_t count) { released_.fetch_add(count); }

 private:
  TcpConnection* const connection_;
  const int channel_;
  int64_t posted_ = 0;
  std::deque<std::pair<int64_t, uint64_t>> unsent_;  // The number of the message, and its number on the path.
  std::atomic<int64_t> released_ = 0;
};

class TcpConnection::Inbox final : public ReceiveLink {
 public:
  Inbox(TcpConnection* connection, int channel) : connection_(connection), channel_(channel) {}

  bool ReceivesInPlace() const override { return connection_->options_.receives_in_place; }

  void PostInto(absl::Span<std::byte> memory) override {
    std::lock_guard<std::mutex> lock(mutex_);
    // Has no effect if the message has begun to arrive, because it is then received in other memory.
    if (begun_ == taken_ && ReceivesInPlace()) posted_ = memory;
  }

  absl::StatusOr<Incoming> Next() override {
    TcpConnection& c = *connection_;
    const auto ready = [&] { return arrived_.load() > taken_ || c.PeerHasFinished(); };
    if (!c.waiter_->Wait(*c.abort_, ready)) return Withdraw(c.abort_->status());
    // The last messages of the peer may have arrived after the previous test and before the end of the peer's task.
    if (arrived_.load() == taken_) c.Pump();
    if (arrived_.load() == taken_) {
      return Withdraw(absl::FailedPreconditionError(
          absl::StrCat(c.options_.peer, " has finished and sends nothing more to ", c.options_.self)));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    posted_ = {};
    filling_ = false;
    Received& received = messages_[taken_ - released_];
    ++taken_;
    return Incoming{received.header, absl::MakeConstSpan(&received.piece, 1), std::ssize(received.piece)};
  }

  absl::Status Release() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (messages_.front().buffer.owned != nullptr) spare_.push_back(std::move(messages_.front().buffer));
      messages_.pop_front();
      ++released_;
    }
    // Releases are sent in batches, so that a frame in the other direction is not needed for every message.
    if (++unsent_releases_ >= std::max(1, connection_->options_.slots / 2)) connection_->SendReleased(this);
    return absl::OkStatus();
  }

  // Returns a frame with the releases to send now. Its count is 0 if there are too few releases for a frame.
  FrameHead TakeReleases() {
    FrameHead head;
    head.kind = FrameKind::kReleased;
    head.channel = static_cast<uint32_t>(channel_);
    if (unsent_releases_ >= std::max(1, connection_->options_.slots / 2)) {
      head.count = static_cast<uint32_t>(std::exchange(unsent_releases_, 0));
    }
    return head;
  }

  // Returns memory for a message that begins to arrive. Called by the reader thread, or by the device's thread if there
  // is a path.
  FrameBuffer TakeBuffer(size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++begun_;
      const absl::Span<std::byte> posted = std::exchange(posted_, {});
      filling_ = !posted.empty() && posted.size() == bytes;
      if (filling_) return {posted.data(), posted.size(), nullptr};
      if (!spare_.empty()) {
        FrameBuffer buffer = std::move(spare_.back());
        spare_.pop_back();
        if (buffer.capacity >= bytes) return buffer;
      }
    }
    FrameBuffer buffer;
    buffer.capacity = std::max<size_t>(bytes, 1);
    buffer.owned.reset(new (std::nothrow) std::byte[buffer.capacity]);
    buffer.data = buffer.owned.get();
    return buffer;
  }

  void Arrived(const MessageHeader& header, FrameBuffer buffer, size_t bytes) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const ConstPiece piece(buffer.data, bytes);
      messages_.push_back({header, std::move(buffer), piece});
    }
    arrived_.fetch_add(1);
  }

  // Called if a message has begun to arrive, but its rest will not arrive.
  void Dropped() { dropped_ = true; }

  bool IsFull() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::ssize(messages_) >= connection_->options_.slots;
  }

 private:
  struct Received {
    MessageHeader header;
    FrameBuffer buffer;
    ConstPiece piece;
  };

  // Ends the use of posted memory: when this returns, no thread and no library writes to it.
  absl::Status Withdraw(absl::Status status) {
    TcpConnection& c = *connection_;
    std::unique_lock<std::mutex> lock(mutex_);
    posted_ = {};
    if (!filling_) return status;
    lock.unlock();
    if (c.path_ != nullptr) {
      c.RevokePath();
    } else {
      c.waiter_->WaitRegardless([&] { return c.reader_has_ended_ || dropped_ || arrived_.load() > taken_; });
    }
    return status;
  }

  TcpConnection* const connection_;
  const int channel_;
  std::mutex mutex_;
  // The messages that are not released. It is a deque, because growing does not move its elements.
  std::deque<Received> messages_;
  std::vector<FrameBuffer> spare_;
  absl::Span<std::byte> posted_;  // The posted memory for the next message.
  bool filling_ = false;          // A message has begun to arrive in the posted memory.
  int64_t begun_ = 0;             // The number of messages that have begun to arrive.
  std::atomic<int64_t> arrived_ = 0;
  std::atomic<bool> dropped_ = false;
  int64_t taken_ = 0;  // The number of messages that Next returned. Used by the device's thread only.
  int64_t released_ = 0;
  int unsent_releases_ = 0;
};

TcpConnection::TcpConnection(const Options& options, std::unique_ptr<Connection> connection, const MakePath& make_path,
                             Waiter* waiter, AbortSignal* abort)
    : options_(options), connection_(std::move(connection)), waiter_(waiter), abort_(abort) {
  if (make_path != nullptr) path_ = make_path(&received_bye_);
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
  {
    std::lock_guard<std::mutex> lock(write_mutex_);
    status = abort_frame_.empty() ? WriteLocked(head, pieces) : absl::CancelledError("the task was aborted");
  }
  if (abort_wanted_) TellAbort();
  return status;
}

absl::StatusOr<uint64_t> TcpConnection::SendMessage(const FrameHead& head, absl::Span<const ConstPiece> pieces) {
  if (path_ == nullptr) {
    XLAD_RETURN_IF_ERROR(WriteFrame(head, pieces));
    return 0;
  }
  ++frames_out_;
  return path_->Send(head, pieces);
}

// Does not wait: if there is no room now, the next Pump tries again.
void TcpConnection::SendReleased(Inbox* inbox) {
  if (path_ != nullptr) {
    releases_pending_ = !path_->CanSend();
    if (releases_pending_) return;
  }
  const FrameHead head = inbox->TakeReleases();
  // If the connection is broken, the reader thread or Pump detects and reports it.
  if (head.count > 0) SendMessage(head, {}).IgnoreError();
}

void TcpConnection::Pump() {
  // After an abort no messages are received, so all later calls fail.
  if (path_ == nullptr || path_is_revoked_ || abort_->raised()) return;
  if (releases_pending_ && path_->CanSend()) {
    std::lock_guard<std::mutex> lock(links_mutex_);
    releases_pending_ = false;
    for (const auto& [channel, inbox] : inboxes_) {
      if (!releases_pending_) SendReleased(inbox.get());
    }
  }
  if (failed_at_ns_ == 0) {
    const absl::StatusOr<Progress> progress = path_->Receive(this);
    if (progress.ok()) return waiter_->NoteProgress(*progress);
    path_status_ = progress.status();
    failed_at_ns_ = RealClock().NowNs();
  }
  if (sent_bye_ || PeerHasFinished()) return;
  // A peer that is lost may have sent its reason on the connection. That reason is the better message.
  const int64_t waited_ns = RealClock().NowNs() - failed_at_ns_;
  if (absl::IsUnavailable(path_status_) && waited_ns < options_.reason_ms * kNsPerMs) return;
  abort_->Raise({absl::Status(path_status_.code(), absl::StrCat("lost ", options_.peer, ": ", path_status_.message())),
                 options_.peer_worker});
}

// The next call of Pump reports the failure of a send, unless the peer has sent a reason.
void TcpConnection::PathHasFailed(const absl::Status& status) {
  if (path_ == nullptr || failed_at_ns_ != 0 || received_bye_) return;
  path_status_ = status;
  failed_at_ns_ = RealClock().NowNs();
}

void TcpConnection::RevokePath() {
  if (path_ == nullptr || std::exchange(path_is_revoked_, true)) return;
  path_->Revoke();
}

absl::StatusOr<FrameBuffer> TcpConnection::OnHead(const FrameHead& head) {
  Inbox* const inbox = FindInbox(static_cast<int>(head.channel));
  XLAD_RETURN_IF_ERROR(CheckMessage(head, inbox));
  FrameBuffer buffer = inbox->TakeBuffer(head.bytes);
  if (buffer.data != nullptr) return buffer;
  return absl::ResourceExhaustedError(absl::StrCat("no memory for a message of ", head.bytes, " bytes"));
}

void TcpConnection::OnFrame(const FrameHead& head, FrameBuffer payload) {
  const int channel = static_cast<int>(head.channel);
  ++frames_in_;
  if (head.kind == FrameKind::kReleased) return FindOutbox(channel)->Released(head.count);
  FindInbox(channel)->Arrived(head.message, std::move(payload), head.bytes);
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
  head.bytes = frames_out_;
  WriteFrame(head, {}).IgnoreError();
}

void TcpConnection::WaitForEnd() {
  if (reader_.joinable()) reader_.join();
}

bool TcpConnection::TellAbort() {
  abort_wanted_ = true;
  std::unique_lock<std::mutex> lock(write_mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (abort_frame_.empty()) abort_frame_ = AbortFrame(abort_->failure());
  if (abort_sent_ < abort_frame_.size()) {
    const absl::StatusOr<size_t> sent = connection_->TryWrite(AsBytes(abort_frame_).subspan(abort_sent_));
    if (!sent.ok()) return true;
    abort_sent_ += *sent;
  }
  return abort_sent_ == abort_frame_.size();
}

void TcpConnection::ReadLoop() {
  AskForShortSlices();
  const absl::Status status = ReadFrames();
  // Cancelled means that this side closed the connection, or that OnAbort has raised the peer's reason. Otherwise the
  // first thread that detects the failure names the peer.
  if (!status.ok() && !(sent_bye_ && received_bye_) && !absl::IsCancelled(status)) {
    abort_->Raise({absl::Status(status.code(), absl::StrCat("lost ", options_.peer, ": ", status.message())),
                   options_.peer_worker});
  }
  reader_has_ended_ = true;
  waiter_->Notify();
}

// Reads frames until the peer has sent the end of its task, or until an error occurs.
absl::Status TcpConnection::ReadFrames() {
  while (true) {
    FrameHead head;
    XLAD_RETURN_IF_ERROR(
        ReadFully(connection_.get(), absl::MakeSpan(reinterpret_cast<std::byte*>(&head), sizeof head)));
    if (head.magic != FrameHead::kFrameMagic || head.channel >= kMaxChannels) {
      return absl::DataLossError("found the head of a frame with a wrong magic number or channel");
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
        frames_before_bye_ = head.bytes;
        received_bye_ = true;
        waiter_->Notify();
        return absl::OkStatus();
      default:
        return absl::DataLossError(
            absl::StrCat("found a frame of kind ", static_cast<uint32_t>(head.kind), ", expected 1 to 4"));
    }
    waiter_->Notify();
  }
}

// After an abort, a message is read to its end but discarded, and posted memory is not written.
absl::Status TcpConnection::OnMessage(const FrameHead& head) {
  if (abort_->raised()) return Drop(connection_.get(), head.bytes);
  XLAD_ASSIGN_OR_RETURN(FrameBuffer buffer, OnHead(head));
  Inbox* const inbox = FindInbox(static_cast<int>(head.channel));
  absl::Span<std::byte> rest(buffer.data, head.bytes);
  while (!rest.empty() && !abort_->raised()) {
    XLAD_ASSIGN_OR_RETURN(const size_t n, connection_->Read(rest));
    rest.remove_prefix(n);
  }
  if (rest.empty()) {
    inbox->Arrived(head.message, std::move(buffer), head.bytes);
    return absl::OkStatus();
  }
  inbox->Dropped();
  waiter_->Notify();
  return Drop(connection_.get(), rest.size());
}

absl::Status TcpConnection::CheckMessage(const FrameHead& head, Inbox* inbox) const {
  if (head.bytes > static_cast<uint64_t>(options_.max_message_bytes)) {
    return absl::DataLossError(
        absl::StrCat("found a message of ", head.bytes, " bytes, expected at most ", options_.max_message_bytes));
  }
  if (inbox->IsFull()) {
    return absl::DataLossError(absl::StrCat("found more messages on channel ", head.channel,
                                            " than it has slots, expected at most ", options_.slots));
  }
  return absl::OkStatus();
}

absl::Status TcpConnection::OnAbort(const FrameHead& head) {
  if (head.bytes > kMaxReasonBytes) {
    return absl::DataLossError(
        absl::StrCat("found an abort of ", head.bytes, " bytes, expected at most ", kMaxReasonBytes));
  }
  std::string reason(head.bytes, '\0');
  XLAD_RETURN_IF_ERROR(
      ReadFully(connection_.get(), absl::MakeSpan(reinterpret_cast<std::byte*>(reason.data()), reason.size())));
  const size_t end = reason.find('\n');
  const std::string suspect = ToUtf8(reason.substr(0, end));
  // A reason that AbortFrame has truncated may end within a character.
  const std::string text = end == std::string::npos ? "" : ToUtf8(reason.substr(end + 1));
  const bool known_code = head.count > 0 && head.count <= 16;
  const auto code = known_code ? static_cast<absl::StatusCode>(head.count) : absl::StatusCode::kUnknown;
  abort_->Raise({absl::Status(code, absl::StrCat(options_.peer, " reports: ", text)), suspect});
  return absl::CancelledError("the peer aborted");
}

}  // namespace xlad::collectives
