// `xlad backup` and `xlad restore`.
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/counted.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "client/coordinator_client.h"
#include "service/restore.h"

namespace xlad::cli {
namespace {

int RunBackup(const Endpoint& endpoint, const std::string& folder) {
  const auto client = client::CoordinatorClient::Connect(endpoint);
  if (!client.ok()) return Fail(client.status());
  const auto backup = (*client)->Backup(std::filesystem::absolute(folder).string());
  if (!backup.ok()) return Fail(backup.status());
  absl::PrintF("%s, %d bytes, and the job log are in %s\n", Counted(backup->blobs(), "blob"), backup->bytes(), folder);
  return kOk;
}

int RunRestore(const std::string& backup, const std::string& data_folder) {
  const auto term = service::RestoreBackup(backup, data_folder, RealClock().WallNs());
  if (!term.ok()) return Fail(term.status());
  absl::PrintF("restored to %s in term %d; start it: xlad coordinator --data %s\n", data_folder, *term, data_folder);
  return kOk;
}

}  // namespace

void AddBackup(CLI::App& parent, Action* action) {
  auto endpoint = std::make_shared<Endpoint>();
  auto folder = std::make_shared<std::string>();
  CLI::App* app = parent.add_subcommand("backup", "copy the jobs and blobs of a running coordinator into a folder");
  app->footer("Example:\n  xlad backup /backups/monday --coordinator 127.0.0.1:7411");
  app->add_option("DIR", *folder, "a new or empty folder on the coordinator's machine")->required()->check(NotEmpty());
  AddEndpointFlags(app, endpoint.get());
  app->callback([=] { *action = [=] { return RunBackup(*endpoint, *folder); }; });
}

void AddRestore(CLI::App& parent, Action* action) {
  auto backup = std::make_shared<std::string>();
  auto data_folder = std::make_shared<std::string>("xlad-data");
  CLI::App* app = parent.add_subcommand("restore", "make a coordinator's data folder from a backup");
  app->footer("Example:\n  xlad restore /backups/monday --data /var/lib/xlad\n"
              "A worker that has connected to the restored coordinator refuses a coordinator on the old folder.");
  app->add_option("DIR", *backup, "the backup")->required()->check(NotEmpty());
  app->add_option("--data", *data_folder, "a new or empty folder for the coordinator")
      ->capture_default_str()
      ->check(NotEmpty());
  app->callback([=] { *action = [=] { return RunRestore(*backup, *data_folder); }; });
}

}  // namespace xlad::cli
