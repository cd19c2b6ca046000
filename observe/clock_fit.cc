#include "observe/clock_fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace xlad::observe {
namespace {

constexpr size_t kMaxSamples = 4096;  // If there are more, those with the shortest round trips are used.
constexpr double kMinErrorNs = 10'000;
constexpr double kWander = 1e-6;      // The random change of the offset, in ns per ns since a sample.
constexpr double kSlopePrior = 1e-4;  // The standard deviation of the rates of clocks: 100 ppm.

}  // namespace

ClockFit::ClockFit(std::vector<ClockSample> samples) : samples_(std::move(samples)) {
  if (samples_.size() <= kMaxSamples) return;
  std::sort(samples_.begin(), samples_.end(), [](const ClockSample& a, const ClockSample& b) {
    return a.round_trip_ns() < b.round_trip_ns();
  });
  samples_.resize(kMaxSamples);
}

ClockFit::Line ClockFit::At(int64_t local_ns) const {
  if (samples_.empty()) return {};
  // Offsets are taken relative to the first one, because nanoseconds since 1970 exceed the precision of a double.
  const int64_t base = samples_[0].offset_ns();
  double w = 0, wx = 0, wy = 0;
  std::vector<double> weights;
  for (const ClockSample& sample : samples_) {
    const double x = static_cast<double>(sample.local_ns() - local_ns);
    const double error = std::max(kMinErrorNs, static_cast<double>(sample.round_trip_ns()) / 2);
    const double weight = 1 / (error * error + kWander * kWander * x * x);
    weights.push_back(weight);
    w += weight;
    wx += weight * x;
    wy += weight * static_cast<double>(sample.offset_ns() - base);
  }
  const double mean_x = wx / w, mean_y = wy / w;
  double xx = 1 / (kSlopePrior * kSlopePrior), xy = 0;
  for (size_t i = 0; i < samples_.size(); ++i) {
    const double x = static_cast<double>(samples_[i].local_ns() - local_ns) - mean_x;
    xx += weights[i] * x * x;
    xy += weights[i] * x * (static_cast<double>(samples_[i].offset_ns() - base) - mean_y);
  }
  const double slope = xy / xx;
  return {base + std::llround(mean_y - slope * mean_x), slope};
}

}  // namespace xlad::observe
