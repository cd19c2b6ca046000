// Makes the process unable to open files.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

namespace xlad {

// While it exists, the limit on open files leaves no descriptor for a new file. The destructor restores the limit.
// Other threads must not open or close files in between.
class NoFreeDescriptors {
 public:
  NoFreeDescriptors() {
    const int next = dup(0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit full{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &full);
  }
  ~NoFreeDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoFreeDescriptors(const NoFreeDescriptors&) = delete;
  NoFreeDescriptors& operator=(const NoFreeDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace xlad
