// Metrics in the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace xlad::observe {

using Labels = std::vector<std::pair<std::string, std::string>>;

// A page of metric families in the order of the calls of Family. Only one thread may use it.
class MetricsPage {
 public:
  // Begins a family: `name` is a name such as "xlad_jobs", `type` is "gauge" or "counter", and `help` is one sentence.
  // A name ends with its base unit; the name of a counter ends with "_total". Must be called once per family.
  void Family(absl::string_view name, absl::string_view type, absl::string_view help);
  // Adds a sample to the family that was begun last.
  void Sample(double value, const Labels& labels = {});
  // Adds a family of type "gauge" with one sample, which has no labels.
  void Gauge(absl::string_view name, absl::string_view help, double value);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::string family_;
};

// Adds the standard metrics of this process: process_cpu_seconds_total, process_resident_memory_bytes,
// process_open_fds, process_start_time_seconds. Metrics that the system does not provide are omitted.
void AddProcess(MetricsPage* page);

}  // namespace xlad::observe
