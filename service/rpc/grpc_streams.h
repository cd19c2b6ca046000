// The long-lived calls: the streams of workers, and the calls of clients that follow a job, or hold or await a session.
//
// The streams do not have threads. One thread handles the messages of all workers, in the order of each stream; only
// heartbeats and clock probes are handled on the threads of gRPC. The next message of a worker is read after its last
// one has been handled, so a worker cannot flood the service. Another thread makes the updates of all followers.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/serial_queue.h"
#include "service/access.h"
#include "service/engine.h"
#include "service/rpc/grpc_message_limits.h"

namespace xlad::service {

// Makes the reactor of an Attach stream, which ends if the worker's token becomes invalid. All other objects must
// outlive the stream.
grpc::ServerGenericBidiReactor* MakeWorkerStream(Engine* engine, SerialQueue* queue, MessageLimits* message_limits,
                                                 grpc::CallbackServerContext* context, const CallerAccess& access);

// The next update of a follower: a message if anything has changed, and whether the stream ends after it.
struct Update {
  std::optional<grpc::ByteBuffer> message;
  bool last = false;
};

// A client that follows a job, or holds or awaits a session. Next returns its next update. It is called on one thread,
// after each change, after each sent message and at least once per second, but not while a message is being sent.
class Follower {
 public:
  virtual ~Follower() = default;
  // An error ends the stream with this status.
  virtual absl::StatusOr<Update> Next() = 0;
};

// Sends updates to all followers, after each change and at least once per second.
class Followers {
 public:
  explicit Followers(MessageLimits* message_limits);
  ~Followers();  // All streams must have ended.
  // Called after a change. Makes the thread ask all followers for updates. Does not block.
  void OnChange();
  // Makes the reactor of a stream, which ends if the caller's token becomes invalid. When its request has been read,
  // `open` makes the follower from the request, on the followers' thread. ResourceExhausted if the caller's user has
  // kMaxOfUser streams: each may have an update in memory that the client does not take.
  grpc::ServerGenericBidiReactor* MakeStream(
      grpc::CallbackServerContext* context, const CallerAccess& access,
      std::function<absl::StatusOr<std::unique_ptr<Follower>>(const grpc::ByteBuffer& request)> open);

  static constexpr int kMaxOfUser = 1024;

 private:
  class Stream;
  void Run();
  void Wake(Stream* stream);

  MessageLimits* const message_limits_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::set<Stream*> streams_;           // All open streams.
  std::map<std::string, int> of_user_;  // The number of open streams of each user.
  std::set<Stream*> due_;               // Streams that will be asked for an update.
  std::vector<Stream*> done_;           // Streams that have ended; the thread deletes them.
  bool changed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace xlad::service
