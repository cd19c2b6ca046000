#include "service/job.h"

#include "absl/strings/str_join.h"
#include "base/status.h"

namespace xlad::service {
namespace {

void ApplySubmitted(const JobEvent& event, Job* job) {
  job->id = event.job_id();
  job->client_key = event.submitted().client_key();
  job->spec_digest = event.submitted().spec_digest();
  job->spec = event.submitted().spec();
  job->state = PENDING;
  job->submitted_unix_ns = event.unix_ns();
}

void ApplyPlaced(const AttemptPlaced& placed, Job* job) {
  job->attempt = placed.attempt();
  job->placed = placed;
  job->attempt_running = true;
  job->lost_worker.clear();
  job->state = STARTING;
  job->reason.clear();
  job->step = placed.first_step();
}

void ApplyAttemptEnded(const AttemptEnded& ended, Job* job) {
  job->attempt_running = false;
  job->lost_worker = ended.lost_worker();
  job->reason = ended.reason();
  job->state = PENDING;
  if (!ended.state_blob().empty()) {
    job->first_step = ended.step();
    job->state_blob = ended.state_blob();
  } else {
    ++job->failures;
  }
}

}  // namespace

void Apply(const JobEvent& event, Job* job) {
  switch (event.event_case()) {
    case JobEvent::kSubmitted: return ApplySubmitted(event, job);
    case JobEvent::kBuilt:
      job->executable_digest = event.built().executable_digest();
      job->compile_ms = event.built().compile_ms();
      job->cached = event.built().cached();
      job->state = PENDING;
      return;
    case JobEvent::kPlaced: return ApplyPlaced(event.placed(), job);
    case JobEvent::kStarted: job->state = RUNNING; return;
    case JobEvent::kAdopted: job->state = RUNNING; return;
    case JobEvent::kAttemptEnded: return ApplyAttemptEnded(event.attempt_ended(), job);
    case JobEvent::kEnded:
      job->attempt_running = false;
      job->state = event.ended().state();
      job->reason = event.ended().reason();
      job->final_state_blob = event.ended().final_state_blob();
      return;
    case JobEvent::EVENT_NOT_SET: break;
  }
  XLAD_CHECK(false) << "event " << event.sequence() << " of job " << event.job_id() << " has no kind";
}

std::string Describe(const JobEvent& event) {
  switch (event.event_case()) {
    case JobEvent::kSubmitted:
      if (event.submitted().spec().session()) {
        return absl::StrCat("opened session \"", event.submitted().spec().name(), "\" on ",
                            DeviceCount(event.submitted().spec()), " devices");
      }
      return absl::StrCat("submitted \"", event.submitted().spec().name(), "\", ", event.submitted().spec().steps(),
                          " steps on ", DeviceCount(event.submitted().spec()), " devices");
    case JobEvent::kBuilt:
      return absl::StrCat(event.built().cached() ? "found executable " : "built executable ",
                          event.built().executable_digest().substr(0, 12),
                          event.built().cached() ? " in the cache in " : " in ",
                          static_cast<int64_t>(event.built().compile_ms()), " ms");
    case JobEvent::kPlaced:
      return absl::StrCat("attempt ", event.placed().attempt(), " from step ", event.placed().first_step(),
                          " placed on ",
                          absl::StrJoin(event.placed().peers(), ", ", [](std::string* out, const Peer& peer) {
                            absl::StrAppend(out, peer.worker_id(), " (", peer.host(), ", pid ", peer.pid(), ", ",
                                            peer.devices_size(), " devices)");
                          }));
    case JobEvent::kStarted: return absl::StrCat("attempt ", event.started().attempt(), " running");
    case JobEvent::kAdopted:
      return absl::StrCat("attempt ", event.adopted().attempt(), " adopted at step ", event.adopted().step(),
                          " after a coordinator restart");
    case JobEvent::kAttemptEnded:
      return absl::StrCat("attempt ", event.attempt_ended().attempt(), " ended: ", event.attempt_ended().reason());
    case JobEvent::kEnded:
      return absl::StrCat(JobState_Name(event.ended().state()), event.ended().reason().empty() ? "" : ": ",
                          event.ended().reason());
    case JobEvent::EVENT_NOT_SET: break;
  }
  return "unknown event";
}

void NoteLoss(const StepMetrics& metrics, Job* job) {
  int column = 0;
  for (const JobSpec::Result& result : job->spec.results()) {
    const bool is_loss = result.kind() == JobSpec::Result::LOSS;
    if (!is_loss && result.kind() != JobSpec::Result::METRIC) continue;
    if (is_loss && column < metrics.values_size()) {
      job->has_loss = true;
      job->loss = metrics.values(column);
      return;
    }
    ++column;
  }
}

int64_t DeviceCount(const JobSpec& spec) {
  int64_t devices = 1;
  for (const MeshAxis& axis : spec.mesh()) devices *= axis.size();
  return devices;
}

}  // namespace xlad::service
