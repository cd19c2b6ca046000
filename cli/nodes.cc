// `xlad nodes`: the workers of a coordinator by host.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/worker_json.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

using Json = nlohmann::ordered_json;
using Worker = ListWorkersResponse::Worker;

Json ToJson(const std::map<std::string, std::vector<Worker>>& hosts) {
  Json json = Json::array();
  for (const auto& [host, workers] : hosts) {
    Json node = {{"host", host}, {"devices", 0}, {"workers", Json::array()}};
    int64_t devices = 0;
    for (const Worker& worker : workers) {
      if (worker.state() != "lost") devices += worker.devices();
      Json row = WorkerToJson(worker);
      row.erase("host");  // The node has the host.
      node["workers"].push_back(std::move(row));
    }
    node["devices"] = devices;
    json.push_back(std::move(node));
  }
  return json;
}

int RunNodes(const Endpoint& endpoint, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto listed = (*client)->ListWorkers();
  if (!listed.ok()) return Fail(listed.status());
  std::map<std::string, std::vector<Worker>> hosts;
  for (const Worker& worker : listed->workers()) hosts[worker.host()].push_back(worker);
  if (format == "json") {
    std::printf("%s\n", JsonText(ToJson(hosts), 2).c_str());
    return kOk;
  }
  std::printf("%-24s %-24s %8s %8s %-10s %-14s %s\n", "HOST", "WORKER", "PID", "DEVICES", "STATE", "JOB", "REASON");
  for (const auto& [host, workers] : hosts) {
    for (const Worker& worker : workers) {
      absl::PrintF("%-24s %-24s %8d %8d %-10s %-14s %s\n", host, worker.id(), worker.pid(), worker.devices(),
                   worker.state(), worker.job_id(), worker.reason());
    }
  }
  return kOk;
}

}  // namespace

void AddNodes(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("nodes", "list the workers of a coordinator by host");
  app->footer("Example:\n  xlad nodes --format json");
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunNodes(*endpoint, *format); }; });
}

}  // namespace xlad::cli
