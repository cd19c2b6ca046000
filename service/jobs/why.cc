#include "service/jobs/why.h"

#include <optional>

#include "absl/strings/str_join.h"
#include "base/counted.h"
#include "service/attempts/checkpoints.h"
#include "service/attempts/ending.h"

namespace xlad::service {
namespace {

// A session has no steps of its own.
std::string AtStep(const Job& job) {
  return job.spec.session() ? "" : absl::StrCat(" at step ", job.step, " of ", job.spec.steps());
}

// Describes what determines the order of reductions: the mode and, if it is canonical, the number of shards.
std::string OrderText(const Job& job) {
  if (job.spec.session()) return "";
  int64_t devices = 0;
  for (const Peer& peer : job.placed.peers()) devices += DevicesOf(peer);
  const std::string mode = absl::StrCat(" (mode ", ModeText(job.spec));
  if (!IsCanonical(job.spec)) return absl::StrCat(mode, ")");
  const int64_t shards = DeviceCount(job.placed_mesh);
  return absl::StrCat(mode, ", ", Counted(shards, "logical shard"), " on ", DeviceCountText(devices), ")");
}

void ExplainWorkers(const Context& context, const Job& job, WhyJobResponse* why) {
  for (const Peer& peer : job.placed.peers()) {
    const auto known = context.workers.find(WorkerId(peer.worker_id()));
    if (known == context.workers.end()) {
      if (job.lost_worker != peer.worker_id()) continue;
      why->add_who(absl::StrCat(Context::WorkerText(job, peer.worker_id()), ", which has not reconnected"));
      continue;
    }
    const Worker& worker = known->second;
    if (worker.state == WorkerState::kAlive && job.lost_worker != peer.worker_id()) continue;
    why->add_who(Context::WorkerText(job, peer.worker_id()));
    if (worker.state != WorkerState::kAlive) {
      why->add_evidence(absl::StrCat("worker ", peer.worker_id(), " is ", StateName(worker, false),
                                     worker.reason.empty() ? "" : ": ", worker.reason));
    }
  }
}

// If the workers have fewer devices than the job needs, adds advice and returns the number that they have. Otherwise
// returns nullopt.
std::optional<int64_t> ExplainDevices(const Context& context, const Job& job, WhyJobResponse* why) {
  const int64_t wanted = WantedDevices(job, /*all=*/1);
  const int64_t found = SelectTargets(context.Offers(/*only_free=*/false), wanted, job.spec.device_name()).devices;
  if (found >= wanted) return std::nullopt;
  why->add_advice(absl::StrCat("start workers with ", DeviceCountText(wanted - found, " more"),
                               " (xlad worker), or run it on fewer: xlad resize ", job.id.str(),
                               IsCanonical(job.spec) ? " --devices ..." : " --mesh ..."));
  return found;
}

// Removes the workers that the job may not have because it waits for those that it had (--on-loss wait).
void EraseNewWorkers(const Job& job, std::vector<WorkerDevices>* offers) {
  if (job.spec.on_loss() != JobSpec::WAIT || job.lost_worker.empty() || job.resized) return;
  std::erase_if(*offers,
                [&](const WorkerDevices& offer) { return !HasPeer(job, offer.registration->worker_id()); });
}

// Whether one of these workers has devices that the job may use.
bool MayUseOneOf(const Context& context, const Job& job, const std::set<WorkerId>& workers) {
  std::vector<WorkerDevices> offers = context.Offers(/*only_free=*/false);
  std::erase_if(offers, [&](const WorkerDevices& offer) {
    return !workers.contains(WorkerId(offer.registration->worker_id()));
  });
  EraseNewWorkers(job, &offers);
  return SelectTargets(offers, /*devices=*/1, job.spec.device_name()).devices > 0;
}

// Whether enough devices are free for the job, but only together with those on workers that run jobs of other owners. A
// job that waits behind another one would not start.
bool WouldStartIfWorkersWereShared(const Context& context, const Job& job) {
  if (context.options.share_workers || context.ReasonOf(job) != job.reason) return false;
  std::vector<WorkerDevices> free = context.Offers(/*only_free=*/true);
  const int64_t wanted = WantedDevices(job, /*all=*/1);
  const auto has_enough = [&] { return SelectTargets(free, wanted, job.spec.device_name()).devices >= wanted; };
  EraseNewWorkers(job, &free);
  if (!has_enough()) return false;
  std::erase_if(free, [&](const WorkerDevices& offer) {
    return context.RunsOthersOn(WorkerId(offer.registration->worker_id()), job.owner);
  });
  return !has_enough();
}

std::string NamesOf(const std::set<WorkerId>& workers) {
  constexpr size_t kMaxNamed = 8;
  std::vector<std::string> names;
  for (const WorkerId& id : workers) {
    if (names.size() < kMaxNamed) names.push_back(id.str());
  }
  return absl::StrCat(workers.size() == 1 ? "worker " : "workers ", absl::StrJoin(names, ", "),
                      workers.size() > kMaxNamed ? absl::StrCat(" and ", workers.size() - kMaxNamed, " more") : "",
                      workers.size() == 1 ? " is" : " are");
}

// Names the workers that are reserved for the job. If they are reserved for an older job, names them only if the job
// could use one of them otherwise.
void ExplainReservation(const Context& context, const Job& job, WhyJobResponse* why) {
  const Context::Reservation& reservation = context.reservation;
  const Job* const holder = context.jobs.Find(reservation.job);
  if (!reservation.applies || holder == nullptr || holder->number > job.number) return;
  if (holder != &job && !MayUseOneOf(context, job, reservation.workers)) return;
  why->add_evidence(absl::StrCat(NamesOf(reservation.workers), " reserved for ",
                                 holder == &job               ? "it until it starts"
                                 : holder->owner == job.owner ? absl::StrCat("job ", holder->id.str())
                                                              : "an older job"));
}

// Whether the job waits because its latest attempts have failed.
bool IsPausing(const Context& context, const Job& job) {
  const int64_t pause_ns = RetryPauseMs(context.options, job) * kNsPerMs;
  return job.failed_ns >= 0 && context.now_ns < job.failed_ns + pause_ns;
}

void ExplainPending(const Context& context, const Job& job, WhyJobResponse* why) {
  why->set_what("it waits");
  const std::string reason = context.ReasonOf(job);
  why->add_evidence(reason.empty() ? "it has just been accepted" : reason);
  if (!job.ending.empty()) {
    const StartPoint start = StartOf(job);
    why->add_done(absl::StrCat("xlad ended attempt ", job.attempt, " and continues from step ", start.step,
                               start.checkpoint_uri.empty() ? "" : ", the newest checkpoint"));
  }
  const bool has_devices = !ExplainDevices(context, job, why).has_value();
  if (has_devices && IsPausing(context, job)) {
    why->add_advice("it is tried again by itself, at intervals of up to a minute; remove the cause that the evidence "
                    "names");
  } else if (has_devices) {
    ExplainReservation(context, job, why);
    why->add_advice("wait for the jobs before it, or cancel one of them (xlad ps, xlad cancel)");
    if (WouldStartIfWorkersWereShared(context, job)) {
      why->add_advice("let jobs of different users run on one worker: --share-workers of the coordinator");
    }
  }
  for (const WorkerId& drained : context.jobs.drained()) {
    why->add_advice(absl::StrCat("worker ", drained.str(), " is drained: xlad undrain ", drained.str()));
  }
}

void ExplainCompiling(const Context& context, const Job& job, WhyJobResponse* why) {
  why->set_what("its program is being compiled");
  if (!job.ending.empty()) why->add_evidence(job.ending);
  if (const std::optional<int64_t> found = ExplainDevices(context, job, why); found.has_value()) {
    why->add_evidence(
        absl::StrCat("it needs ", DeviceCountText(WantedDevices(job, /*all=*/1)), ", the workers have ", *found));
  }
}

// Explains an attempt that has run all steps, or all steps before a stop, but has not stored the state after them yet.
void ExplainUnstored(const Context& context, const Job& job, const Attempt& attempt, WhyJobResponse* why) {
  constexpr int kMaxNamed = 3;
  const int64_t step = attempt.unstored.begin()->second.step;
  const std::string done = step == job.spec.steps() ? "has run all steps, and its last state"
                                                    : absl::StrCat("stops before step ", step, ", and the state there");
  why->set_what(absl::StrCat("attempt ", job.attempt, " ", done, " cannot be stored yet; it is tried again, at longer ",
                             "and longer intervals of up to a minute"));
  int named = 0;
  for (const auto& [worker, unstored] : attempt.unstored) {
    if (++named > kMaxNamed) break;
    std::string* const evidence = why->add_evidence();
    *evidence = absl::StrCat(worker.empty() ? "the coordinator" : Context::WorkerText(job, worker),
                             " cannot store its part: ", unstored.error);
    if (unstored.refused_ns < 0) continue;
    const int64_t left_ns = unstored.refused_ns + context.options.refused_state_ms * kNsPerMs - context.now_ns;
    absl::StrAppend(evidence, "; the job fails if this error persists for ",
                    std::max<int64_t>(0, left_ns) / kNsPerSecond, " s more");
  }
}

void ExplainRunning(const Context& context, const Job& job, WhyJobResponse* why) {
  why->set_what(absl::StrCat("attempt ", job.attempt, " runs", AtStep(job), OrderText(job)));
  const auto found = context.attempts.find(job.id);
  if (found == context.attempts.end()) return;
  const Attempt& attempt = found->second;
  if (job.RunsQuickCode()) why->add_evidence(absl::StrCat("it ", CodeText(job)));
  const int count = job.placed.peers_size();
  const std::string workers = absl::StrCat(count, count == 1 ? " worker has" : " workers have");
  if (attempt.awaiting_adoption) {
    why->add_evidence(absl::StrCat("the coordinator has restarted; ", attempt.present.size(), " of ", workers,
                                   " reconnected; the steps continue meanwhile"));
  }
  if (attempt.stop_at >= 0) {
    why->set_what(absl::StrCat("attempt ", job.attempt, " stops before step ", attempt.stop_at));
    why->add_evidence(attempt.stop_reason);
    why->add_evidence(absl::StrCat(attempt.stopped.size(), " of ", workers, " stopped"));
  }
  if (!attempt.failure.empty()) why->add_evidence(attempt.failure);
  if (!attempt.unstored.empty()) ExplainUnstored(context, job, attempt, why);
}

void ExplainStarting(const Context& context, const Job& job, WhyJobResponse* why) {
  why->set_what(absl::StrCat("attempt ", job.attempt, " starts from step ", job.placed.first_step(), OrderText(job)));
  const auto found = context.attempts.find(job.id);
  if (found == context.attempts.end()) return;
  std::vector<std::string> missing;
  for (const Peer& peer : job.placed.peers()) {
    if (!found->second.ready.contains(peer.worker_id())) missing.push_back(peer.worker_id());
  }
  why->add_evidence(absl::StrCat("workers that are not ready yet: ", absl::StrJoin(missing, ", ")));
  why->add_advice("the logs of these workers say what they load");
}

void ExplainEnded(const Job& job, WhyJobResponse* why) {
  why->set_what(absl::StrCat("it ended as ", JobState_Name(job.state), AtStep(job)));
  if (!job.reason.empty()) why->add_evidence(job.reason);
  if (job.state == SUCCEEDED) return;
  if (!job.checkpoints.empty()) {
    why->add_advice(absl::StrCat("xlad submit JOBDIR --resume ", job.id.str(),
                                 " continues from its checkpoint of step ", job.checkpoints.back().step));
  }
  if (job.state == FAILED) why->add_advice(absl::StrCat("xlad logs ", job.id.str(), " shows all events of the job"));
}

// Returns advice for an error with this absl::StatusCode; `code` is 0 if it is not known. `is_waiting` says whether the
// attempt cannot end before its state is stored.
std::string CheckpointAdvice(const Job& job, int32_t code, bool is_waiting) {
  const std::string& uri = job.spec.checkpoint().uri();
  const bool in_folder = !uri.empty() && uri != "xlad:";
  const char* const then = job.checkpoint_error_step == job.spec.steps() ? "; the last state is stored then"
                           : is_waiting                                  ? "; the state is stored then"
                                                                         : "; the next checkpoint is tried then";
  if (code == static_cast<int32_t>(absl::StatusCode::kResourceExhausted)) {
    return absl::StrCat("make space ", in_folder ? absl::StrCat("in ", uri) : "on the coordinator's disk", then);
  }
  if (!in_folder && code == static_cast<int32_t>(absl::StatusCode::kFailedPrecondition)) {
    return absl::StrCat("make the coordinator's data folder a folder that the coordinator can write", then);
  }
  if (in_folder && IsRefusal(code)) {
    return absl::StrCat("make ", uri, " a folder that all workers and the coordinator can write", then);
  }
  return absl::StrCat("remove the cause that the evidence names", then);
}

// Returns the code of the error that keeps the attempt from ending: the coordinator's error or, if the coordinator has
// none, that of the first worker by name. If no worker has one either, returns the code of the latest checkpoint that
// could not be stored.
int32_t CheckpointErrorCode(const Context& context, const Job& job) {
  const auto attempt = context.attempts.find(job.id);
  if (attempt == context.attempts.end() || attempt->second.unstored.empty()) return job.checkpoint_error_code;
  return attempt->second.unstored.begin()->second.code;
}

std::string Sentences(const google::protobuf::RepeatedPtrField<std::string>& parts, const char* before) {
  if (parts.empty()) return "";
  return absl::StrCat(" ", before, absl::StrJoin(parts, "; "), ".");
}

}  // namespace

WhyJobResponse WhyJob(const Context& context, const Job& job, const std::string& of_client) {
  WhyJobResponse why;
  why.set_since_unix_ns(job.since_unix_ns);
  why.set_submitted_by(job.submitted_by);
  switch (job.state) {
    case PENDING:
      ExplainPending(context, job, &why);
      break;
    case COMPILING:
      ExplainCompiling(context, job, &why);
      break;
    case STARTING:
      ExplainStarting(context, job, &why);
      break;
    case RUNNING:
      ExplainRunning(context, job, &why);
      break;
    default:
      ExplainEnded(job, &why);
  }
  if (!of_client.empty()) why.add_evidence(of_client);
  if (!HasEnded(job)) {
    ExplainWorkers(context, job, &why);
    if (job.failures > 0) {
      why.add_evidence(absl::StrCat(job.failures == 1 ? "the last attempt has"
                                                      : absl::StrCat("the last ", job.failures, " attempts have"),
                                    " failed without a new checkpoint"));
    }
  }
  if (!job.checkpoint_error.empty() && !HasEnded(job)) {
    const auto attempt = context.attempts.find(job.id);
    const bool is_waiting = attempt != context.attempts.end() && !attempt->second.unstored.empty();
    if (!is_waiting) why.add_evidence(job.checkpoint_error);
    why.add_advice(CheckpointAdvice(job, CheckpointErrorCode(context, job), is_waiting));
  }
  for (const std::string& warning : job.warnings) why.add_done(absl::StrCat("its program was built: ", warning));
  if (!job.damage.empty()) {
    why.add_done(absl::StrCat("a damaged checkpoint was dropped (", job.damage, ")",
                              job.damaged.empty() ? "" : absl::StrCat("; its files are kept: ", job.damaged.back())));
  }
  if (!job.checkpoints.empty()) {
    why.add_done(absl::StrCat("its newest checkpoint is of step ", job.checkpoints.back().step));
  }
  const int64_t seconds = std::max<int64_t>(0, context.wall_ns - job.since_unix_ns) / kNsPerSecond;
  const std::string by = job.submitted_by.empty() ? "" : absl::StrCat(" It was submitted by ", job.submitted_by, ".");
  why.set_text(absl::StrCat(job.id.str(), " has been ", JobState_Name(job.state), " for ", seconds, " s: ", why.what(),
                            ".", Sentences(why.evidence(), "Evidence: "), Sentences(why.who(), "Affected: "),
                            Sentences(why.done(), "Done: "), Sentences(why.advice(), "What you can do: "), by));
  return why;
}

}  // namespace xlad::service
