// Removes the rights that a process does not need before it processes untrusted input.
#pragma once

#include "base/status.h"

namespace xlad {

// From now on this process and its threads can compute, allocate memory, make threads, and use the descriptors that
// they have. They cannot open or change files (Landlock), make sockets, execute programs, signal or trace other
// processes or change the system (seccomp: the calls fail with EPERM), or gain privileges. It cannot be undone.
//
// Unimplemented says what this kernel, or the container around it, does not support; the rest is in force.
absl::Status EnterSandbox();

}  // namespace xlad
