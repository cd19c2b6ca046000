// Constructors of messages to workers that the coordinator sends from several places.
#pragma once

#include <string>

#include "proto/worker.pb.h"
#include "proto/xlad_v1.h"
#include "service/log/ids.h"

namespace xlad::service {

template <typename Message>
void SetAttempt(const AttemptId& attempt, Message* message) {
  message->set_job_id(attempt.job.str());
  message->set_attempt(attempt.number);
  message->set_generation(attempt.generation.value());
}

// Ends the attempt at once, without its state.
inline CoordinatorMessage AbortMessage(const AttemptId& attempt, const std::string& reason) {
  CoordinatorMessage message;
  SetAttempt(attempt, message.mutable_abort());
  message.mutable_abort()->set_reason(reason);
  return message;
}

// The end of the attempt is recorded: the worker may discard what it kept of it.
inline CoordinatorMessage ForgetMessage(const AttemptId& attempt) {
  CoordinatorMessage message;
  SetAttempt(attempt, message.mutable_forget());
  return message;
}

// The attempt that a message of a worker names.
template <typename Message>
AttemptId AttemptOf(const Message& message) {
  return {JobId(message.job_id()), message.attempt(), Generation(message.generation())};
}

}  // namespace xlad::service
