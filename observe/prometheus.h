// Metrics in the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::observe {

using Labels = std::vector<std::pair<std::string, std::string>>;

// The families in the order of their first samples. Used by one thread.
class MetricsPage {
 public:
  // Begins a family: a name such as "xlad_jobs", "gauge" or "counter", and one sentence. Names end with their base
  // unit, and those of counters with "_total". Each family is begun once.
  void Family(absl::string_view name, absl::string_view type, absl::string_view help);
  // A sample of the family that was begun last.
  void Sample(double value, const Labels& labels = {});
  // A family of one sample without labels.
  void Gauge(absl::string_view name, absl::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string family_;
};

// What every process can say about itself: process_cpu_seconds_total, process_resident_memory_bytes,
// process_open_fds, process_start_time_seconds. Figures that this system does not tell are left out.
void AddProcess(MetricsPage* page);

}  // namespace xlad::observe
