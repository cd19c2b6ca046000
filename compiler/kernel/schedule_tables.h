// Tables of kernel schedules from files. The key is the hash of the kernel.
//
// The text has one entry for each kernel: a line with the kernel's hash and an optional name, and then the primitives
// of kernel_schedule.h. Lines that start with # are comments. `xlad compile --emit schedules` prints the schedules of a
// program's kernels:
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
    int64_t line = 0;  // The number of the entry's first line in the text, counted from 1.
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
  // Parses the kernel schedules of the policy. Errors are those of ScheduleTable::Parse.
  static absl::StatusOr<ScheduleTables> Read(const CompilePolicy& policy);

  // `usual` is a kernel with the compiler's own schedule. Returns the kernel with the schedule that the tables have for
  // it, or null if they have none. If a result is written over an operand (`in_place`), the schedule must have the
  // loops and statements of `usual` in the same order. Then no element is read after it is overwritten. The schedule
  // may split, bind, stage, vectorize and unroll the loops in other ways. InvalidArgument, with the line, if a schedule
  // from kernel_schedules does not fit, has temporaries of more than 1 MiB, or unrolls loops into more than 256 copies
  // of a body. A schedule from tuned_schedules with such a fault is ignored.
  absl::StatusOr<std::shared_ptr<const ScheduledKernel>> Find(const ScheduledKernel& usual, bool in_place) const;
  // InvalidArgument, with the line, if kernel_schedules has an entry for a kernel that is not in the list.
  absl::Status CheckAllUsed(absl::Span<const KernelRequest> kernels) const;

 private:
  ScheduleTable given_, tuned_;
};

}  // namespace xlad::compiler
