#include "collectives/exec/short_slices.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace xlad::collectives {
namespace {

// Linux's struct sched_attr, whose header cannot be included together with <sched.h>.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0, deadline_ns = 0, period_ns = 0;
};

bool Get(Attributes* attributes) { return syscall(SYS_sched_getattr, 0, attributes, sizeof *attributes, 0) == 0; }

}  // namespace

uint64_t AskForShortSlices() {
  constexpr uint64_t kSliceNs = 100'000;  // The smallest slice that the system accepts.
  Attributes attributes;
  if (!Get(&attributes) || attributes.policy != SCHED_OTHER) return 0;
  attributes.runtime_ns = kSliceNs;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
  return Get(&attributes) ? attributes.runtime_ns : 0;
}

}  // namespace xlad::collectives
