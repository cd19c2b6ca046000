// Functions that make the messages that several parts of the coordinator send to workers.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
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

// Tells the worker to end the attempt at once, without saving its state.
inline CoordinatorMessage AbortMessage(const AttemptId& attempt, const std::string& reason) {
  CoordinatorMessage message;
  SetAttempt(attempt, message.mutable_abort());
  message.mutable_abort()->set_reason(reason);
  return message;
}

// Tells the worker that the end of the attempt is recorded, so the worker may discard the attempt.
inline CoordinatorMessage ForgetMessage(const AttemptId& attempt) {
  CoordinatorMessage message;
  SetAttempt(attempt, message.mutable_forget());
  return message;
}

// Shortens an error of a worker to about 8 KiB, because every list of jobs repeats it.
inline std::string Shortened(const std::string& error) {
  constexpr size_t kMaxErrorBytes = 8192;
  if (error.size() <= kMaxErrorBytes) return error;
  size_t end = kMaxErrorBytes;
  // Does not split a UTF-8 character.
  while (end > 0 && (static_cast<unsigned char>(error[end]) & 0xc0) == 0x80) --end;
  return absl::StrCat(error.substr(0, end), "... (", error.size(), " bytes)");
}

// Returns the attempt that a message of a worker names.
template <typename Message>
AttemptId AttemptOf(const Message& message) {
  return {JobId(message.job_id()), message.attempt(), Generation(message.generation())};
}

}  // namespace xlad::service
