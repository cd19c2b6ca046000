// The attempt that a message of the coordinator is about.
#pragma once

#include "worker/worker_core.h"

namespace xlad::worker {

template <typename Message>
TaskKey KeyOf(const Message& message) {
  return {message.job_id(), message.attempt()};
}

// The job id is empty if the message is not about an attempt.
struct About {
  TaskKey key;
  int64_t generation = 0;
};
template <typename Message>
About AboutOf(const Message& message) {
  return {KeyOf(message), message.generation()};
}
inline About AboutOf(const CoordinatorMessage& message) {
  switch (message.message_case()) {
    case CoordinatorMessage::kLaunch: return AboutOf(message.launch());
    case CoordinatorMessage::kStart: return AboutOf(message.start());
    case CoordinatorMessage::kRenew: return AboutOf(message.renew());
    case CoordinatorMessage::kStopAt: return AboutOf(message.stop_at());
    case CoordinatorMessage::kAbort: return AboutOf(message.abort());
    case CoordinatorMessage::kAcknowledge: return AboutOf(message.acknowledge());
    case CoordinatorMessage::kForget: return AboutOf(message.forget());
    case CoordinatorMessage::kCheckpointAt: return AboutOf(message.checkpoint_at());
    case CoordinatorMessage::kCommitted: return AboutOf(message.committed());
    case CoordinatorMessage::kReplaceCode: return AboutOf(message.replace_code());
    default:
      return {};
  }
}

}  // namespace xlad::worker
