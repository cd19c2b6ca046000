#include <cstdio>
#include <ctime>

#include "cli/command.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

int RunLogs(const Endpoint& endpoint, const std::string& job_id) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto log = (*client)->Log(job_id);
  if (!log.ok()) return Fail(log.status());
  for (const auto& event : log->events()) {
    const std::time_t seconds = event.unix_ns() / 1'000'000'000;
    char time[32];
    std::strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", std::gmtime(&seconds));
    std::printf("%s.%03d  %s\n", time, static_cast<int>(event.unix_ns() / 1'000'000 % 1000), event.text().c_str());
  }
  const auto status = (*client)->GetJob(job_id);
  if (status.ok()) std::printf("folder on the coordinator: %s\n", status->directory().c_str());
  return kOk;
}

}  // namespace

void AddLogs(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("logs", "print the events of a job (times in UTC)");
  app->footer("Example:\n  xlad logs job-1a2b3c4d --coordinator 127.0.0.1:7411");
  app->add_option("JOB", *job_id, "the job's id")->required();
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunLogs(*endpoint, *job_id); }; });
}

}  // namespace xlad::cli
