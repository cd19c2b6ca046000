// Constructors of messages to workers that the coordinator sends from several places.
#pragma once

#include <string>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::service {

// Ends the attempt at once, without its state.
inline CoordinatorMessage AbortMessage(const std::string& job_id, int64_t attempt, const std::string& reason) {
  CoordinatorMessage message;
  message.mutable_abort()->set_job_id(job_id);
  message.mutable_abort()->set_attempt(attempt);
  message.mutable_abort()->set_reason(reason);
  return message;
}

// The end of the attempt is recorded: the worker may discard what it kept of it.
inline CoordinatorMessage ForgetMessage(const std::string& job_id, int64_t attempt) {
  CoordinatorMessage message;
  message.mutable_forget()->set_job_id(job_id);
  message.mutable_forget()->set_attempt(attempt);
  return message;
}

}  // namespace xlad::service
