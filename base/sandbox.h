// Removes the rights that a process does not need before it processes untrusted input.
#pragma once

#include "base/status.h"

namespace xlad {

// From now on this process can compute, allocate memory, make threads, and read and write the descriptors that it has.
// It cannot open, create or remove files (Landlock). It cannot change properties of files, make sockets or processes,
// execute programs, send signals to other processes, trace them or change their priorities, enter namespaces or change
// the system (seccomp: the calls fail with EPERM), or gain privileges. A process cannot leave the sandbox.
//
// Must be called before the process starts other threads, because Landlock restricts only the calling thread and the
// threads that it starts later: FailedPrecondition, and nothing is in force, if there are other threads. Returns
// Unimplemented if this kernel, or the container around it, does not support a part of the sandbox; the message names
// that part, and the other parts are in force.
absl::Status EnterSandbox();

}  // namespace xlad
