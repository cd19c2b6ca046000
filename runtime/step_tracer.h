// Records when the instructions of one step ran on one device.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "collectives/exec/recorder.h"
#include "proto/executable.pb.h"
#include "proto/trace.pb.h"
#include "proto/xlad_v1.h"

namespace xlad::runtime {

// Whether step number `index` of an attempt (from 0) is recorded: the first 16 steps, and then 8 steps in each doubling
// of the number of steps. All devices record the same steps without communication, and the size of a job's trace grows
// with the logarithm of its number of steps.
bool IsTraced(int64_t index);

// Used by the thread of its device.
class StepTracer {
 public:
  // The maximum number of spans of a step. Further spans are counted but not recorded.
  static constexpr size_t kMaxSpans = 8192;

  explicit StepTracer(const Clock* clock) : clock_(clock) {}

  void Begin(int64_t step);
  // Begins a span of the instruction with this number (StepTimes). Returns the argument for Close.
  int Open(int instruction) {
    if (spans_.size() >= kMaxSpans) {
      ++dropped_;
      return -1;
    }
    spans_.push_back({instruction, clock_->NowNs(), -1});
    return std::ssize(spans_) - 1;
  }
  void Close(int span) {
    if (span >= 0) spans_[span].end_ns = clock_->NowNs();
  }
  // The log for the messages of the step's collectives.
  collectives::MessageLog* messages() { return &messages_; }
  // Returns the record of the step since Begin.
  TracedStep End(int device);

 private:
  struct Span {
    int instruction = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // Negative until the span is closed.
  };

  const Clock* const clock_;
  int64_t step_ = 0;
  int64_t begin_ns_ = 0;
  int64_t dropped_ = 0;
  std::vector<Span> spans_;
  collectives::MessageLog messages_;
};

// Describes the instructions and collectives of an executable. Only the groups of a collective that contain one of
// `devices`, which are mesh positions, are included.
TracedProgram TracedProgramOf(const Executable& executable, const collectives::CollectiveSet& collectives,
                              const std::vector<int>& devices);

}  // namespace xlad::runtime
