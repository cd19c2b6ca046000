// Removes the rights that a process does not need before it processes untrusted input.
#pragma once

#include <string>

#include "base/status.h"

namespace xlad {

// Afterwards this process can compute, allocate memory, make threads, and read and write the descriptors that it has.
// It cannot open, create or remove files (Landlock). It cannot change properties of files, make sockets or processes,
// execute programs, enter namespaces or change the system. It cannot send signals to other processes, trace them or
// change their priorities. These calls fail with EPERM (seccomp). It cannot gain privileges. A process cannot leave the
// sandbox. If `readable_folder` is not empty, the files below this folder can still be opened for reading if
// their names are known, but they cannot be listed.
//
// Must be called before the process starts other threads, because Landlock restricts only the calling thread and the
// threads that it starts later. FailedPrecondition if there are other threads; the process is then not restricted.
// Unimplemented if this kernel, or the container that it is in, does not support a part of the sandbox. The message
// names that part, and the other parts restrict the process.
absl::Status EnterSandbox(const std::string& readable_folder = "");

}  // namespace xlad
