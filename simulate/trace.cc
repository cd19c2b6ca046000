// The timeline in the Trace Event format, with one row for the cores and one row for the links.
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "simulate/simulate.h"

namespace xlad::simulate {

std::string TraceJson(const StepTime& step) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  for (const Unit unit : {Unit::kCore, Unit::kIci}) {
    const Json name = {{"name", unit == Unit::kCore ? "cores" : "links"}};
    events.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", static_cast<int>(unit)}, {"args", name}});
  }
  for (const TimelineEvent& event : step.timeline) {
    events.push_back({{"name", event.name},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", static_cast<int>(event.unit)},
                      {"ts", event.start_us},
                      {"dur", event.duration_us}});
  }
  return JsonText(Json{{"displayTimeUnit", "ns"}, {"traceEvents", events}}, 1) + "\n";
}

}  // namespace xlad::simulate
