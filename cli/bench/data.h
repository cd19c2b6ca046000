// The data of `xlad bench`: inputs for which collectives are exact in every element type, so checks need no tolerance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/plan/spec.h"

namespace xlad::cli {

// Element i of the input of a rank is a function of the rank and i modulo kBenchPeriod.
constexpr int64_t kBenchPeriod = 840;

class BenchData {
 public:
  explicit BenchData(const collectives::CollectiveSpec& spec);

  // Writes the input of `rank`.
  void FillInput(int rank, std::byte* input) const;
  // Writes random values, each of which depends only on the rank and the number of the element.
  void FillRandom(int rank, std::byte* input) const;
  // The number of elements of the output of `rank` that differ from the result of the collective.
  int64_t CountWrong(int rank, const std::byte* output) const;

 private:
  // CountWrong for an AllGather or AllToAll whose parts have different sizes.
  int64_t CountWrongRagged(int rank, const std::byte* output) const;
  // For the following functions, element i of a buffer corresponds to element (begin + i) % kBenchPeriod of the
  // pattern.
  void Fill(const std::vector<std::byte>& pattern, int64_t begin, int64_t count, std::byte* to) const;
  int64_t Differences(const std::vector<std::byte>& pattern, int64_t begin, int64_t count,
                      const std::byte* found) const;

  const collectives::CollectiveSpec spec_;
  const int64_t width_;
  std::vector<std::vector<std::byte>> inputs_;  // One period of the input of each rank.
  std::vector<std::byte> reduced_;              // One period of the reduction of all inputs.
  std::vector<std::byte> zeros_;                // One period of the output of a rank that receives nothing.
};

}  // namespace xlad::cli
