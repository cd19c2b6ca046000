#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/job_json.h"
#include "client/coordinator_client.h"
#include "proto/mesh.h"

namespace xlad::cli {
namespace {

int RunPs(const Endpoint& endpoint, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto jobs = (*client)->ListJobs();
  if (!jobs.ok()) return Fail(jobs.status());
  if (format == "json") {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const JobStatus& job : *jobs) json.push_back(JobToJson(job));
    std::printf("%s\n", JsonText(json, 2).c_str());
    return kOk;
  }
  std::printf("%-14s %-16s %-10s %-10s %-14s %13s %10s  %s\n", "ID", "NAME", "OWNER", "STATE", "MESH", "STEP", "LOSS",
              "WORKERS");
  for (const JobStatus& job : *jobs) {
    std::string workers;
    for (const JobWorker& worker : job.workers()) {
      absl::StrAppend(&workers, workers.empty() ? "" : " ", worker.id(),
                      worker.state() == "alive" ? "" : absl::StrCat("(", worker.state(), ")"));
    }
    char loss[32] = "-";
    if (job.has_loss()) std::snprintf(loss, sizeof loss, "%.5g", static_cast<double>(job.loss()));
    std::printf("%-14s %-16s %-10s %-10s %-14s %13s %10s  %s\n", job.id().c_str(), job.name().c_str(),
                job.owner().empty() ? "-" : job.owner().c_str(), JobState_Name(job.state()).c_str(),
                MeshText(job.mesh()).c_str(), absl::StrCat(job.step(), "/", job.steps()).c_str(), loss,
                workers.c_str());
    if (!job.reason().empty()) std::printf("  %s\n", job.reason().c_str());
  }
  return kOk;
}

}  // namespace

void AddPs(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("ps", "list the jobs of a coordinator");
  app->footer("Example:\n  xlad ps --coordinator 127.0.0.1:7411 --format json");
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunPs(*endpoint, *format); }; });
}

}  // namespace xlad::cli
