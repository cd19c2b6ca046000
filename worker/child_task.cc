#include "worker/child_task.h"

#include "base/log.h"

namespace xlad::worker {
namespace {

constexpr int64_t kAbortGraceMs = 2000;  // The time in which an aborted process must end by itself.
constexpr int64_t kDropGraceMs = 5000;   // The same time for a process that is no longer needed.

template <typename Message>
void SetKey(const TaskKey& key, Message* message) {
  message->set_job_id(key.job_id);
  message->set_attempt(key.attempt);
}

}  // namespace

ChildTask::ChildTask(const LaunchTask& launch, std::unique_ptr<AttemptProcess> process, PeerAcceptor* acceptor,
                     std::function<void(Event)> emit)
    : launch_(launch),
      key_{launch.job_id(), launch.attempt()},
      acceptor_(acceptor),
      emit_(std::move(emit)),
      finished_steps_(launch.first_step()),
      process_(std::move(process)) {
  CoordinatorMessage message;
  *message.mutable_launch() = launch;
  Forward(std::move(message));
  process_->Listen([this](const AttemptReport& report) { OnReport(report); },
                   [this](const ProcessEnd& end) { emit_(TaskHasExited{key_, end}); });
  acceptor_->Add(key_, [this](FileDescriptor socket, const PeerHello& hello, const std::string& address) {
    AttemptCommand command;
    *command.mutable_peer()->mutable_hello() = hello;
    command.mutable_peer()->set_address(address);
    process_->Send(command, std::move(socket));
  });
}

ChildTask::~ChildTask() {
  acceptor_->Remove(key_);
  AttemptCommand command;
  command.mutable_drop();
  process_->Send(command);
  process_->KillAfter(kDropGraceMs);
  process_->WaitForEnd();
}

void ChildTask::Forward(CoordinatorMessage message) {
  AttemptCommand command;
  *command.mutable_message() = std::move(message);
  process_->Send(command);
}

void ChildTask::Start(const StartTask& start) {
  CoordinatorMessage message;
  *message.mutable_start() = start;
  Forward(std::move(message));
}

void ChildTask::Lease(int64_t lease_until_step) {
  CoordinatorMessage message;
  SetKey(key_, message.mutable_renew());
  message.mutable_renew()->set_lease_until_step(lease_until_step);
  Forward(std::move(message));
}

void ChildTask::StopAt(int64_t step) {
  CoordinatorMessage message;
  SetKey(key_, message.mutable_stop_at());
  message.mutable_stop_at()->set_step(step);
  Forward(std::move(message));
}

void ChildTask::CheckpointAt(int64_t step) {
  CoordinatorMessage message;
  SetKey(key_, message.mutable_checkpoint_at());
  message.mutable_checkpoint_at()->set_step(step);
  Forward(std::move(message));
}

void ChildTask::CheckpointIsCommitted(int64_t step) {
  CoordinatorMessage message;
  SetKey(key_, message.mutable_committed());
  message.mutable_committed()->set_step(step);
  Forward(std::move(message));
}

void ChildTask::ReplaceCode(const std::string& executable_digest) {
  CoordinatorMessage message;
  SetKey(key_, message.mutable_replace_code());
  message.mutable_replace_code()->set_executable_digest(executable_digest);
  Forward(std::move(message));
}

void ChildTask::Abort(const collectives::Failure& failure) {
  AttemptCommand command;
  command.mutable_abort()->set_error_code(static_cast<int>(failure.status.code()));
  command.mutable_abort()->set_error(std::string(failure.status.message()));
  process_->Send(command);
  process_->KillAfter(kAbortGraceMs);
}

std::vector<SilentPeer> ChildTask::silent_peers() const {
  const std::lock_guard lock(silent_mutex_);
  return silent_;
}

void ChildTask::OnReport(const AttemptReport& report) {
  if (report.has_progress()) {
    finished_steps_ = report.progress().finished_steps();
    const std::lock_guard lock(silent_mutex_);
    silent_.assign(report.progress().silent().begin(), report.progress().silent().end());
    return;
  }
  const WorkerMessage& message = report.message();
  switch (message.message_case()) {
    case WorkerMessage::kReady:
      return emit_(TaskIsReady{key_, message.ready().session_address(), message.ready().session_authority()});
    case WorkerMessage::kSteps:
      for (const StepMetrics& metrics : message.steps().metrics()) emit_(TaskStepped{key_, metrics});
      return;
    case WorkerMessage::kTrace:
      return emit_(TaskTraced{key_, message.trace()});
    case WorkerMessage::kStopAnswer:
      return emit_(TaskAnsweredStop{key_, message.stop_answer().step(), message.stop_answer().accepted(),
                                    message.stop_answer().current()});
    case WorkerMessage::kCheckpointAnswer:
      return emit_(TaskAnsweredCheckpoint{key_, message.checkpoint_answer().step(),
                                          message.checkpoint_answer().accepted(),
                                          message.checkpoint_answer().current()});
    case WorkerMessage::kShardWritten:
      return emit_(TaskWroteShard{key_, message.shard_written().step(), message.shard_written().shard()});
    case WorkerMessage::kShardFailed: {
      const ShardFailed& failed = message.shard_failed();
      const absl::Status status(static_cast<absl::StatusCode>(failed.error_code()), failed.error());
      return emit_(TaskFailedToSave{key_, failed.step(), status, failed.must_be_stored()});
    }
    case WorkerMessage::kStopped:
      return emit_(TaskHasStopped{key_, message.stopped().step()});
    case WorkerMessage::kFinished:
      return emit_(TaskHasFinished{key_, message.finished().report()});
    case WorkerMessage::kFailed: {
      const TaskFailed& failed = message.failed();
      const absl::Status status(static_cast<absl::StatusCode>(failed.error_code()), failed.error());
      return emit_(TaskHasFailed{key_, failed.step(), {status, failed.suspect_worker()}});
    }
    default:
      LogWarn("an attempt's process sent a message of an unknown kind",
              {{"job", key_.job_id}, {"kind", std::to_string(static_cast<int>(message.message_case()))}});
  }
}

}  // namespace xlad::worker
