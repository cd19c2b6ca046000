// The calls of the coordinator's gRPC server, as streams of messages for handlers that do not depend on gRPC.
//
// All calls arrive through gRPC's generic callback API, which delivers a call before its first message is read. So a
// call is authenticated first, and the body of a call without a valid token is never kept in memory. A handler runs on
// a thread of the pool that its method names, and may block there. The first message is read before the handler gets a
// thread. A client that does not send a whole message in 30 s, or does not take one, is disconnected, so a stalled
// client occupies memory and a thread for at most that long. The number of threads does not depend on the number of
// connections or calls.
#pragma once

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "proto/parsed_size.h"
#include "service/access.h"
#include "service/rpc/grpc_message_limits.h"
#include "service/rpc/validate.h"

namespace google::protobuf {
class Message;
class MessageLite;
}  // namespace google::protobuf

namespace xlad::service {

// The time in which each message of a client must arrive, and each message to it must be sent.
inline constexpr std::chrono::seconds kStallLimit{30};

// The messages of one call. Used by one handler, on one thread.
class CallStream {
 public:
  virtual ~CallStream() = default;
  // Reads the next message of the client, into the same object as the messages before. Frees the last message if the
  // next one has not arrived yet, because a slow client may take long to send it. Returns false if the client will send
  // no more messages. Cancelled if the client has disconnected, DeadlineExceeded if it does not send a message for
  // 30 s, InvalidArgument if the message is too large or cannot be parsed, Unauthenticated if the caller's token has
  // become invalid, Unavailable if the messages that are being handled take too much memory.
  virtual absl::StatusOr<bool> Read(google::protobuf::Message* message) = 0;
  // From now on, the next message is read while the handler handles one. Until the handler has finished, the next
  // message can occupy memory. Therefore a handler may call this only if it then waits for nothing except the disk or a
  // worker that receives the messages.
  virtual void ReadAhead() = 0;
  // The message is sent at the next Write or when the handler returns OK, and is dropped if the handler returns an
  // error. Waits while an earlier message is still being sent. Returns Cancelled, DeadlineExceeded and
  // Unauthenticated as Read does.
  virtual absl::Status Write(const google::protobuf::MessageLite& message) = 0;
  // Cancelled if the client has disconnected, Unauthenticated if the caller's token has become invalid. Long work that
  // reads and writes no messages must call it regularly, so that it ends with its client.
  virtual absl::Status CheckClient() = 0;
  // Calls `on_gone` once when the client disconnects, or at once if it has disconnected. `on_gone` must not block and
  // must not call this object; it may run on another thread. Null removes the function, which then no longer runs. A
  // handler that waits for another server needs it, and must remove it before it returns.
  virtual void SetOnGone(std::function<void()> on_gone) = 0;
  virtual const CallerAccess& access() const = 0;
  // NotFound unless the caller may see this job or session.
  virtual absl::Status CheckJob(const std::string& job_id) = 0;
};

// Returns CheckClient as a function, for work that must end with its client but does not know the call. `stream` must
// outlive the function.
inline std::function<absl::Status()> ClientCheck(CallStream* stream) {
  return [stream] { return stream->CheckClient(); };
}

// Reads the first message of a call and validates it. InvalidArgument if the call has no message or it is not valid.
// NotFound if the message names a job or session that the caller may not see.
template <typename Request>
absl::StatusOr<Request> ReadRequest(CallStream* stream) {
  Request request;
  XLAD_ASSIGN_OR_RETURN(const bool found, stream->Read(&request));
  if (!found) return absl::InvalidArgumentError("found a call without a request, expected one");
  XLAD_RETURN_IF_ERROR(Validate(request));
  // A request may only name a job or session that the caller may see.
  if constexpr (requires { request.job_id(); }) XLAD_RETURN_IF_ERROR(stream->CheckJob(request.job_id()));
  if constexpr (requires { request.session_id(); }) XLAD_RETURN_IF_ERROR(stream->CheckJob(request.session_id()));
  return request;
}

// Threads that run handlers. A pool starts threads when it needs them, up to its limit, and keeps them.
class HandlerPool {
 public:
  // At most `max_waiting` handlers wait for a thread; Run refuses any others.
  HandlerPool(int max_threads, int max_waiting);
  ~HandlerPool();  // Calls Stop.
  // Runs `work` on a thread of the pool. The handlers of one user occupy at most half of the threads that the handlers
  // of others do not occupy, but may always occupy one. Six users can therefore occupy all of 32 threads. The same
  // applies to the waiting places. An empty user has no such limit. Otherwise the handler that has waited longest runs
  // first. Returns false if too many handlers wait, or after Stop.
  bool Run(std::function<void()> work, const std::string& user = "");
  // Waits for the work that has begun and drops all other work. Idempotent.
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

// Makes the reactor of a call without a handler: the streams of workers, and the calls of clients that follow a job or
// a session, or wait for a session.
using ReactorFactory =
    std::function<grpc::ServerGenericBidiReactor*(grpc::GenericCallbackServerContext*, const CallerAccess&)>;

// Returns the client key of a job or session. NotFound if it does not exist.
using KeyOfJob = std::function<absl::StatusOr<std::string>(const std::string& job_id)>;

// Calls by name: "SubmitJob" for a call of the coordinator's own service, "grpc.health.v1.Health/Check" for a call of
// another service.
struct CallTable {
  std::map<std::string, Method> methods;
  std::map<std::string, ReactorFactory> reactors;
  KeyOfJob key_of_job;
  std::function<bool()> is_serving;
  MessageLimits* message_limits = nullptr;
};

// The user of a caller; for the owner of the coordinator, who has no user, a text that names the owner.
const std::string& UserOf(const security::Caller& caller);

// NotFound unless the caller may see this job or session. Calls `key_of_job` only if the caller may see only its own
// jobs.
absl::Status CheckJobOf(const CallerAccess& access, const KeyOfJob& key_of_job, const std::string& job_id);

// Converts a status. An Unavailable status gets details, which distinguish it from the Unavailable that gRPC itself
// returns if it cannot reach a server.
grpc::Status ToGrpcStatus(const absl::Status& status);
// Makes the reactor of a call that ends with this status. Its messages are not read.
grpc::ServerGenericBidiReactor* NewRefusedCall(const grpc::Status& status);
grpc::ByteBuffer ToByteBuffer(const google::protobuf::MessageLite& message);
// InvalidArgument if `buffer` is larger than max_bytes, would take too much memory when parsed, or cannot be parsed.
absl::Status FromByteBuffer(const grpc::ByteBuffer& buffer, int64_t max_bytes, google::protobuf::MessageLite* message,
                            const ParseLimits& limits = {});

// Identifies callers, and passes each permitted call to its handler or reactor. Every caller gets an answer to
// grpc.health.v1.Health/Check, but only identified callers can ask for the health of one service.
class CallRouter final : public grpc::CallbackGenericService {
 public:
  // Calls `on_authenticated` with the peer of every call that exists and is permitted, "127.0.0.1:4711" or
  // "[::1]:4711", and with the user who makes it.
  using OnAuthenticated = std::function<void(const std::string& peer, const std::string& user)>;
  CallRouter(CallTable table, OnAuthenticated on_authenticated)
      : table_(std::move(table)), on_authenticated_(std::move(on_authenticated)) {}
  // Must be called once. Until then, all calls except grpc.health.v1.Health/Check are refused. `control` must outlive
  // the calls.
  void SetAccess(AccessControl* control) { control_ = control; }
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  absl::StatusOr<CallerAccess> Admit(const grpc::GenericCallbackServerContext& context, const std::string& name) const;

  const CallTable table_;
  const OnAuthenticated on_authenticated_;
  std::atomic<AccessControl*> control_ = nullptr;
};

}  // namespace xlad::service
