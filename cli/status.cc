#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/job_time.h"
#include "cli/worker_json.h"
#include "client/coordinator_client.h"
#include "proto/mesh.h"
#include "service/goodput.h"

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
                         {"accepts_jobs", status.accepts_jobs()},
                         {"builds_not_isolated", status.builds_not_isolated()}};
  json["workers"] = Json::array();
  for (const ListWorkersResponse::Worker& worker : workers.workers()) {
    json["workers"].push_back(WorkerToJson(worker));
  }
  json["jobs"] = Json::object();
  for (const auto& [state, count] : status.jobs()) json["jobs"][state] = count;
  return json;
}

void PrintTable(const CoordinatorStatus& status, const ListWorkersResponse& workers) {
  absl::PrintF("coordinator %s, pid %d on %s, term %d: %s\n", status.version(), status.pid(), status.host(),
               status.term(),
               !status.serving()       ? absl::StrCat("not serving: ", status.reason()).c_str()
               : status.accepts_jobs() ? "serving"
                                       : "serving, but its disk is nearly full: it accepts no jobs");
  if (!status.builds_not_isolated().empty()) {
    std::printf("  builds are not isolated (%s): a malicious program could take over the coordinator\n",
                status.builds_not_isolated().c_str());
  }
  for (const auto& [state, count] : status.jobs()) {
    absl::PrintF("  %d %s\n", count, state);
  }
  std::printf("%-20s %-16s %8s %8s %-10s %-14s %s\n", "WORKER", "HOST", "PID", "DEVICES", "STATE", "JOB", "REASON");
  for (const ListWorkersResponse::Worker& worker : workers.workers()) {
    absl::PrintF("%-20s %-16s %8d %8d %-10s %-14s %s\n", worker.id(), worker.host(), worker.pid(), worker.devices(),
                 worker.state(), worker.job_id(), worker.reason());
  }
}

Json RunningJobToJson(const JobStatus& job) {
  return {{"id", job.id()},
          {"name", job.name()},
          {"state", JobState_Name(job.state())},
          {"reason", job.reason()},
          {"mesh", MeshText(job.mesh())},
          {"step", job.step()},
          {"steps", job.steps()},
          {"attempt", job.attempt()},
          {"goodput", GoodputOf(job.time())},
          {"time_s", TimeToJson(job.time())}};
}

void PrintJobs(const std::vector<JobStatus>& jobs) {
  if (jobs.empty()) return;
  std::printf("%-14s %-20s %-10s %15s %8s  %s\n", "JOB", "NAME", "STATE", "STEP", "GOODPUT", "TIME");
  for (const JobStatus& job : jobs) {
    std::printf("%-14s %-20.20s %-10s %15s %6.1f %%  %s\n", job.id().c_str(), job.name().c_str(),
                JobState_Name(job.state()).c_str(), absl::StrCat(job.step(), "/", job.steps()).c_str(),
                100 * GoodputOf(job.time()), service::TimeText({job.time().begin(), job.time().end()}).c_str());
  }
}

// The jobs, except sessions, that have devices, with their time by cause.
absl::StatusOr<std::vector<JobStatus>> RunningJobs(client::CoordinatorClient& client) {
  ListJobsRequest request;
  request.set_placed(true);
  request.set_with_time(true);
  XLAD_ASSIGN_OR_RETURN(std::vector<JobStatus> jobs, client.ListJobs(request));
  // An older coordinator ignores `placed` and lists all jobs.
  std::erase_if(jobs, [](const JobStatus& job) {
    return job.session() || (job.state() != STARTING && job.state() != RUNNING);
  });
  return jobs;
}

absl::Status PrintOneJob(client::CoordinatorClient& client, const std::string& job_id, bool json) {
  XLAD_ASSIGN_OR_RETURN(JobStatus job, client.GetJob(job_id));
  XLAD_ASSIGN_OR_RETURN(const WhyJobResponse why, client.Why(job_id));
  *job.mutable_time() = why.time();
  if (json) {
    std::printf("%s\n", JsonText(RunningJobToJson(job), 2).c_str());
  } else {
    PrintJobs({job});
    if (!job.reason().empty()) std::printf("  %s\n", job.reason().c_str());
  }
  return absl::OkStatus();
}

absl::Status PrintAll(client::CoordinatorClient& client, bool json) {
  XLAD_ASSIGN_OR_RETURN(const CoordinatorStatus status, client.Status());
  ListWorkersResponse workers;
  std::vector<JobStatus> jobs;
  if (status.serving()) {
    XLAD_ASSIGN_OR_RETURN(workers, client.ListWorkers());
    XLAD_ASSIGN_OR_RETURN(jobs, RunningJobs(client));
  }
  if (!json) {
    PrintTable(status, workers);
    PrintJobs(jobs);
    return absl::OkStatus();
  }
  Json all = ToJson(status, workers);
  all["running"] = Json::array();
  for (const JobStatus& job : jobs) all["running"].push_back(RunningJobToJson(job));
  std::printf("%s\n", JsonText(all, 2).c_str());
  return absl::OkStatus();
}

int RunStatus(const Endpoint& endpoint, const std::string& job_id, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const bool json = format == "json";
  const absl::Status printed = job_id.empty() ? PrintAll(**client, json) : PrintOneJob(**client, job_id, json);
  return printed.ok() ? kOk : Fail(printed);
}

}  // namespace

void AddStatus(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("status", "print the state of a coordinator and its workers, or of one job");
  app->footer("Examples:\n  xlad status --coordinator 127.0.0.1:7411 --format json\n  xlad status job-1a2b3c4d");
  app->add_option("JOB", *job_id, "the id of a job, also of one that has ended");
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunStatus(*endpoint, *job_id, *format); }; });
}

}  // namespace xlad::cli
