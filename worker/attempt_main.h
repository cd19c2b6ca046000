// The process of one attempt: runs a task or a session for the worker daemon that started it (proto/attempt.proto).
#pragma once

#include "runtime/device_kind.h"

namespace xlad::worker {

// Communicates with the daemon over kChannelDescriptor until the attempt is dropped or the daemon has ended. Then the
// process exits; this function does not return. `kinds` is as for RunWorker.
[[noreturn]] void RunAttempt(runtime::DeviceKinds kinds);

}  // namespace xlad::worker
