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

// Whether the step that is the `index`-th of an attempt (from 0) is recorded: the first 16, then at least 8 in each
// doubling of the number of steps. All devices decide the same without talking to each other, and what is kept of a job
// grows with the logarithm of its length.
bool IsTraced(int64_t index);

// Used by the thread of its device.
class StepTracer {
 public:
  // Later spans of a step are only counted.
  static constexpr size_t kMaxSpans = 8192;

  explicit StepTracer(const Clock* clock) : clock_(clock) {}

  void Begin(int64_t step);
  // Begins a span of an instruction, by its number (StepTimes); returns what Close needs.
  int Open(int instruction) {
    if (spans_.size() >= kMaxSpans) {
      ++dropped_;
      return -1;
    }
    spans_.push_back({instruction, clock_->NowNs(), -1});
    return static_cast<int>(spans_.size()) - 1;
  }
  void Close(int span) {
    if (span >= 0) spans_[span].end_ns = clock_->NowNs();
  }
  // Where the messages of the step's collectives go.
  collectives::MessageLog* messages() { return &messages_; }
  // Everything since Begin.
  TracedStep End(int device);

 private:
  struct Span {
    int instruction = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = -1;  // Negative until it is closed.
  };

  const Clock* const clock_;
  int64_t step_ = 0;
  int64_t begin_ns_ = 0;
  int64_t dropped_ = 0;
  std::vector<Span> spans_;
  collectives::MessageLog messages_;
};

// The instructions and collectives of an executable. A collective has only those of its groups that contain one of
// `devices`, which are mesh positions.
TracedProgram TracedProgramOf(const Executable& executable, const collectives::CollectiveSet& collectives,
                              const std::vector<int>& devices);

}  // namespace xlad::runtime
