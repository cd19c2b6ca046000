// The interface that runs an attempt in its process, as a task (attempt_main.cc) or a session (session_runner.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "collectives/exec/abort.h"
#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "worker/report_queue.h"

namespace xlad::worker {

class Runner {
 public:
  virtual ~Runner() = default;  // Ends the attempt; returns when its threads have ended.
  // Handles a message of the coordinator about the attempt, other than its launch.
  virtual void On(const CoordinatorMessage& message) = 0;
  virtual void Abort(const collectives::Failure& failure) = 0;
  virtual int64_t finished_steps() const = 0;
};

// Puts the messages that a worker sends about one attempt into the queue.
class Reporter {
 public:
  Reporter(const LaunchTask& launch, ReportQueue* queue) : launch_(launch), queue_(queue) {}

  template <typename Message>
  void Send(Message* (WorkerMessage::*field)(), Message content) {
    content.set_job_id(launch_.job_id());
    content.set_attempt(launch_.attempt());
    WorkerMessage message;
    *(message.*field)() = std::move(content);
    queue_->Push(std::move(message));
  }

  void SendFailed(int64_t step, const collectives::Failure& failure) {
    TaskFailed failed;
    failed.set_step(step);
    failed.set_error(std::string(failure.status.message()));
    failed.set_error_code(static_cast<int>(failure.status.code()));
    failed.set_suspect_worker(failure.suspect_worker);
    Send(&WorkerMessage::mutable_failed, std::move(failed));
  }

 private:
  const LaunchTask launch_;
  ReportQueue* const queue_;
};

}  // namespace xlad::worker
