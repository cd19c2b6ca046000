// For tests that open many files or connections.
#pragma once

#include <sys/resource.h>

namespace xlad {

// Raises the limit on open files as far as the system allows. Returns whether this process may have `count` open files.
inline bool MayOpenFiles(rlim_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= count;
}

}  // namespace xlad
