#include "sharding/explain/explain.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/program.h"

namespace xlad::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string ToJson(const sharding::Explanation& explanation) {
  Json json;
  json["collectives"] = Json::array();
  for (const sharding::ExplainedCollective& collective : explanation.collectives) {
    Json entry;
    entry["kind"] = collective.kind;
    entry["axes"] = collective.axes;
    entry["group_size"] = collective.group_size;
    entry["bytes"] = collective.bytes;
    entry["wire_bytes"] = collective.wire_bytes;
    entry["trip_count"] = collective.trip_count.has_value() ? Json(*collective.trip_count) : Json(nullptr);
    entry["op"] = collective.op;
    entry["because"] = collective.because;
    json["collectives"].push_back(std::move(entry));
  }
  json["bytes_per_device"] = explanation.bytes_per_device;
  return JsonText(json, 2) + "\n";
}

// The bytes that a step sends by this collective. An unknown trip count counts as 1, as in the total.
double PerStep(const sharding::ExplainedCollective& collective) {
  return static_cast<double>(collective.bytes) * static_cast<double>(collective.trip_count.value_or(1));
}

// One row per collective, most bytes first. Below each row are the first and the last link of the cause chain.
std::string ToTable(sharding::Explanation explanation) {
  std::stable_sort(explanation.collectives.begin(), explanation.collectives.end(),
                   [](const auto& a, const auto& b) { return PerStep(a) > PerStep(b); });
  constexpr const char* kRow = "%-18s %-16s %7s %14s %7s %16s  %s\n";
  std::string out =
      absl::StrFormat(kRow, "collective", "over", "devices", "bytes once", "times", "bytes per step", "for");
  for (const sharding::ExplainedCollective& collective : explanation.collectives) {
    absl::StrAppend(&out, absl::StrFormat(
                              kRow, collective.kind, absl::StrJoin(collective.axes, ","),
                              absl::StrCat(collective.group_size), absl::StrCat(collective.bytes),
                              collective.trip_count.has_value() ? absl::StrCat(*collective.trip_count) : "?",
                              absl::StrFormat("%.0f", PerStep(collective)), collective.op));
    const std::vector<std::string>& because = collective.because;
    if (!because.empty()) absl::StrAppend(&out, "    because ", because.front(), "\n");
    if (because.size() > 2) absl::StrAppend(&out, "    ... ", because.size() - 2, " more (--format json)\n");
    if (because.size() > 1) absl::StrAppend(&out, "    because ", because.back(), "\n");
  }
  const size_t count = explanation.collectives.size();
  absl::StrAppend(&out, Counted(count, "collective"), ", ", explanation.bytes_per_device,
                  " bytes sent per device and step\n");
  return out;
}

absl::Status RunExplain(const std::string& path, const std::string& mesh, const std::string& format) {
  XLAD_ASSIGN_OR_RETURN(LoadedProgram program, LoadProgram(path, mesh));
  auto result = PartitionProgram(std::move(program));
  if (!result.ok()) return Annotate(result.status(), path);
  XLAD_ASSIGN_OR_RETURN(const sharding::Explanation explanation, sharding::Explain(result->partitioned));
  for (const std::string& warning : result->partitioned.warnings) {
    std::fprintf(stderr, "xlad: warning: %s\n", warning.c_str());
  }
  return WriteOutput("", format == "json" ? ToJson(explanation) : ToTable(explanation));
}

}  // namespace

void AddExplain(CLI::App& parent, Action* action) {
  auto path = std::make_shared<std::string>();
  auto mesh = std::make_shared<std::string>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("explain", "print what a program sends between devices, and why");
  app->footer("Example:\n  xlad explain examples/spiral_mlp --mesh dp=4,tp=2 --format json");
  app->add_option("PROGRAM", *path, "HLO text or proto, a job directory, or - for standard input")->required();
  app->add_option("--mesh", *mesh, "mesh axes and sizes, such as dp=4,tp=2")->check(MeshAxes());
  AddFormatFlag(app, format.get());
  app->callback([=] {
    *action = [=] {
      const absl::Status status = RunExplain(*path, *mesh, *format);
      return status.ok() ? kOk : Fail(status);
    };
  });
}

}  // namespace xlad::cli
