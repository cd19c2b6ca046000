// One connection between a device here and a device there, and the links on it.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/network.h"
#include "collectives/exec/transport.h"
#include "collectives/exec/transports/tcp_frame.h"
#include "collectives/exec/waiter.h"

namespace xlad::collectives {

class TcpConnection {
 public:
  struct Options {
    std::string self;  // "device 1 (worker w0, ...)"
    std::string peer;  // "device 3 (worker w2, ...)"
    std::string self_worker;
    std::string peer_worker;  // Blamed where the connection breaks.
    int slots = 4;
    int64_t max_message_bytes = 0;
  };

  // Starts reading. `waiter` is woken for each message.
  TcpConnection(const Options& options, std::unique_ptr<Connection> connection, Waiter* waiter, AbortSignal* abort);
  ~TcpConnection();

  SendLink* OpenSend(int channel);
  ReceiveLink* OpenReceive(int channel);

  // Nothing more will be sent.
  void SayBye();
  // Until the peer has said so too, or the connection has ended.
  void WaitForBye();
  // Tells the peer why, as far as that goes without waiting, and ends the connection. Never blocks. False where the
  // device's thread is writing: then it does so when it is done.
  bool TellAbort();
  // Ends the connection whatever anyone does.
  void Cut() { connection_->Shutdown(); }

 private:
  class Outbox;
  class Inbox;

  Outbox* FindOutbox(int channel);
  Inbox* FindInbox(int channel);
  absl::Status WriteFrame(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  absl::Status WriteLocked(const FrameHead& head, absl::Span<const ConstPiece> pieces);
  void ReadLoop();
  absl::Status ReadFrames();
  absl::Status OnMessage(const FrameHead& head);
  absl::Status OnAbort(const FrameHead& head);

  const Options options_;
  const std::unique_ptr<Connection> connection_;
  Waiter* const waiter_;
  AbortSignal* const abort_;
  std::mutex write_mutex_;
  std::mutex links_mutex_;
  std::map<int, std::unique_ptr<Outbox>> outboxes_;
  std::map<int, std::unique_ptr<Inbox>> inboxes_;
  std::atomic<bool> abort_wanted_ = false;
  std::atomic<bool> said_bye_ = false;
  std::atomic<bool> heard_bye_ = false;
  std::thread reader_;
};

}  // namespace xlad::collectives
