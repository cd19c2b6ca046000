#include <cstdio>

#include "cli/command.h"
#include "cli/flag_checks.h"
#include "cli/timeline.h"
#include "client/coordinator_client.h"
#include "observe/timeline.h"

namespace xlad::cli {
namespace {

int RunTrace(const Endpoint& endpoint, const std::string& job_id, const std::string& path) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto timeline = FetchTimeline(**client, job_id);
  if (!timeline.ok()) return Fail(timeline.status());
  const absl::Status written = WriteOutput(path, *timeline);
  if (!written.ok()) return Fail(written);
  if (!path.empty() && path != "-") std::fprintf(stderr, "timeline: %s (open it at ui.perfetto.dev)\n", path.c_str());
  return kOk;
}

}  // namespace

absl::StatusOr<std::string> FetchTimeline(client::CoordinatorClient& client, const std::string& job_id) {
  XLAD_ASSIGN_OR_RETURN(const JobLogResponse log, client.Log(job_id));
  XLAD_ASSIGN_OR_RETURN(const std::string file, client.Trace(job_id));
  observe::Traces traces = observe::ReadTraces(file);
  observe::Align(&traces);
  return observe::TimelineJson(job_id, log.events(), traces);
}

void AddTrace(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto path = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("trace", "write the timeline of a job: what ran when on which device");
  app->footer(
      "Example:\n  xlad trace job-1a2b3c4d -o trace.json\n"
      "The timeline has the instructions, collectives and messages of all ranks on one clock. The job may still run.\n"
      "The first 16 steps of each attempt are recorded, and then 8 steps each time the number of steps doubles\n"
      "(docs/howto/trace.md).");
  app->add_option("JOB", *job_id, "the job's id")->required();
  app->add_option("-o,--output", *path, "the file; default: standard output")->check(OutputFile());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunTrace(*endpoint, *job_id, *path); }; });
}

}  // namespace xlad::cli
