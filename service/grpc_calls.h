// The calls of the coordinator's gRPC server, as streams of messages for handlers that know nothing of gRPC.
//
// All calls arrive through gRPC's generic callback API, because it hands over a call before its first message is read:
// a call is authenticated first, and without a token nothing of its body is kept in memory. A handler runs on a thread
// of the pool that its method names, and may block there. The first message is read before the handler gets a thread,
// and a client that stalls later is cut off, so that slow clients hold no threads. The number of threads depends
// neither on the number of connections nor on that of calls.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "service/access.h"

namespace google::protobuf {
class MessageLite;
}

namespace xlad::service {

// Used by one handler, on one thread.
class CallStream {
 public:
  virtual ~CallStream() = default;
  // Reads the next message of the client. Returns false if the client has finished its messages. Cancelled if the
  // client has gone, DeadlineExceeded if it sends nothing for 30 s, InvalidArgument if the message cannot be parsed.
  virtual absl::StatusOr<bool> Read(google::protobuf::MessageLite* message) = 0;
  // Sends a message; waits while two earlier ones have not been taken. Errors as Read.
  virtual absl::Status Write(const google::protobuf::MessageLite& message) = 0;
  virtual const CallerAccess& access() const = 0;
  // NotFound unless the caller may see this job or session.
  virtual absl::Status CheckJob(const std::string& job_id) = 0;
};

// Threads that run handlers. A pool makes threads as it needs them, up to its limit, and keeps them.
class HandlerPool {
 public:
  // More than `max_waiting` handlers that wait for a thread are refused.
  HandlerPool(int max_threads, int max_waiting);
  ~HandlerPool();  // As Stop.
  // Runs `work` on a thread of the pool. False if too many wait, or after Stop.
  bool Run(std::function<void()> work);
  // Waits for the work that has begun and drops the rest. Idempotent.
  void Stop();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

using Handler = std::function<absl::Status(CallStream*)>;

struct Method {
  HandlerPool* pool = nullptr;
  int64_t max_message_bytes = 0;  // A larger message is refused.
  Handler handler;
};

// Makes the reactor of a call that is not a handler's: the streams of workers and of watchers.
using ReactorFactory =
    std::function<grpc::ServerGenericBidiReactor*(grpc::GenericCallbackServerContext*, const CallerAccess&)>;

// The client key of a job or session; NotFound if there is no such job.
using KeyOfJob = std::function<absl::StatusOr<std::string>(const std::string& job_id)>;

// By name: "SubmitJob" is a call of the coordinator's own service, "grpc.health.v1.Health/Check" one of another.
struct CallTable {
  std::map<std::string, Method> methods;
  std::map<std::string, ReactorFactory> reactors;
  KeyOfJob key_of_job;
  std::function<bool()> is_serving;
};

// NotFound unless the caller may see this job or session. Asks `key_of_job` only for callers that see only their own.
absl::Status CheckJobOf(const CallerAccess& access, const KeyOfJob& key_of_job, const std::string& job_id);

// Unavailable gets details, which it does not have if gRPC itself reports that a server cannot be reached.
grpc::Status ToGrpcStatus(const absl::Status& status);
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);
// InvalidArgument if `buffer` is larger than max_bytes or cannot be parsed.
absl::Status FromByteBuffer(const grpc::ByteBuffer& buffer, int64_t max_bytes, google::protobuf::MessageLite* message);

// Identifies callers, and passes the calls that they may make to their method. grpc.health.v1.Health/Check is answered
// to everyone; only identified callers can ask it for one service.
class CallRouter final : public grpc::CallbackGenericService {
 public:
  // `know` is called with the peer of every authenticated call: "127.0.0.1:4711" or "[::1]:4711".
  CallRouter(CallTable table, std::function<void(const std::string& peer)> know)
      : table_(std::move(table)), know_(std::move(know)) {}
  // Called once, before the server delivers calls; `control` outlives them. Without it, all calls are refused.
  void SetAccess(const AccessControl* control) { control_ = control; }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  absl::StatusOr<CallerAccess> Admit(const grpc::GenericCallbackServerContext& context, const std::string& name) const;

  const CallTable table_;
  const std::function<void(const std::string&)> know_;
  std::atomic<const AccessControl*> control_ = nullptr;
};

}  // namespace xlad::service
