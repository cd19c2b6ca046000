#include "cli/recovery_flags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/quoted.h"
#include "cli/flag_checks.h"
#include "storage/uri.h"

namespace xlad::cli {
namespace {

// An interval in steps or in milliseconds. The member for the other unit is 0. Both are 0 if the text is malformed.
struct Every {
  int64_t steps = 0, ms = 0;
};

Every ParseEvery(const std::string& text) {
  constexpr int64_t kMaxNumber = 1'000'000'000;
  int64_t number = 0;
  const auto parse = [&number](absl::string_view digits) {
    return absl::SimpleAtoi(digits, &number) && number > 0 && number <= kMaxNumber;
  };
  if (parse(text)) return {number, 0};
  for (const auto& [unit, ms] : {std::pair("ms", 1), std::pair("s", 1000), std::pair("m", 60'000)}) {
    absl::string_view digits = text;
    if (absl::ConsumeSuffix(&digits, unit) && parse(digits)) return {0, number * ms};
  }
  return {};
}

std::string CheckEvery(const std::string& text) {
  const Every every = ParseEvery(text);
  if (every.steps > 0 || every.ms > 0) return "";
  return absl::StrCat("found \"", text,
                      "\", expected a number of steps of 1 or more, or a time such as 500ms, 30s or 5m");
}

std::string CheckCheckpointUri(const std::string& text) {
  if (storage::IsCheckpointUri(text)) return "";
  return absl::StrCat("found ", Quoted(text), ", expected \"xlad:\", or file: and the absolute path of a folder");
}

}  // namespace

void AddRecoveryFlags(CLI::App* app, RecoveryFlags* flags) {
  app->add_option("--checkpoint-every", flags->checkpoint_every,
                  "save the state every N steps, or every 30s or 5m; default: every 5m")
      ->check(CLI::Validator(CheckEvery, "N|TIME"));
  app->add_option("--checkpoint-keep", flags->checkpoint_keep, "how many checkpoints are kept; default: 2")
      ->check(AtLeast(1));
  app->add_option("--checkpoint-to", flags->checkpoint_to,
                  "a folder that all workers share, in the form file:/PATH; default: the coordinator keeps the "
                  "checkpoints")
      ->check(CLI::Validator(CheckCheckpointUri, "URI"));
  app->add_option("--resume", flags->resume, "start from the newest checkpoint of a job, or from a checkpoint's URI")
      ->check(NotEmpty());
  app->add_option(
         "--on-loss", flags->on_loss,
         "after the loss of a worker: restart (on any free devices), shrink (on fewer if there are not enough), "
         "wait (for the same workers)")
      ->capture_default_str()
      ->check(OneOf({"restart", "shrink", "wait"}));
  app->add_option("--shrink-axes", flags->shrink_axes,
                  "mesh axes that shrink may reduce; default: those that split only the batch")
      ->delimiter(',');
  app->add_option(
         "--attempts", flags->attempts,
         "how many attempts in a row may fail without a newly committed checkpoint before the job fails; 0, the "
         "default: any number. A program that fails twice in a row with the same error at the same step ends the job "
         "in any case")
      ->check(AtLeast(0));
  app->add_flag("--stop-when-not-finite", flags->stop_when_not_finite,
                "fail at the first step whose loss or metric is NaN or infinite");
}

void ApplyRecoveryFlags(const RecoveryFlags& flags, JobSpec* spec) {
  const Every every = ParseEvery(flags.checkpoint_every);
  if (every.steps > 0) spec->mutable_checkpoint()->set_every_steps(every.steps);
  if (every.ms > 0) spec->mutable_checkpoint()->set_every_ms(every.ms);
  if (flags.checkpoint_keep > 0) spec->mutable_checkpoint()->set_keep(flags.checkpoint_keep);
  if (!flags.checkpoint_to.empty()) spec->mutable_checkpoint()->set_uri(flags.checkpoint_to);
  spec->set_resume(flags.resume);
  spec->set_max_attempts(flags.attempts);
  // --check-numerics does not report a NaN in the data, because no instruction makes it. The job must fail at such a
  // NaN too.
  spec->set_stop_when_not_finite(flags.stop_when_not_finite || spec->compile().check_numerics());
  spec->set_on_loss(flags.on_loss == "shrink" ? JobSpec::SHRINK
                    : flags.on_loss == "wait" ? JobSpec::WAIT
                                              : JobSpec::RESTART);
  for (const std::string& axis : flags.shrink_axes) spec->add_shrink_axes(axis);
}

}  // namespace xlad::cli
