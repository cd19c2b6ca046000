#include "runtime/step_trace.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace xlad::runtime {
namespace {

enum Thread { kSteps = 0, kMapped = 1, kMessages = 2 };

constexpr double kNsPerUs = 1e3;

nlohmann::ordered_json Name(const char* what, int device, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", device}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string TimelineJson(const std::string& worker, const std::vector<DeviceTimeline>& devices) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const DeviceTimeline& device : devices) {
    const auto add = [&](const std::string& name, const char* kind, int thread, const auto& span) {
      events.push_back({{"name", name},
                        {"cat", kind},
                        {"ph", "X"},
                        {"ts", static_cast<double>(span.begin_ns) / kNsPerUs},
                        {"dur", static_cast<double>(span.end_ns - span.begin_ns) / kNsPerUs},
                        {"pid", device.device},
                        {"tid", thread},
                        {"args", {{"step", span.step}}}});
    };
    events.push_back(Name("process_name", device.device, 0, absl::StrCat("device ", device.device, ", ", worker)));
    events.push_back(Name("thread_name", device.device, kSteps, "steps"));
    events.push_back(Name("thread_name", device.device, kMapped, "collectives on mapped memory"));
    events.push_back(Name("thread_name", device.device, kMessages, "collectives by messages"));
    for (const StepTrace::Span& span : device.steps->spans) add(*span.place, span.kind, kSteps, span);
    for (const auto& ended : device.mapped) add(ended.name, "collective", kMapped, ended);
    for (const auto& ended : device.messages) add(ended.name, "collective", kMessages, ended);
  }
  const nlohmann::ordered_json json = {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace xlad::runtime
