// Kernel schedules from files, by the hash of the kernel that they are for.
//
// The text has one entry for each kernel: a line with the kernel's hash and, if wanted, a name, then the primitives of
// kernel_schedule.h. Lines that start with # are comments. `xlad compile --emit schedules` prints a program's own:
//
//   kernel 08d6c8a1b8f40c53 fusion.2
//   split c 64
//   order r c.o c.i
//   bind r 128
//   ...
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "compiler/kernel/kernel_schedule.h"
#include "proto/executable.pb.h"

namespace xlad::compiler {

struct KernelRequest;

// One entry of a table, with its first line.
std::string ScheduleEntryText(const Kernel& kernel, const KernelSchedule& schedule);

// The entries of a text.
class ScheduleTable {
 public:
  struct Entry {
    KernelSchedule schedule;
    int64_t line = 0;  // The number of its first line in the text, from 1.
  };
  // InvalidArgument with the line, what was found and what was expected.
  static absl::StatusOr<ScheduleTable> Parse(absl::string_view text);
  const std::map<uint64_t, Entry>& entries() const { return entries_; }

 private:
  std::map<uint64_t, Entry> entries_;
};

// The tables of a compile request. Immutable.
class ScheduleTables {
 public:
  static absl::StatusOr<ScheduleTables> Read(const CompilePolicy& policy);

  // The kernel of `usual`, which has the compiler's own schedule, with the schedule that the tables have for it; null
  // if they have none. If a result is written over an operand (`in_place`), the schedule must have the loops and
  // statements of `usual` in the same order, so that nothing is read after it is overwritten; it may split, bind,
  // stage, vectorize and unroll them in other ways. InvalidArgument, with the line, if the schedule of kernel_schedules
  // does not fit; one of tuned_schedules is then left out.
  absl::StatusOr<std::shared_ptr<const ScheduledKernel>> Find(const ScheduledKernel& usual, bool in_place) const;
  // InvalidArgument, with the line, if kernel_schedules has an entry for a kernel that is not one of these.
  absl::Status CheckAllUsed(absl::Span<const KernelRequest> kernels) const;

 private:
  ScheduleTable given_, tuned_;
};

}  // namespace xlad::compiler
