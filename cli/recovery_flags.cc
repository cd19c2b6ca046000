#include "cli/recovery_flags.h"

#include "cli/command.h"

namespace xlad::cli {

void AddRecoveryFlags(CLI::App* app, RecoveryFlags* flags) {
  app->add_option("--checkpoint-every", flags->checkpoint_every,
                  "save the state every N steps; default: every 5 minutes")
      ->check(AtLeast(1));
  app->add_option("--resume", flags->resume, "start from the newest checkpoint of a job, or from a checkpoint's URI");
  app->add_option(
         "--on-loss", flags->on_loss,
         "after the loss of a worker: restart (on any free devices), shrink (on fewer if there are not enough), "
         "wait (for the same workers)")
      ->capture_default_str()
      ->check(CLI::IsMember({"restart", "shrink", "wait"}));
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
  if (flags.checkpoint_every > 0) spec->mutable_checkpoint()->set_every_steps(flags.checkpoint_every);
  spec->set_resume(flags.resume);
  spec->set_max_attempts(flags.attempts);
  spec->set_stop_when_not_finite(flags.stop_when_not_finite);
  spec->set_on_loss(flags.on_loss == "shrink" ? JobSpec::SHRINK
                    : flags.on_loss == "wait" ? JobSpec::WAIT
                                              : JobSpec::RESTART);
  for (const std::string& axis : flags.shrink_axes) spec->add_shrink_axes(axis);
}

}  // namespace xlad::cli
