// One connection between a device here and a device there, and the links on it.
//
// Where the two share memory, messages and what releases them go through it, and the device's own thread takes them out
// whenever it waits (Pump); the connection then only says good-bye, tells of aborts, and ends when a process does.
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
    std::string peer_worker;  // Blamed where the connection breaks.
    int slots = 4;
    int64_t max_message_bytes = 0;
  };

  // Starts reading. `waiter` is woken for each message. `pipe` may be null.
  TcpConnection(const Options& options, std::unique_ptr<Connection> connection, std::unique_ptr<SharedPipe> pipe,
                Waiter* waiter, AbortSignal* abort);
  ~TcpConnection();

  SendLink* OpenSend(int channel);
  ReceiveLink* OpenReceive(int channel);

  // Takes what has come through shared memory. By the device's thread.
  void Pump();
  bool has_pipe() const { return pipe_ != nullptr; }

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
  absl::Status WriteShared(ConstPiece bytes);
  void TellReleased(Inbox* inbox);
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
  // The device thread's own: the frame that is coming in, the one that is going out, releases that are to be told.
  struct Arriving;
  std::unique_ptr<Arriving> arriving_;
  bool writing_ = false;
  bool releases_wait_ = false;
  std::atomic<bool> abort_wanted_ = false;
  std::atomic<bool> said_bye_ = false;
  std::atomic<bool> heard_bye_ = false;
  std::thread reader_;
};

}  // namespace xlad::collectives
