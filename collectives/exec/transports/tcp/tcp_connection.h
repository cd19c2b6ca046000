// One connection between a local device and a peer device, and the links on it.
//
// If there is a FramePath, messages and releases are sent through the path, and the device's thread receives them
// whenever it waits (Pump). The connection is then used only for the end of the task and for aborts, and detects the
// end of the peer's process.
//
// Threads: only the device's thread may use the links. The connection has a reader thread. All other functions are
// thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/net/network.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/transports/frame.h"
#include "collectives/exec/transports/frame_path.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

class TcpConnection final : private FrameSink {
 public:
  struct Options {
    std::string self;  // The description of the local device: "device 1 (worker w0, ...)".
    std::string peer;  // The description of the peer: "device 3 (worker w2, ...)".
    std::string self_worker;
    std::string peer_worker;  // The worker that is named as the suspect if the connection breaks.
    int slots = 4;
    int64_t max_message_bytes = 0;
    int64_t reason_ms = 0;  // See TcpOptions.
    bool receives_in_place = true;
  };

  // Makes the path of the connection. `peer_finished` becomes true when the peer has finished. If the function is null,
  // there is no path.
  using MakePath = std::function<std::unique_ptr<FramePath>(const std::atomic<bool>* peer_finished)>;
  // Starts the reader thread. Each message wakes `waiter`.
  TcpConnection(const Options& options, std::unique_ptr<Connection> connection, const MakePath& make_path,
                Waiter* waiter, AbortSignal* abort);
  ~TcpConnection() override;

  SendLink* OpenSend(int channel);
  ReceiveLink* OpenReceive(int channel);

  // Receives frames from the path. Called by the device's thread.
  void Pump();
  bool has_path() const { return path_ != nullptr; }

  // Tells the peer that no more frames will be sent.
  void SendBye();
  // Whether the peer has sent its last frame or an abort, or the connection has ended.
  bool HasEnded() const { return reader_has_ended_; }
  // Waits until HasEnded is true. If the path is that of a plugin, HasEnded must already be true, because a plugin must
  // be pumped during the wait.
  void WaitForEnd();
  // Sends the reason of an abort, as far as possible without blocking, and nothing after it. Returns true if the whole
  // reason is sent or the connection is broken; otherwise TellAbort must be called again. The reader continues to read
  // frames, and drops them, until the peer's last frame: if a connection is closed with unread data, the system drops
  // the reason.
  bool TellAbort();
  // The connection that carries the frames. Its Shutdown closes it at once, even while a thread writes.
  Connection& stream() { return *connection_; }

 private:
  class Outbox;
  class Inbox;

  Outbox* FindOutbox(int channel);
  Inbox* FindInbox(int channel);
  absl::Status WriteFrame(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  absl::StatusOr<uint64_t> SendMessage(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  void SendReleased(Inbox* inbox);
  absl::StatusOr<FrameBuffer> OnHead(const FrameHead& head) override;
  void OnFrame(const FrameHead& head, FrameBuffer payload) override;
  bool PeerHasFinished() const { return received_bye_ && (path_ == nullptr || frames_in_ >= frames_before_bye_); }
  void PathHasFailed(const absl::Status& status);
  void RevokePath();
  absl::Status WriteLocked(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  void ReadLoop();
  absl::Status ReadFrames();
  absl::Status OnMessage(const FrameHead& head);
  absl::Status CheckMessage(const FrameHead& head, Inbox* inbox) const;
  absl::Status OnAbort(const FrameHead& head);

  const Options options_;
  const std::unique_ptr<Connection> connection_;
  Waiter* const waiter_;
  AbortSignal* const abort_;
  std::mutex write_mutex_;
  std::mutex links_mutex_;
  std::map<int, std::unique_ptr<Outbox>> outboxes_;
  std::map<int, std::unique_ptr<Inbox>> inboxes_;
  // Used by the device's thread only.
  bool releases_pending_ = false;  // Some releases could not be sent yet.
  bool path_is_revoked_ = false;
  absl::Status path_status_;
  int64_t failed_at_ns_ = 0;  // The time at which path_status_ became an error.
  uint64_t frames_in_ = 0;    // The number of frames that arrived on the path.
  std::atomic<uint64_t> frames_out_ = 0;
  uint64_t frames_before_bye_ = 0;  // The number of frames that the peer sent before its end; set before received_bye_.
  std::atomic<bool> abort_wanted_ = false;
  // Guarded by write_mutex_.
  std::string abort_frame_;  // Empty before the first byte of the frame is sent.
  size_t abort_sent_ = 0;
  std::atomic<bool> sent_bye_ = false;
  std::atomic<bool> received_bye_ = false;
  std::atomic<bool> reader_has_ended_ = false;
  std::unique_ptr<FramePath> path_;  // Null if there is no path.
  std::thread reader_;
};

}  // namespace xlad::collectives
