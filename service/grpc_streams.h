// The streams that stay open: of workers, and of clients that follow a job or hold a session.
//
// None of them has a thread. Messages of all workers are handled by one thread, in the order of each stream; a worker's
// next message is read when its last one has been handled, so that a worker cannot flood the service. Another thread
// makes the updates of all followers.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "service/engine.h"

namespace xlad::service {

// Runs functions one after the other on a thread of its own.
class SerialQueue {
 public:
  SerialQueue();
  ~SerialQueue();  // Runs what is queued, then ends.
  void Push(std::function<void()> work);

 private:
  void Run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

// Makes the reactor of an Attach stream. `queue` and `engine` outlive the stream.
grpc::ServerGenericBidiReactor* MakeWorkerStream(Engine* engine, SerialQueue* queue,
                                                 grpc::CallbackServerContext* context);

// What a follower is sent: a message, if anything has changed, and whether the stream ends with it.
struct Update {
  std::optional<grpc::ByteBuffer> message;
  bool last = false;
};

// One follower: makes its next update. Called on one thread, after each change and after each message that was sent,
// never while a message is still being sent.
class Follower {
 public:
  virtual ~Follower() = default;
  virtual absl::StatusOr<Update> Next() = 0;
};

// Sends updates to all followers, after each change.
class Followers {
 public:
  Followers();
  ~Followers();  // All streams must have ended.
  // Something changed: asks the followers soon. Does not block.
  void OnChange();
  // Makes the reactor of a stream whose request is read first and from which `open` makes the follower; `open` runs on
  // the thread of the followers.
  grpc::ServerGenericBidiReactor* MakeStream(
      std::function<absl::StatusOr<std::unique_ptr<Follower>>(const grpc::ByteBuffer& request)> open);

 private:
  class Stream;
  void Run();
  void Wake(Stream* stream);

  std::mutex mutex_;
  std::condition_variable woken_;
  std::set<Stream*> streams_;  // All open ones.
  std::set<Stream*> due_;      // Those to be asked for an update.
  std::vector<Stream*> done_;  // Those that have ended, to be deleted by the thread.
  bool changed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace xlad::service
