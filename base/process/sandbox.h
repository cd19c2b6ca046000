// Before a process reads untrusted input, removes the rights that it does not need.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad {

// Restricts this process until it ends. Afterwards it can compute, allocate memory, start threads, and read and write
// the descriptors that it has. It cannot
//   - open, create or remove files (enforced by Landlock)
//   - change properties of files, make sockets or processes, execute programs, enter namespaces or change the system,
//     or send signals to other processes, trace them or change their priorities (these calls fail with EPERM, or
//     clone3 with ENOSYS; enforced by seccomp)
//   - gain privileges
// If `readable_folder` is not empty, the files below this folder can still be opened for reading by name, but the
// folder cannot be listed.
//
// Must be called before the process starts other threads, because Landlock restricts only the calling thread and the
// threads that it starts later. FailedPrecondition if there are other threads; the process is then not restricted.
// Unimplemented if the kernel or the container of this process does not support a part of the sandbox. The message
// names that part; all other parts are in effect.
absl::Status EnterSandbox(const std::string& readable_folder = "");

}  // namespace xlad
