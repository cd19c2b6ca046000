#include "worker/grpc_session_follower.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <thread>
#include <utility>

#include "proto/worker.grpc.pb.h"
#include "tensor/wire.h"
#include "worker/grpc_caller.h"

namespace xlad::worker {
namespace {

using collectives::AbortSignal;

class GrpcSessionFollower final : public SessionFollower {
 public:
  GrpcSessionFollower(const LaunchTask& launch, std::string worker_id, Callbacks callbacks)
      : session_id_(launch.job_id()),
        key_(launch.session_key()),
        worker_id_(std::move(worker_id)),
        callbacks_(std::move(callbacks)),
        caller_(std::make_shared<TokenFile>(key_)) {}

  ~GrpcSessionFollower() override { Stop(); }

  absl::Status Connect(const SessionPlace& place) override {
    XLAD_ASSIGN_OR_RETURN(const auto channel, MakeSessionChannel(place.address(), place.authority()));
    stub_ = SessionWorker::NewStub(channel);
    thread_ = std::thread([this] {
      const absl::Status status =
          caller_.Retry(&end_, [this](grpc::ClientContext* context) { return Follow(context); });
      if (!end_.raised()) callbacks_.fail(Annotate(status, "cannot read commands from the session's first worker"));
    });
    return absl::OkStatus();
  }

  void Stop() override {
    end_.Raise({absl::CancelledError("the session has ended"), ""});
    if (thread_.joinable()) thread_.join();
  }

  void Done(int64_t sequence) override {
    const std::lock_guard lock(mutex_);
    done_ = sequence;
    if (stream_ != nullptr) stream_->Write(Position());  // If Write fails, the next stream begins with the position.
  }

  absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                         AbortSignal* abort) override {
    GetArrayShardRequest request;
    request.set_session_id(session_id_);
    request.set_array(array);
    tensor::BoxToWire(box, request.mutable_box());
    const auto open = [&](grpc::ClientContext* context) { return stub_->GetArrayShard(context, request); };
    return caller_.ReadInto(out, absl::StrCat("array ", array, ", box ", box.ToString()), abort, open);
  }

  absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                          AbortSignal* abort) override {
    PutArrayShardRequest header;
    header.set_session_id(session_id_);
    header.set_array(array);
    tensor::BoxToWire(box, header.mutable_box());
    PutArrayShardResponse response;
    return caller_.Write(header, bytes, abort,
                         [&](grpc::ClientContext* context) { return stub_->PutArrayShard(context, &response); });
  }

 private:
  using Stream = grpc::ClientReaderWriter<FollowSessionRequest, SessionCommand>;

  FollowSessionRequest Position() const {
    FollowSessionRequest position;
    position.set_worker_id(worker_id_);
    position.set_received(received_);
    position.set_done(done_);
    return position;
  }

  grpc::Status Follow(grpc::ClientContext* context) {
    const std::unique_ptr<Stream> stream = stub_->Follow(context);
    {
      const std::lock_guard lock(mutex_);
      stream_ = stream.get();
      stream->Write(Position());
    }
    SessionCommand command;
    while (stream->Read(&command)) {
      {
        const std::lock_guard lock(mutex_);
        if (command.sequence() != received_ + 1) continue;  // The command was received over an earlier connection.
        ++received_;
      }
      callbacks_.deliver(command);
    }
    {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
    }
    const grpc::Status status = stream->Finish();
    return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the first worker ended the stream") : status;
  }

  const std::string session_id_, key_, worker_id_;
  const Callbacks callbacks_;
  GrpcCaller caller_;
  std::unique_ptr<SessionWorker::Stub> stub_;
  AbortSignal end_;

  std::mutex mutex_;  // Guards the members below.
  Stream* stream_ = nullptr;
  int64_t received_ = 0, done_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SessionFollower> SessionFollower::Make(const LaunchTask& launch, const std::string& worker_id,
                                                       Callbacks callbacks) {
  return std::make_unique<GrpcSessionFollower>(launch, worker_id, std::move(callbacks));
}

}  // namespace xlad::worker
