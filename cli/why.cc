#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "cli/command.h"
#include "cli/job_time.h"
#include "client/coordinator_client.h"

namespace xlad::cli {
namespace {

nlohmann::ordered_json List(const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return std::vector<std::string>(texts.begin(), texts.end());
}

int RunWhy(const Endpoint& endpoint, const std::string& job_id, const std::string& format) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto why = (*client)->Why(job_id);
  if (!why.ok()) return Fail(why.status());
  if (format != "json") {
    std::printf("%s\n", why->text().c_str());
    return kOk;
  }
  const nlohmann::ordered_json json = {{"text", why->text()},
                                       {"what", why->what()},
                                       {"since_unix_ns", why->since_unix_ns()},
                                       {"submitted_by", why->submitted_by()},
                                       {"who", List(why->who())},
                                       {"evidence", List(why->evidence())},
                                       {"done", List(why->done())},
                                       {"advice", List(why->advice())},
                                       {"time_s", TimeToJson(why->time())}};
  std::printf("%s\n", JsonText(json, 2).c_str());
  return kOk;
}

}  // namespace

void AddWhy(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto job_id = std::make_shared<std::string>();
  auto format = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("why", "explain the state of a job: since when, evidence, what you can do");
  app->footer("Example:\n  xlad why job-1a2b3c4d --coordinator 127.0.0.1:7411");
  app->add_option("JOB", *job_id, "the job's id")->required();
  AddFormatFlag(app, format.get());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunWhy(*endpoint, *job_id, *format); }; });
}

}  // namespace xlad::cli
