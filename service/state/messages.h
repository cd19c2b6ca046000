// Constructors of messages to workers that the coordinator sends from several places.
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

// An error of a worker, which every list of the jobs repeats, with at most about 8 KiB.
inline std::string Shortened(const std::string& error) {
  constexpr size_t kMaxErrorBytes = 8192;
  if (error.size() <= kMaxErrorBytes) return error;
  size_t end = kMaxErrorBytes;
  while (end > 0 && (static_cast<unsigned char>(error[end]) & 0xc0) == 0x80) --end;  // Not within a character of UTF-8.
  return absl::StrCat(error.substr(0, end), "... (", error.size(), " bytes)");
}

// The attempt that a message of a worker names.
template <typename Message>
AttemptId AttemptOf(const Message& message) {
  return {JobId(message.job_id()), message.attempt(), Generation(message.generation())};
}

}  // namespace xlad::service
