#include "worker/session_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/process/memory_limit.h"
#include "runtime/session_host.h"
#include "worker/grpc_session_follower.h"
#include "worker/grpc_session_server.h"

namespace xlad::worker {
namespace {

class SessionRunner final : public Runner, private runtime::SessionListener, private runtime::SessionStore {
 public:
  SessionRunner(const LaunchTask& launch, const SessionRunnerOptions& options)
      : launch_(launch), options_(options), reporter_(launch, options.reports) {}

  // No command may be delivered to an executor that is being destroyed, so the host is ended and the follower is
  // stopped first. Both are destroyed after the executor, because its threads use them.
  ~SessionRunner() override {
    if (host_ != nullptr) host_->End("its worker dropped it");
    if (follower_ != nullptr) follower_->Stop();
    reads_.Raise({absl::CancelledError("the session was dropped"), ""});
    executor_.reset();
  }

  absl::Status Start() {
    const auto& devices = launch_.devices();
    const bool is_first =
        std::any_of(devices.begin(), devices.end(), [](const LaunchRecord& record) { return record.device() == 0; });
    const auto deliver = [this](const SessionCommand& command) { executor_->Command(command); };
    const std::string& worker = options_.environment.worker_id;
    if (is_first) {
      runtime::SessionLimits limits;
      limits.host_bytes = UsableMemoryBytes() / 2;
      host_ = std::make_unique<runtime::SessionHost>(launch_.job_id(), worker, launch_.peers_size(), limits);
      const auto read = [this](const std::string& digest) { return options_.read_blob(digest, &reads_); };
      XLAD_ASSIGN_OR_RETURN(server_,
                            SessionServer::Start(options_.listen_host, AccessOf(launch_, worker), host_.get(), read));
    } else {
      const auto fail = [this](const absl::Status& status) { executor_->Abort({status, ""}); };
      follower_ = SessionFollower::Make(launch_, worker, {deliver, fail});
    }
    runtime::SessionEnvironment environment = options_.environment;
    environment.listener = this;
    environment.store = this;
    executor_ = std::make_unique<runtime::SessionExecutor>(launch_, environment);
    if (host_ != nullptr) host_->Begin(deliver);
    return absl::OkStatus();
  }

  void On(const CoordinatorMessage& message) override {
    if (!message.has_start() || follower_ == nullptr || std::exchange(started_, true)) return;
    absl::Status status = absl::InternalError("the command to start the session has no address of its first worker");
    if (message.start().places_size() > 0) status = follower_->Connect(message.start().places(0));
    if (!status.ok()) Abort({status, ""});
  }

  void Abort(const collectives::Failure& failure) override {
    if (host_ != nullptr) host_->End(std::string(failure.status.message()));
    executor_->Abort(failure);
  }
  int64_t finished_steps() const override { return executor_->done(); }

 private:
  // --- SessionListener
  void OnReady() override {
    TaskReady ready;
    if (server_ != nullptr) {
      ready.set_session_address(AddressForPeers());
      ready.set_session_authority(server_->authority());
    }
    reporter_.Send(&WorkerMessage::mutable_ready, std::move(ready));
  }
  void OnDone(int64_t sequence) override {
    if (host_ != nullptr) host_->Answer(host_->worker(), sequence);
    if (follower_ != nullptr) follower_->Done(sequence);
  }
  void OnFailed(int64_t done, const collectives::Failure& failure) override {
    reporter_.SendFailed(done, failure);
    if (host_ != nullptr) host_->End(std::string(failure.status.message()));
  }

  // --- SessionStore
  absl::StatusOr<std::string> ReadBlob(const std::string& digest, collectives::AbortSignal* abort) override {
    return options_.read_blob(digest, abort);
  }
  absl::Status ReadArray(int64_t array, const tensor::Box& box, absl::Span<std::byte> out,
                         collectives::AbortSignal* abort) override {
    if (follower_ != nullptr) return follower_->ReadArray(array, box, out, abort);
    XLAD_ASSIGN_OR_RETURN(const tensor::Array part, host_->ReadBox(array, box));
    std::memcpy(out.data(), part.bytes().data(), out.size());
    return absl::OkStatus();
  }
  absl::Status WriteArray(int64_t array, const tensor::Box& box, absl::Span<const std::byte> bytes,
                          collectives::AbortSignal* abort) override {
    if (follower_ != nullptr) return follower_->WriteArray(array, box, bytes, abort);
    host_->WriteBox(array, box, bytes);
    return absl::OkStatus();
  }

  // Returns the host that this worker advertises to peers, with the server's port. The worker may listen on all
  // addresses of its machine.
  std::string AddressForPeers() const {
    const std::string own = server_->address();
    for (const Peer& peer : launch_.peers()) {
      if (peer.worker_id() != options_.environment.worker_id) continue;
      const size_t host_ends = peer.data_address().rfind(':');
      if (host_ends != std::string::npos) return peer.data_address().substr(0, host_ends) + own.substr(own.rfind(':'));
    }
    return own;
  }

  const LaunchTask launch_;
  const SessionRunnerOptions options_;
  Reporter reporter_;
  collectives::AbortSignal reads_;              // Raised to end the server's reads of executables.
  std::unique_ptr<runtime::SessionHost> host_;  // Null unless this is the first worker.
  std::unique_ptr<SessionServer> server_;
  std::unique_ptr<SessionFollower> follower_;   // Null if this is the first worker.
  bool started_ = false;
  std::unique_ptr<runtime::SessionExecutor> executor_;  // Declared last, because its threads use the other members.
};

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> MakeSessionRunner(const LaunchTask& launch,
                                                          const SessionRunnerOptions& options) {
  auto runner = std::make_unique<SessionRunner>(launch, options);
  XLAD_RETURN_IF_ERROR(runner->Start());
  return runner;
}

}  // namespace xlad::worker
