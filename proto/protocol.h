// The version of the messages between the coordinator and its workers.
#pragma once

#include <cstdint>

namespace xlad {

// Incremented by each change after which a coordinator or worker of the previous version could misunderstand a message.
//   2  The first worker of a session has a secret (LaunchTask.session_secret), and each other worker a key of its own.
inline constexpr int32_t kProtocol = 2;
inline constexpr int32_t kSessionSecretProtocol = 2;

// Whether a coordinator of protocol `own` works with workers of protocol `theirs`: the same or the previous protocol.
inline bool IsProtocolAccepted(int32_t own, int32_t theirs) {
  return theirs >= 1 && theirs <= own && theirs >= own - 1;
}

}  // namespace xlad
