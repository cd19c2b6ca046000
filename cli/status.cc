#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/worker_json.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const CoordinatorStatus& status, const ListWorkersResponse& workers) {
  Json json;
  json["coordinator"] = {{"version", status.version()},
                         {"protocol", status.protocol()},
                         {"term", status.term()},
                         {"host", status.host()},
                         {"pid", status.pid()},
                         {"started_unix_ns", status.started_unix_ns()},
                         {"data_folder", status.data_folder()},
                         {"serving", status.serving()},
                         {"reason", status.reason()},
                         {"free_bytes", status.free_bytes()},
                         {"accepts_jobs", status.accepts_jobs()}};
  json["workers"] = Json::array();
  for (const ListWorkersResponse::Worker& worker : workers.workers()) {
    json["workers"].push_back(WorkerToJson(worker));
  }
  json["jobs"] = Json::object();
  for (const auto& [state, count] : status.jobs()) json["jobs"][state] = count;
  return json;
}

void PrintTable(const CoordinatorStatus& status, const ListWorkersResponse& workers) {
  std::printf("coordinator %s, pid %lld on %s, term %lld: %s\n", status.version().c_str(),
              static_cast<long long>(status.pid()), status.host().c_str(), static_cast<long long>(status.term()),
              !status.serving()       ? absl::StrCat("not serving: ", status.reason()).c_str()
              : status.accepts_jobs() ? "serving"
                                      : "serving, but its disk is nearly full: it accepts no jobs");
  for (const auto& [state, count] : status.jobs()) {
    std::printf("  %lld %s\n", static_cast<long long>(count), state.c_str());
  }
  std::printf("%-20s %-16s %8s %8s %-10s %-14s %s\n", "WORKER", "HOST", "PID", "DEVICES", "STATE", "JOB", "REASON");
  for (const ListWorkersResponse::Worker& worker : workers.workers()) {
    std::printf("%-20s %-16s %8lld %8d %-10s %-14s %s\n", worker.id().c_str(), worker.host().c_str(),
                static_cast<long long>(worker.pid()), worker.devices(), worker.state().c_str(), worker.job_id().c_str(),
                worker.reason().c_str());
  }
}

int Run(const Endpoint& endpoint, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto status = (*client)->Status();
  if (!status.ok()) return Fail(status.status());
  ListWorkersResponse workers;
  if (status->serving()) {
    auto listed = (*client)->ListWorkers();
    if (!listed.ok()) return Fail(listed.status());
    workers = *std::move(listed);
  }
  if (format == "json") {
    std::printf("%s\n", ToJson(*status, workers).dump(2).c_str());
  } else {
    PrintTable(*status, workers);
  }
  return kOk;
}

}  // namespace

void AddStatus(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("status", "print the state of a coordinator and its workers");
  app->footer("Example:\n  xlad status --coordinator 127.0.0.1:7411 --format json");
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return Run(*endpoint, *format); }; });
}

}  // namespace xlad::cli
