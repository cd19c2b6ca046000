// Buffers in f32 for a collective on floating-point elements of less than 4 bytes whose partial results are sent in
// f32.
#pragma once

#include <vector>

#include "collectives/exec/communicator.h"
#include "collectives/plan/spec.h"

namespace xlad::collectives {

class WidenedLaunch {
 public:
  // Converts the inputs of `launch`, which belong to `rank`, to f32. `memory` holds the buffers and grows as needed. It
  // and the buffers of `launch` must outlive the object.
  WidenedLaunch(const CollectiveSpec& spec, int rank, const CollectiveLaunch& launch, std::vector<std::byte>* memory);
  WidenedLaunch(const WidenedLaunch&) = delete;
  WidenedLaunch& operator=(const WidenedLaunch&) = delete;

  // The same launch on buffers in f32. No output overlaps an input.
  const CollectiveLaunch& launch() const { return widened_; }
  // Rounds the results in f32, to nearest even, and writes them to the outputs of the original launch.
  void RoundResults() const;

 private:
  const tensor::ElementType type_;
  const CollectiveLaunch& original_;
  std::vector<int64_t> output_counts_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  CollectiveLaunch widened_;
};

}  // namespace xlad::collectives
