#include "service/attempts/damaged_checkpoint.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "service/state/messages.h"
#include "storage/checkpoint_index.h"
#include "storage/job_uris.h"

namespace xlad::service {
namespace {

// Returns the checkpoint before the one with this URI in the list of the job that made it, or null if there is none.
// The URI may be that of the index in the folder of the checkpoint.
const Checkpoint* OlderThan(const Context& context, const std::string& uri) {
  const absl::string_view folder = absl::StripSuffix(uri, absl::StrCat("/", storage::kIndexFileName));
  for (const auto& [number, job] : context.jobs.by_number()) {
    const auto is_it = [&](const Checkpoint& checkpoint) { return checkpoint.uri == uri || checkpoint.uri == folder; };
    const auto found = std::find_if(job->checkpoints.begin(), job->checkpoints.end(), is_it);
    if (found != job->checkpoints.end()) return found == job->checkpoints.begin() ? nullptr : &*(found - 1);
  }
  return nullptr;
}

// Whether the message says that the checkpoint from which the job's starting attempt begins is damaged.
bool FindsDamage(const Job& job, const TaskFailed& message) {
  const std::string& uri = job.placed.checkpoint_uri();
  if (job.state != STARTING || uri.empty() || !message.suspect_worker().empty()) return false;
  // A file may be missing because a file system is not mounted, but a blob that the coordinator lacks is lost.
  const auto code = static_cast<absl::StatusCode>(message.error_code());
  const bool is_lost = code == absl::StatusCode::kNotFound && absl::StartsWith(uri, "xlad:");
  return (is_lost || code == absl::StatusCode::kDataLoss) &&
         absl::StrContains(message.error(), storage::StateContext(uri) + ": ");
}

// Returns the host of the worker when the job was placed.
std::string HostOf(const Job& job, const WorkerId& worker) {
  for (const Peer& peer : job.placed.peers()) {
    if (peer.worker_id() == worker.str()) return peer.host();
  }
  return "";
}

std::string DamageText(const Job& job) {
  return absl::StrCat("found in ", job.damaged_attempts, " attempts in a row: ",
                      absl::StrJoin(job.findings, "; ", [](std::string* out, const DamageFinding& finding) {
                        absl::StrAppend(out, finding.what());
                      }));
}

}  // namespace

void NoteDamage(const Job& job, const WorkerId& worker, const TaskFailed& message, Attempt* attempt) {
  if (!FindsDamage(job, message) || std::ssize(attempt->findings) == Attempt::kMaxFindings) return;
  // A worker repeats its message after a reconnection.
  const auto is_known = [&](const DamageFinding& finding) { return finding.worker() == worker.str(); };
  if (std::any_of(attempt->findings.begin(), attempt->findings.end(), is_known)) return;
  DamageFinding finding;
  finding.set_worker(worker.str());
  finding.set_host(HostOf(job, worker));
  finding.set_what(absl::StrCat(Context::WorkerText(job, worker.str()), ": ", Shortened(message.error())));
  // The first failure of the attempt may have another cause.
  const bool is_first = absl::StrContains(attempt->failure, Shortened(message.error()));
  if (!is_first) absl::StrAppend(&attempt->failure, "; ", finding.what());
  attempt->findings.push_back(std::move(finding));
}

bool IsConfirmedDamage(const Job& job) {
  std::set<std::string> hosts;
  for (const DamageFinding& finding : job.findings) {
    if (!finding.host().empty()) hosts.insert(finding.host());
  }
  return job.damaged_attempts >= kFindingsOfOneHost || (job.damaged_attempts >= 2 && hosts.size() >= 2);
}

std::string DropDamaged(Context& context, Job* job) {
  const std::string damage = DamageText(*job);
  JobEvent event = context.NewEvent(job->id);
  CheckpointsDropped* dropped = event.mutable_dropped();
  dropped->set_damage(damage);
  dropped->set_damaged_uri(job->damaged_uri);
  if (!job->checkpoints.empty() && job->checkpoints.back().uri == job->damaged_uri) {
    if (job->checkpoints.size() == 1) {
      return absl::StrCat(damage, "; it is the job's last checkpoint, and it is kept; xlad ckpt verify ",
                          job->damaged_uri, " lists the damage; if other workers can read it, submit the job with ",
                          "--resume ", job->id.str(), ", otherwise without --resume");
    }
    dropped->add_steps(job->checkpoints.back().step);
  } else {
    const Checkpoint* const older = OlderThan(context, job->resumed.uri);
    if (older == nullptr) {
      return absl::StrCat(damage, "; found no older checkpoint, expected one of the job that this job continues; xlad ",
                          "ckpt verify ", job->damaged_uri, " lists the damage; submit the job with --resume and ",
                          "another checkpoint");
    }
    dropped->set_first_step(older->step);
    dropped->set_resumed_uri(older->uri);
    dropped->set_resumed_digest(older->digest);
  }
  LogError("a damaged checkpoint is dropped, its files are kept",
           {{"job", job->id.str()}, {"checkpoint", job->damaged_uri}, {"damage", damage}});
  context.Record(std::move(event));
  context.Changed(job->id);
  return "";
}

}  // namespace xlad::service
