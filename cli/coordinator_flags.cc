#include "cli/coordinator_flags.h"

#include "cli/flag_checks.h"
#include "cli/wrong_usage.h"

namespace xlad::cli {

void AddCoordinatorFlags(CLI::App* app, CoordinatorFlags* flags) {
  service::CoordinatorOptions& options = flags->coordinator;
  app->add_option("--suspect-ms", options.suspect_ms,
                  "a worker that has sent nothing for this long is suspect: it gets no new work")
      ->capture_default_str()
      ->check(MillisecondsFrom(100));
  app->add_option("--lost-ms", options.lost_ms,
                  "a worker that has sent nothing for this long is lost: its attempts end")
      ->capture_default_str()
      ->check(MillisecondsFrom(100));
  app->add_option("--reserve", options.min_free_bytes,
                  "free space on the data folder's disk, in bytes or as 64MB or 1GB, below which submissions are "
                  "refused; uploads are refused below twice as much")
      ->transform(ByteSize())
      ->capture_default_str();
  app->add_option("--keep-jobs", options.keep_ended_jobs, "how many ended jobs are kept; older ones are removed")
      ->capture_default_str()
      ->check(AtLeast(0));
  app->add_option("--keep-days", flags->keep_days, "for how many days ended jobs are kept")
      ->capture_default_str()
      ->check(Between(0, 36'500));
  app->add_option("--clean-every-ms", options.compact_interval_ms,
                  "how often ended jobs, old events of the log and blobs that no job needs are removed")
      ->capture_default_str()
      ->check(MillisecondsFrom(100));
  app->add_flag("--share-workers", options.share_workers,
                "jobs of different users may run on one worker at the same time");
  app->add_option("--build-memory", flags->build_memory_bytes,
                  "memory that each build of a program may use, in bytes or as 2GB; 0: no limit")
      ->transform(ByteSize())
      ->capture_default_str();
}

absl::StatusOr<service::CoordinatorOptions> CoordinatorFlags::Options() const {
  if (coordinator.lost_ms < coordinator.suspect_ms) {
    return WrongUsage(
        absl::InvalidArgumentError(absl::StrCat("found --lost-ms ", coordinator.lost_ms, " below --suspect-ms ",
                                                coordinator.suspect_ms, ", expected at least as much")));
  }
  service::CoordinatorOptions options = coordinator;
  options.keep_ended_ms = keep_days * 24 * 3'600'000;
  return options;
}

}  // namespace xlad::cli
