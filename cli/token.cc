// `xlad token`: issues, lists and revokes tokens, even while the coordinator runs.
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file_system.h"
#include "base/json_text.h"
#include "cli/command.h"
#include "cli/flag_checks.h"
#include "security/private_files.h"
#include "security/tokens.h"
#include "service/credentials/managed_security.h"

namespace xlad::cli {
namespace {

struct TokenOptions {
  std::string data = "xlad-data";
  std::string role, user, output, revoke, format;
  int64_t days = 30;
  bool list = false;
};

std::string Date(int64_t unix_s) {
  const std::time_t time = unix_s;
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%SZ", std::gmtime(&time));
  return text;
}

int List(const security::TokenStore& tokens, const std::string& data, const std::string& format) {
  if (!RealFileSystem().IsDirectory(data)) {
    return Fail(
        absl::NotFoundError(absl::StrCat("--data: found no folder ", data, ", expected that of a coordinator")));
  }
  const auto list = tokens.List();
  if (!list.ok()) return Fail(list.status());
  const int64_t now = RealClock().WallNs() / kNsPerSecond;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  if (format != "json") std::printf("%-14s %-10s %-20s %-22s %-22s\n", "ID", "ROLE", "USER", "CREATED", "EXPIRES");
  for (const security::TokenRecord& record : list->records) {
    const std::string role(RoleName(record.role));
    json.push_back({{"id", record.id},
                    {"role", role},
                    {"user", record.user},
                    {"created_unix_s", record.created_unix_s},
                    {"expires_unix_s", record.expires_unix_s},
                    {"expired", record.expires_unix_s <= now}});
    if (format == "json") continue;
    std::printf("%-14s %-10s %-20s %-22s %-22s%s\n", record.id.c_str(), role.c_str(), record.user.c_str(),
                Date(record.created_unix_s).c_str(), Date(record.expires_unix_s).c_str(),
                record.expires_unix_s <= now ? " expired" : "");
  }
  if (format == "json") std::printf("%s\n", JsonText(json, 2).c_str());
  std::fflush(stdout);
  int code = kOk;
  for (const absl::Status& status : list->unreadable) {
    code = Fail(Annotate(status, "a token is not listed and is refused; remove its file and issue another one"));
  }
  return code;
}

std::string CheckUser(const std::string& name) {
  return security::IsUserName(name) ? "" : Found(name, security::kUserNameText);
}

std::string CheckId(const std::string& id) { return id.empty() ? Found(id, "an ID of xlad token --list") : ""; }

int RunToken(TokenOptions options) {
  security::TokenStore tokens(service::TokenFolder(options.data), &RealClock());
  if (options.list) return List(tokens, options.data, options.format);
  if (!options.revoke.empty()) {
    const absl::Status revoked = tokens.Revoke(options.revoke);
    return revoked.ok() ? kOk : Fail(revoked);
  }
  if (options.role.empty()) {
    return Fail(
        WrongUsage(absl::InvalidArgumentError("found no --role, expected reader, submitter, worker or operator")));
  }
  const auto role = security::ParseRole(options.role);
  XLAD_CHECK(role.has_value());  // The flag's check has accepted it.
  if (options.user.empty()) options.user = *role == security::Role::kWorker ? "worker" : OwnUserName();
  const auto join = service::MakeJoinFile(options.data, {options.user, *role}, options.days * 86'400);
  if (!join.ok()) return Fail(join.status());
  const std::string text = security::FormatJoinFile(*join);
  const absl::Status written = options.output.empty() || options.output == "-"
                                   ? WriteOutput("", text)
                                   : security::WritePrivateFile(options.output, text);
  if (!written.ok()) return Fail(written);
  absl::FPrintF(stderr, "token %s: role %s, user %s, valid for %s\n", security::TokenId(join->token), options.role,
                options.user, Counted(options.days, "day"));
  return kOk;
}

}  // namespace

void AddToken(CLI::App& parent, Action* action) {
  auto options = std::make_shared<TokenOptions>();
  CLI::App* app = parent.add_subcommand("token", "issue, list and revoke tokens of a coordinator");
  app->footer(
      "Examples:\n  xlad token --data /var/lib/xlad --role worker -o worker.join\n"
      "  xlad token --data /var/lib/xlad --role submitter --user alice --days 7 -o alice.join\n"
      "  xlad token --data /var/lib/xlad --list\n  xlad token --data /var/lib/xlad --revoke 0123456789ab\n"
      "The coordinator may be running. It must have listened at least once on an address other than loopback, without\n"
      "--tls-cert.");
  app->add_option("--data", options->data, "the coordinator's data folder")->capture_default_str();
  CLI::Option* const role =
      app->add_option("--role", options->role, "reader, submitter, worker or operator (docs/reference/security.md)")
          ->check(OneOf({"reader", "submitter", "worker", "operator"}));
  CLI::Option* const user =
      app->add_option("--user", options->user,
                      "owner of the jobs that are submitted with the token; default: the user who runs this command, "
                      "or \"worker\" for --role worker")
          ->check(CLI::Validator(CheckUser, ""));
  CLI::Option* const days = app->add_option("--days", options->days, "how long the token is valid")
                                ->capture_default_str()
                                ->check(Between(1, 3650));
  CLI::Option* const output =
      app->add_option("-o,--output", options->output, "file, which only you can read; default: standard output")
          ->check(OutputFile());  // Before a token is issued.
  CLI::Option* const list = app->add_flag("--list", options->list, "list all tokens");
  CLI::Option* const revoke =
      app->add_option("--revoke", options->revoke, "ID of a token, which is refused from now on")
          ->check(CLI::Validator(CheckId, ""))
          ->excludes(list);
  for (CLI::Option* const of_new_token : {role, user, days, output}) of_new_token->excludes(list)->excludes(revoke);
  AddFormatFlag(app, &options->format);
  for (const char* const of_list : {"--format", "--json"}) app->get_option(of_list)->excludes(role)->excludes(revoke);
  app->callback([=] { *action = [=] { return RunToken(*options); }; });
}

}  // namespace xlad::cli
