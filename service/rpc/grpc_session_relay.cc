#include "service/rpc/grpc_session_relay.h"

#include <memory>
#include <mutex>
#include <utility>

#include "base/net/grpc_channel.h"
#include "proto/worker.grpc.pb.h"

namespace xlad::service {
namespace {

constexpr size_t kMaxChannels = 64;

// Connections to the first workers of sessions. Thread-safe.
class Relay {
 public:
  explicit Relay(Engine* engine) : engine_(engine) {}

  // Waits until the session runs, calls `work` with a stub for its first worker and a context that has the session's
  // key, and returns its status. The call of the worker is canceled when the client disconnects, because the worker may
  // answer late or never.
  template <typename Work>
  absl::Status Call(const std::string& session_id, CallStream* stream, const Work& work) {
    XLAD_ASSIGN_OR_RETURN(const LocateSessionResponse place, engine_->AwaitSession(session_id, ClientCheck(stream)));
    XLAD_ASSIGN_OR_RETURN(const std::shared_ptr<SessionWorker::Stub> stub, StubFor(place));
    grpc::ClientContext context;
    PrepareCall(&context, place.key(), /*timeout_ms=*/0);
    stream->SetOnGone([&context] { context.TryCancel(); });
    const grpc::Status status = work(stub.get(), &context);
    stream->SetOnGone(nullptr);
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

 private:
  absl::StatusOr<std::shared_ptr<SessionWorker::Stub>> StubFor(const LocateSessionResponse& place) {
    const std::lock_guard lock(mutex_);
    if (stubs_.size() > kMaxChannels) stubs_.clear();  // Running calls keep their stubs.
    std::shared_ptr<SessionWorker::Stub>& stub = stubs_[{place.address(), place.authority()}];
    if (stub != nullptr) return stub;
    XLAD_ASSIGN_OR_RETURN(const auto channel, MakeSessionChannel(place.address(), place.authority()));
    return stub = SessionWorker::NewStub(channel);
  }

  Engine* const engine_;
  std::mutex mutex_;
  // By address and authority.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<SessionWorker::Stub>> stubs_;
};

template <typename Request, typename Response>
Handler Unary(std::shared_ptr<Relay> relay,
              grpc::Status (SessionWorker::Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
  return [relay, method](CallStream* stream) -> absl::Status {
    XLAD_ASSIGN_OR_RETURN(const Request request, ReadRequest<Request>(stream));
    Response response;
    const auto call = [&](SessionWorker::Stub* stub, grpc::ClientContext* context) {
      return (stub->*method)(context, request, &response);
    };
    XLAD_RETURN_IF_ERROR(relay->Call(request.session_id(), stream, call));
    return stream->Write(response);
  };
}

absl::Status PutArray(Relay* relay, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(PutArrayRequest request, ReadRequest<PutArrayRequest>(stream));
  PutArrayResponse response;
  absl::Status read;  // The status of reading the client's messages.
  const std::string session_id = request.session_id();
  const auto put = [&](SessionWorker::Stub* stub, grpc::ClientContext* context) {
    const auto writer = stub->PutArray(context, &response);
    stream->ReadAhead();  // The session runs, so its worker takes the messages.
    for (bool more = true; more && writer->Write(request);) {
      const absl::StatusOr<bool> found = stream->Read(&request);
      read = found.status();
      more = found.value_or(false);
    }
    if (!read.ok()) context->TryCancel();
    writer->WritesDone();
    return writer->Finish();
  };
  const absl::Status status = relay->Call(session_id, stream, put);
  XLAD_RETURN_IF_ERROR(read);
  XLAD_RETURN_IF_ERROR(status);
  return stream->Write(response);
}

absl::Status GetArray(Relay* relay, CallStream* stream) {
  XLAD_ASSIGN_OR_RETURN(const GetArrayRequest request, ReadRequest<GetArrayRequest>(stream));
  absl::Status written;
  const absl::Status status =
      relay->Call(request.session_id(), stream, [&](SessionWorker::Stub* stub, grpc::ClientContext* context) {
        const auto reader = stub->GetArray(context, request);
        Chunk chunk;
        while (written.ok() && reader->Read(&chunk)) written = stream->Write(chunk);
        if (!written.ok()) context->TryCancel();
        return reader->Finish();
      });
  XLAD_RETURN_IF_ERROR(written);
  return status;
}

}  // namespace

std::map<std::string, Handler> SessionRelays(Engine* engine) {
  const auto relay = std::make_shared<Relay>(engine);
  return {
      {"AddProgram", Unary(relay, &SessionWorker::Stub::AddProgram)},
      {"CallProgram", Unary(relay, &SessionWorker::Stub::CallProgram)},
      {"FreeArrays", Unary(relay, &SessionWorker::Stub::FreeArrays)},
      {"PutArray", [relay](CallStream* stream) { return PutArray(relay.get(), stream); }},
      {"GetArray", [relay](CallStream* stream) { return GetArray(relay.get(), stream); }},
  };
}

}  // namespace xlad::service
