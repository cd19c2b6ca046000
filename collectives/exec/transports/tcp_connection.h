// One connection between a local device and a peer device, and the links on it.
//
// If the two processes share memory, messages and releases are sent through it, and the device's thread receives them
// whenever it waits (Pump). The connection then carries only the end of the task and aborts, and detects the end of the
// peer's process.
//
// Threads: links are used by the device's thread; a reader thread belongs to the connection; the rest is thread-safe.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/network.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/transports/shared_memory.h"
#include "collectives/exec/transports/tcp_frame.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

class TcpConnection {
 public:
  struct Options {
    std::string self;  // "device 1 (worker w0, ...)"
    std::string peer;  // "device 3 (worker w2, ...)"
    std::string self_worker;
    std::string peer_worker;  // Named as the suspect if the connection breaks.
    int slots = 4;
    int64_t max_message_bytes = 0;
  };

  // Starts the reader thread. Each message wakes `waiter`. `pipe` may be null.
  TcpConnection(const Options& options, std::unique_ptr<Connection> connection, std::unique_ptr<SharedPipe> pipe,
                Waiter* waiter, AbortSignal* abort);
  ~TcpConnection();

  SendLink* OpenSend(int channel);
  ReceiveLink* OpenReceive(int channel);

  // Receives from shared memory. Called by the device's thread.
  void Pump();
  bool has_pipe() const { return pipe_ != nullptr; }

  // Tells the peer that nothing more will be sent.
  void SendBye();
  // Waits until the peer has sent the same, or the connection has ended.
  void WaitForBye();
  // Sends the reason of an abort, as far as possible without blocking, and closes the connection. Returns false if the
  // device's thread is writing; that thread then does the same when its write ends.
  bool TellAbort();
  // Closes the connection at once, even while a thread writes.
  void Cut() { connection_->Shutdown(); }

 private:
  class Outbox;
  class Inbox;

  Outbox* FindOutbox(int channel);
  Inbox* FindInbox(int channel);
  absl::Status WriteFrame(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  absl::Status WriteShared(ConstPiece bytes);
  void SendReleased(Inbox* inbox);
  absl::Status PumpFrames();
  absl::Status WriteLocked(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  void ReadLoop();
  absl::Status ReadFrames();
  absl::Status OnMessage(const FrameHead& head);
  absl::Status CheckMessage(const FrameHead& head, Inbox* inbox) const;
  absl::Status OnAbort(const FrameHead& head);

  const Options options_;
  const std::unique_ptr<Connection> connection_;
  const std::unique_ptr<SharedPipe> pipe_;
  Waiter* const waiter_;
  AbortSignal* const abort_;
  std::mutex write_mutex_;
  std::mutex links_mutex_;
  std::map<int, std::unique_ptr<Outbox>> outboxes_;
  std::map<int, std::unique_ptr<Inbox>> inboxes_;
  // Used by the device's thread only: the frame being received, the frame being sent, releases that are not sent yet.
  struct Arriving;
  std::unique_ptr<Arriving> arriving_;
  bool writing_ = false;
  bool releases_pending_ = false;
  std::atomic<bool> abort_wanted_ = false;
  std::atomic<bool> sent_bye_ = false;
  std::atomic<bool> received_bye_ = false;
  std::thread reader_;
};

}  // namespace xlad::collectives
