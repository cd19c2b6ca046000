#include "service/http/metrics_text.h"

#include "observe/prometheus.h"

namespace xlad::service {
namespace {

using observe::MetricsPage;

void AddCoordinator(const CoordinatorStatus& status, MetricsPage* page) {
  page->Family("xlad_build_info", "gauge", "Always 1; the version of the coordinator is a label.");
  page->Sample(1, {{"version", status.version()}});
  page->Gauge("xlad_coordinator_serving", "1 if the job log can be written, otherwise 0.", status.serving() ? 1 : 0);
  page->Gauge("xlad_coordinator_accepts_jobs", "0 if the disk is too full for further jobs, otherwise 1.",
              status.accepts_jobs() ? 1 : 0);
  page->Gauge("xlad_coordinator_term", "A number that grows each time that a coordinator begins to write this job log.",
              static_cast<double>(status.term()));
  page->Gauge("xlad_data_free_bytes", "Free space on the disk of the data folder.",
              static_cast<double>(status.free_bytes()));
  page->Family("xlad_jobs", "gauge", "Jobs by state. Ended jobs count as long as they are kept.");
  std::map<std::string, int64_t> counts(status.jobs().begin(), status.jobs().end());
  // Rates and alerts need a value of each state, even before the first job is in it.
  for (int state = JobState_MIN + 1; state <= JobState_MAX; ++state) counts.emplace(JobState_Name(state), 0);
  for (const auto& [state, count] : counts) page->Sample(static_cast<double>(count), {{"state", state}});
}

void AddWorkers(const ListWorkersResponse& workers, MetricsPage* page) {
  std::map<std::string, int64_t> counts, devices;
  for (const char* state : {"alive", "suspect", "draining", "drained", "lost"}) counts[state] = devices[state] = 0;
  for (const auto& worker : workers.workers()) {
    ++counts[worker.state()];
    devices[worker.state()] += worker.devices();
  }
  page->Family("xlad_workers", "gauge", "Workers by state.");
  for (const auto& [state, count] : counts) page->Sample(static_cast<double>(count), {{"state", state}});
  page->Family("xlad_devices", "gauge", "Devices of workers, by the state of the worker.");
  for (const auto& [state, count] : devices) page->Sample(static_cast<double>(count), {{"state", state}});
  page->Family("xlad_worker_silence_seconds", "gauge", "Time since the last message of a worker that is not lost.");
  for (const auto& worker : workers.workers()) {
    if (worker.state() != "lost")
      page->Sample(static_cast<double>(worker.silent_ms()) / 1e3, {{"worker", worker.id()}});
  }
}

void AddJobs(const Overview& overview, MetricsPage* page) {
  const auto family = [&](const char* name, const char* type, const char* help, const auto& value) {
    page->Family(name, type, help);
    for (const JobStatus& job : overview.jobs) {
      if (const std::optional<double> found = value(job)) page->Sample(*found, {{"job", job.id()}});
    }
  };
  using Value = std::optional<double>;
  family("xlad_job_steps", "gauge", "Finished steps of an open job.",
         [](const JobStatus& job) { return Value(static_cast<double>(job.step())); });
  family("xlad_job_attempts_total", "counter", "Attempts of an open job so far.",
         [](const JobStatus& job) { return Value(static_cast<double>(job.attempt())); });
  family("xlad_job_failures", "gauge", "Consecutive attempts of an open job that failed without a new checkpoint.",
         [](const JobStatus& job) { return Value(static_cast<double>(job.failures())); });
  family("xlad_job_workers", "gauge", "Workers that run an open job.",
         [](const JobStatus& job) { return Value(static_cast<double>(job.workers_size())); });
  family("xlad_job_checkpoint_step", "gauge", "The step of the newest checkpoint of an open job.",
         [](const JobStatus& job) {
           return job.has_checkpoint() ? Value(static_cast<double>(job.checkpoint_step())) : std::nullopt;
         });
  family("xlad_job_loss", "gauge", "The loss of the last finished step of an open job.",
         [](const JobStatus& job) { return job.has_loss() ? Value(static_cast<double>(job.loss())) : std::nullopt; });
  page->Family("xlad_job_time_seconds", "gauge", "The time of an open job, by cause.");
  for (const JobStatus& job : overview.jobs) {
    const auto found = overview.time.find(job.id());
    if (found == overview.time.end()) continue;
    for (const JobTime& time : found->second) {
      page->Sample(time.seconds(), {{"job", job.id()}, {"cause", time.cause()}});
    }
  }
  family("xlad_job_step_duration_seconds", "gauge", "The median time of the latest steps of an open job.",
         [&](const JobStatus& job) {
           const auto found = overview.step_seconds.find(job.id());
           return found == overview.step_seconds.end() ? std::nullopt : Value(found->second);
         });
}

}  // namespace

std::string MetricsText(const Overview& overview) {
  MetricsPage page;
  AddCoordinator(overview.status, &page);
  AddWorkers(overview.workers, &page);
  AddJobs(overview, &page);
  observe::AddProcess(&page);
  return page.text();
}

}  // namespace xlad::service
