#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

int RunEvents(const Endpoint& endpoint, const std::string& job_id, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto log = (*client)->Log(job_id);
  if (!log.ok()) return Fail(log.status());
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const JobLogResponse::Event& event : log->events()) {
    if (format != "json") {
      absl::PrintF("%6d  %-14s %s\n", event.sequence(), event.kind(), event.text());
      continue;
    }
    nlohmann::ordered_json row = {{"sequence", event.sequence()}, {"unix_ns", event.unix_ns()}, {"kind", event.kind()},
                                  {"term", event.term()},         {"text", event.text()}};
    if (event.attempt() != 0) row["attempt"] = event.attempt();
    if (event.step() >= 0) row["step"] = event.step();
    if (!event.worker().empty()) row["worker"] = event.worker();
    if (!event.actor().empty()) row["actor"] = event.actor();
    json.push_back(std::move(row));
  }
  if (format == "json") std::printf("%s\n", JsonText(json, 2).c_str());
  return kOk;
}

}  // namespace

void AddEvents(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("events", "print the events of a job, for programs");
  app->footer("Example:\n  xlad events job-1a2b3c4d --coordinator 127.0.0.1:7411 --format json");
  app->add_option("JOB", *job_id, "the job's id")->required();
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunEvents(*endpoint, *job_id, *format); }; });
}

}  // namespace xlad::cli
