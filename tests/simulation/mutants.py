#!/usr/bin/env python3
"""Inserts faults into the logic of the coordinator and the worker, one at a time, and expects tests to detect them.

  tests/simulation/mutants.py [--seeds N] [--only NAME] [--jobs N] [--build FOLDER]
  tests/simulation/mutants.py --check

A mutant is a replacement of one piece of source text. Its file is compiled outside of the tree with the command of the
build. The object is linked before the libraries into a copy of the test program. Nothing else is built, so the test
programs must have been built before. No source is changed. The fault storms (storm_test.cc) run over at most N seeds
(default 300). Files that the storms do not use, and mutants that the storms do not find, have tests of their own
(TESTS, NOT_FOUND_BY_STORMS). The mutant is caught if one of them fails, crashes, or does not end within TIMEOUT_S. Each
row of the printed table has the mutant, its state, the seed that failed (N if it is unknown or none failed), and the
failure.

A mutant is stale if its text does not occur exactly once in the file or equals its replacement, or if it does not
compile or link. If texts are stale, or a filter matches no test, the script says so before anything is built, and ends;
--check does only that. The exit code is not 0 if a mutant is stale, or if fewer than 95 % of the other mutants are
caught.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 900

STORMS = "StormTest.*Ends"
# The program and the tests for the mutants of a file, by the beginning of the file's path.
TESTS = {
    "service/log/sqlite": ("bin/simulation_test", STORMS + ":LogOnDisk.*"),
    "service/restore": ("bin/service_test", "RestoreTest.*"),
    "service/credentials/kept_join_file": ("bin/service_test", "KeptJoinFileTest.*"),
    "worker/worker_core": ("bin/simulation_test", "Simulation.Accepted*"),
    "": ("bin/simulation_test", STORMS),
}

NOT_FOUND_BY_STORMS = ("bin/service_test", "JobsOfOwners.*:CutLink.*:Coordinator.*:Recovery.*:Scheduling.*")

# Each mutant is (name, file, text, replacement), or has in addition the program and the tests that must find it.
MUTANTS = [
    ("actions are returned although the append failed", "service/group_commit.cc",
     "  if (appended.ok()) return std::move(effects.actions);", "  if (true) return std::move(effects.actions);"),
    ("no sync", "service/log/sqlite_job_log.cc", "PRAGMA synchronous=FULL", "PRAGMA synchronous=OFF"),
    ("log read after a failed sync is not written again", "service/log/sqlite_job_log.cc",
     "Execute(\"PRAGMA wal_checkpoint(TRUNCATE)\"));\n    int64_t version",
     "Execute(\"PRAGMA user_version\"));\n    int64_t version"),
    ("a key makes a second job", "service/jobs/job_machine.cc", "known != nullptr) {",
     "known == context_.jobs.Find({})) {"),
    ("messages of older attempts are accepted", "service/state/context.cc",
     " || job->attempt != attempt) return nullptr;\n  return generation == job->placed.generation() ? job "
     ": nullptr;", ") return nullptr;\n  return job;"),
    ("attempts start from the initial state", "service/log/job.cc", "if (newest != nullptr &&", "if (false &&"),
    ("attempts start from the oldest checkpoint", "service/log/job.cc", "&job.checkpoints.back();",
     "&job.checkpoints.front();"),
    ("checkpoints are committed with missing shards", "service/attempts/checkpoints.cc",
     "if (std::ssize(shards) < job->placed.peers_size() ||", "if ("),
    ("drops the newest checkpoint", "service/attempts/checkpoints.cc", "job->checkpoints[i];",
     "job->checkpoints[job->checkpoints.size() - 1 - i];"),
    ("commits older checkpoints", "service/attempts/checkpoints.cc",
     "  if (step <= NewestStep(*job)) return;\n  JobEvent", "  JobEvent"),
    ("one checkpoint less is kept", "service/attempts/checkpoints.cc",
     "std::ssize(job->checkpoints) - keep;", "std::ssize(job->checkpoints) - keep + 1;"),
    ("no old checkpoint is dropped", "service/attempts/checkpoints.cc", "  if (surplus <= 0) return;", "  return;"),
    ("the files of another checkpoint are removed", "service/attempts/checkpoints.cc", "DropCheckpoint{old.uri}",
     "DropCheckpoint{job->checkpoints.back().uri}"),
    ("a repeated cancellation is refused", "service/jobs/job_machine.cc",
     "  if (job->state == CANCELLED) return absl::OkStatus();\n", ""),
    ("a job shrinks before its worker can return", "service/jobs/schedule.cc",
     "  if (context_.now_ns < due_ns) {  // The worker", "  if (false) {  // The worker"),
    ("one finished worker is enough for success", "service/attempts/attempt_machine.cc",
     "const bool is_finished = attempt.finished.size() == workers;",
     "const bool is_finished = !attempt.finished.empty();"),
    ("success without the final checkpoint", "service/attempts/attempt_machine.cc",
     "if (Checkpoints::NewestStep(*job) == step) {", "if (true) {"),
    ("devices of failed attempts stay reserved", "service/attempts/ending.cc",
     "  context.RemoveAttempt(*job);\n  context.Changed(job->id);\n}", "  context.Changed(job->id);\n}"),
    ("terms do not increase", "service/coordinator.cc", "context_.jobs.term().value() + 1;",
     "context_.jobs.term().value();"),
    ("silent workers are never lost", "service/workers/worker_machine.cc",
     "} else if (silent_ns >= options.lost_ms * kNsPerMs) {", "} else if (false) {"),
    ("adoption has no time limit", "service/attempts/attempt_machine.cc",
     "age_ms >= context_.options.adopt_window_ms) {", "false) {"),
    ("a worker that is lost while its attempt is adopted counts as present", "service/attempts/attempt_machine.cc",
     "attempt.present.erase(worker.str());", ""),
    ("a worker that is lost while its attempt is adopted stays ready", "service/attempts/attempt_machine.cc",
     "      attempt.ready.erase(worker.str());\n", ""),
    ("jobs after a waiting job have no reason for waiting", "service/state/context.cc",
     "return first != nullptr && first->state == PENDING &&", "return false && first->state == PENDING &&"),
    ("metrics are acknowledged and not recorded", "service/attempts/attempt_machine.cc",
     "  context_.effects.batch.metrics.push_back(std::move(rows));",
     "  if (last.step() % 7 != 3) context_.effects.batch.metrics.push_back(std::move(rows));\n"
     "  else context_.effects.batch.metrics.push_back({job->id, {}});"),
    ("acknowledges metrics that have not arrived", "service/attempts/attempt_machine.cc",
     "set_through_step(last.step());", "set_through_step(last.step() + 3);"),
    ("attempts start one step late", "service/placement/placement.cc",
     "launch.set_first_step(job.placed.first_step());", "launch.set_first_step(job.placed.first_step() + 1);"),
    ("generations are not counted", "service/log/jobs.cc",
     "if (event.has_placed()) generation_ = std::max(generation_, Generation(event.placed().generation()));", ""),
    ("a build never ends", "service/jobs/schedule.cc",
     "  building_.erase(id);\n  context_.reschedule = true;\n  if (job->state == COMPILING)",
     "  context_.reschedule = true;\n  if (job->state == COMPILING)"),
    ("restarted processes keep their attempts", "service/attempts/attempt_machine.cc",
     "    if (task != message.running().end()) {", "    if (task == message.running().end()) continue;\n    {"),
    ("recovered jobs lose their attempts", "service/attempts/attempt_machine.cc",
     "    context_.AddAttempt(*job).awaiting_adoption = true;", "    job->attempt_running = false;"),
    ("stops that were lost with a connection are not sent again", "service/attempts/attempt_machine.cc",
     "      SendStop(worker, *job);\n      checkpoints_", "      checkpoints_"),
    ("leases that were lost with a connection are not sent again", "service/attempts/attempt_machine.cc",
     "      SendLease(worker, *job);\n", ""),
    ("leases are not renewed", "service/attempts/attempt_machine.cc",
     "  if (job->state != RUNNING || !is_due ||", "  if (true ||"),
    ("an attempt that an earlier coordinator has stopped never continues", "service/attempts/attempt_machine.cc",
     "  if (attempt.stop_at < 0) {", "  if (false) {"),
    ("checkpoints are committed for an attempt that has not started", "service/attempts/checkpoints.cc",
     "  if (job->state != RUNNING) return;  // Workers", "  // Workers"),
    ("adopts before all workers are back", "service/attempts/attempt_machine.cc",
     "  if (std::ssize(attempt.present) < job->placed.peers_size()) return;", ""),
    ("attempts that have ended are not aborted on workers", "service/attempts/attempt_machine.cc",
     "    return context_.Send(worker, AbortMessage(AttemptOf(task), \"this attempt has ended\"));", "    return;"),
    ("jobs of different owners share a worker", "service/jobs/schedule.cc",
     "  return !context_.options.share_workers && context_.RunsOthersOn(id, job.owner);", "  return false;"),
    ("devices are used twice", "service/state/context.cc",
     "  if (worker->jobs.insert(job.id).second) CountUsed(peer, 1, worker);", "  worker->jobs.insert(job.id);"),
    ("drained workers take work", "service/state/context.cc",
     "!worker.leaving &&\n         !jobs.drained().contains(worker.id);", "!worker.leaving;"),
    ("a resized job runs its old program", "service/log/job.cc",
     "    job->executable_digest.clear();\n", ""),
    ("a job that runs is stopped for devices that no worker has", "service/jobs/job_machine.cc",
     "  if (wanted <= found) return absl::OkStatus();", "  if (true) return absl::OkStatus();"),
    ("failed attempts are not counted", "service/log/job.cc", "  ++job->failures;", ""),
    ("a checkpoint does not reset the count of failures", "service/log/job.cc",
     "  job->failures = 0;\n  job->checkpoint_error.clear();", "  job->checkpoint_error.clear();"),
    ("the same program error may repeat forever", "service/attempts/ending.cc",
     "  if (job.program_error_repeated) {", "  if (false) {"),
    ("jobs that wait for their workers take other workers", "service/jobs/schedule.cc",
     "  return job.spec.on_loss() == JobSpec::WAIT && !job.lost_worker.empty() && !job.resized;", "  return false;"),
    ("the coordinator's own pause counts as silence of workers", "service/coordinator.cc",
     "  if (passed_ns < context_.options.own_lag_ms * kNsPerMs) context_.now_ns", "  context_.now_ns"),
    ("an attempt waits for workers that have ended before it started", "service/attempts/attempt_machine.cc",
     "missing != nullptr) {\n    const std::string id", "false) {\n    const std::string id"),
    ("an index that could not be stored is not stored again", "service/attempts/checkpoints.cc",
     "  if (attempt.storing_step == step) attempt.storing_step = -1;", ""),
    ("the coordinator continues after its log has failed", "service/group_commit.cc",
     "  (void)Close(appended);", ""),
    ("the findings of one host in two attempts drop a checkpoint", "service/attempts/damaged_checkpoint.cc",
     "(job.damaged_attempts >= 2 && hosts.size() >= 2)", "job.damaged_attempts >= 2"),
    ("a checkpoint is dropped by a single finding", "service/attempts/damaged_checkpoint.cc",
     "job.damaged_attempts >= kFindingsOfOneHost || ", "job.damaged_attempts >= 1 || "),
    ("a damaged checkpoint is never dropped", "service/attempts/ending.cc",
     "if (final_reason.empty() && IsConfirmedDamage(*job))", "if (false)"),
    ("a damaged checkpoint is read again without a pause", "service/attempts/ending.cc",
     "job.damaged_attempts > 0 ? job.damaged_attempts + 1 : 0;", "0;"),
    ("a damaged checkpoint counts as a failure of the job", "service/log/job.cc",
     "if (ended.stopped() || !job->damaged_uri.empty()) return;", "if (ended.stopped()) return;"),
    ("a finding does not name what was found", "service/attempts/damaged_checkpoint.cc",
     ", \": \", Shortened(message.error())));\n  // The first", "));\n  // The first"),
    ("a restart ends the pause after a damaged checkpoint", "service/attempts/attempt_machine.cc",
     "    if (job->damaged_attempts > 0) job->failed_ns = context_.now_ns;  // The pause begins again.\n", ""),
    ("a state that cannot be stored is recorded at each try", "service/attempts/checkpoints.cc",
     "  if (!is_new) return;\n", ""),
    ("the findings of two workers of one host drop a checkpoint", "service/attempts/damaged_checkpoint.cc",
     "hosts.insert(finding.host());", "hosts.insert(finding.worker());"),
    ("the findings about another checkpoint count", "service/log/job.cc",
     "  if (ended.damaged_checkpoint() != job->damaged_uri) ForgetDamage(job);\n", ""),
    ("a finding names another host", "service/attempts/damaged_checkpoint.cc",
     "finding.set_host(HostOf(job, worker));", "finding.set_host(worker.str());"),
    ("a cut link does not end the attempt", "service/attempts/cut_link.cc",
     "  FailAttempt(context, job, {reason, \"\", \"\", -1});\n  return true;", "  return false;"),
    ("placements ignore hosts", "service/placement/free_devices.cc",
     "hosts_.push_back(hosts.emplace(offers_[o].registration->host(), next).first->second);",
     "hosts_.push_back(next);"),
    ("the positions of a host are not consecutive", "service/placement/deal.cc",
     "for (const std::vector<size_t>& host : HostsOf(used)) {\n    for (const size_t w : host) "
     "shares.push_back(dealt[w]);\n  }", "shares = dealt;"),
    ("jobs of an owner are not packed", "service/jobs/schedule.cc",
     "  if (context_.options.share_workers || job.owner.empty()) return nullptr;", "  if (true) return nullptr;"),
    ("nothing is reserved for a job that waits for other owners", "service/jobs/schedule.cc",
     "  Reserve(*job, parts, wanted);\n  return AreOthersBusy()", "  return AreOthersBusy()"),
    ("launches do not name the owner", "service/attempts/attempt_machine.cc",
     "if (!context.options.share_workers) common.mutable_launch()->set_owner(job.owner);", ""),
    ("a task starts while processes of another owner run", "worker/worker_core.cc",
     "    if (RunsOthers(record.launch)) continue;\n", ""),
    ("an interrupted restore is used", "service/restore.cc",
     "if (files.Exists(JoinPath(folder, kLog)) || !files.Exists(JoinPath(folder, kPartialLog))) return "
     "absl::OkStatus();",
     "return absl::OkStatus();"),
    ("a join file of the user is replaced", "service/credentials/kept_join_file.cc",
     "  if (IdInFile() != ids_.back()) return false;", ""),
    ("a second process takes the id of a live worker", "service/workers/worker_machine.cc",
     "  if (!is_rival) {", "  if (true) {"),
    ("attempts stay on lost workers", "service/workers/worker_machine.cc",
     "  attempts_.OnWorkerLost(worker->id, why);\n", ""),
    ("devices of adopted attempts count as free", "service/workers/worker_machine.cc",
     "if (peer.worker_id() == id.str()) Context::Occupy(*placed, peer, &worker);", ""),
    ("an undrained worker stays drained", "service/log/jobs.cc",
     "      drained_.erase(worker);", ""),
    ("an attempt has the number of the attempt before", "service/attempts/attempt_machine.cc",
     "placed->set_attempt(job->attempt + 1);", "placed->set_attempt(std::max<int64_t>(1, job->attempt));"),
    ("an attempt has the generation of the attempt before", "service/attempts/attempt_machine.cc",
     "context_.jobs.generation().value() + 1);", "std::max<int64_t>(1, context_.jobs.generation().value()));"),
    ("shards of a committed step are kept", "service/attempts/checkpoints.cc",
     "if (message.step() <= NewestStep(*job)) return context_.Send",
     "if (message.step() < NewestStep(*job)) return context_.Send"),
    ("a commit forgets the shards of later steps", "service/attempts/checkpoints.cc",
     "  attempt.shards.erase(attempt.shards.begin(), attempt.shards.upper_bound(step));", "  attempt.shards.clear();"),
    ("an index of an earlier attempt is committed", "service/attempts/checkpoints.cc",
     "context_.FindRunning(id.job.str(), id.number, id.generation.value());\n  if (job == nullptr) return",
     "context_.jobs.Find(id.job);\n  if (job == nullptr || !job->attempt_running) return"),
    ("an attempt fails while its last checkpoint is stored", "service/attempts/attempt_machine.cc",
     "  if (attempt.shards.contains(step)) return;\n", ""),
    ("the lease of a continued job counts from step 0", "service/attempts/attempt_machine.cc",
     "attempt.lease_until = job->placed.first_step() + context_.options.lease_steps;",
     "attempt.lease_until = context_.options.lease_steps;"),
    ("leases are renewed after their end", "service/attempts/attempt_machine.cc",
     "step > attempt->lease_until - context_.options.lease_steps / 2;", "step > attempt->lease_until;"),
    ("a launch that was lost with a connection is not sent again", "service/attempts/attempt_machine.cc",
     "        SendLaunch(context_, *job, peer);\n        break;", "        break;"),
    ("a killed process is a program error", "service/attempts/attempt_machine.cc",
     "message.out_of_memory() || (message.signal() != 9 && message.signal() != 15);", "true;"),
    ("metrics do not have their attempt", "service/attempts/attempt_machine.cc",
     "  for (StepMetrics& row : rows.rows) row.set_attempt(job->attempt);\n", ""),
    ("the step after a restart is that of an earlier attempt", "service/coordinator.cc",
     "job->attempt_running ? job->attempt : 0);", "0);"),
    ("a resized job is resized again and again", "service/log/job.cc",
     "  job->resized = false;\n", ""),
    ("a stop counts as a failure", "service/log/job.cc",
     "if (ended.stopped() || !job->damaged_uri.empty()) return;", "if (!job->damaged_uri.empty()) return;"),
    ("an ended job can be canceled", "service/jobs/job_machine.cc",
     "  if (HasEnded(*job)) {\n    return absl::FailedPreconditionError(\n        absl::StrCat(\"job \", id.str()",
     "  if (false) {\n    return absl::FailedPreconditionError(\n        absl::StrCat(\"job \", id.str()"),
    ("a build for another mesh is used", "service/jobs/schedule.cc",
     "  if (MeshText(mesh) != MeshText(job->mesh)) return;", ""),
    ("lost workers are forgotten while they have jobs", "service/workers/worker_machine.cc",
     "    if (context_.workers.at(id).jobs.empty()) context_.workers.erase(id);", "    context_.workers.erase(id);"),
    ("shards of workers that left the attempt count", "service/attempts/checkpoints.cc",
     "  if (!context_.IsOn(worker, *job)) return;\n  CoordinatorMessage committed;",
     "  CoordinatorMessage committed;"),
    ("a restarted worker is still leaving", "service/workers/worker_machine.cc",
     "  if (is_new_process) worker.leaving = false;\n", ""),
    ("a start that was lost with a connection is not sent again", "service/attempts/attempt_machine.cc",
     "job->places.end());\n  context_.Send(worker, std::move(start));", "job->places.end());"),
    ("serving begins although the new term is not in the log", "service/group_commit.cc",
     "const absl::Status appended = log_->Append(&effects.batch); !appended.ok())",
     "const absl::Status appended = log_->Append(&effects.batch); false)"),
    ("a stop during an adoption is forgotten", "service/attempts/attempt_machine.cc",
     "  if (!attempt.stop_reason.empty()) Stop(job, std::string(attempt.stop_reason));\n", ""),
    ("messages to an ended attempt are accepted", "service/state/context.cc",
     "!job->attempt_running || job->attempt != attempt", "job->attempt != attempt"),
    ("a refused request has no answer", "service/group_commit.cc",
     "    if (work.answer) work.answer(refusal);", "    (void)refusal;"),
    ("messages of an earlier process of a worker are accepted", "service/workers/worker_machine.cc",
     "message.incarnation() != worker.registration.incarnation()) {\n    return context_.Close(connection);",
     "false) {\n    return context_.Close(connection);",
     NOT_FOUND_BY_STORMS),
    ("a refused step of a checkpoint is not replaced", "service/attempts/checkpoints.cc",
     "  if (!message.accepted() && message.step() == attempt.requested_step && attempt.stop_at < 0) "
     "Request(job);\n", "",
     NOT_FOUND_BY_STORMS),
    ("later jobs take the devices for which an older job waits", "service/jobs/schedule.cc",
     "    return JobQueue::Next::kStop;\n", "    return JobQueue::Next::kKeep;\n",
     NOT_FOUND_BY_STORMS),
    ("later jobs take workers that are reserved for an older job", "service/jobs/schedule.cc",
     "  if (reservation.applies && reservation.job != job.id && reservation.workers.contains(id)) return true;\n", "",
     NOT_FOUND_BY_STORMS),
    ("the reserved workers change in each pass", "service/jobs/schedule.cc",
     "order.emplace_back(used > 0, !reservation.workers.contains(id), used, id);",
     "order.emplace_back(used > 0, false, used, id);", NOT_FOUND_BY_STORMS),
    ("a job that waits for other owners blocks later jobs", "service/jobs/schedule.cc",
     "  if (waits_for_others && std::ssize", "  if (false && waits_for_others && std::ssize", NOT_FOUND_BY_STORMS),
    ("workers whose link is cut are not kept apart", "service/jobs/schedule.cc",
     "  if (context_.cut_links.empty()) return take", "  if (true) return take", NOT_FOUND_BY_STORMS),
    ("an attempt ends at the first silence of a link", "service/attempts/cut_link.cc",
     "if (silence_ns < context.options.link_cut_ms * kNsPerMs) continue;", "if (silence_ns <= 0) continue;",
     NOT_FOUND_BY_STORMS),
]


def stale_mutants(mutants, root=ROOT):
    """Returns (name, what is wrong) of each mutant that does not replace a text that occurs once."""
    found = []
    for name, path, text, replacement, *_ in mutants:
        file = root / path
        if not file.is_file():
            found.append((name, f"found no file {path}, expected a source file"))
        elif (count := file.read_text().count(text)) != 1:
            found.append((name, f"found the text {count} times in {path}, expected it once"))
        elif text == replacement:
            found.append((name, "found the text as its own replacement, expected a fault"))
    return found


def filters_without_test(filters):
    """Returns the parts of these filters that match no test in a *_test.cc."""
    sources = "".join(file.read_text() for folder in ("service", "tests/simulation")
                      for file in sorted((ROOT / folder).rglob("*_test.cc")))
    tests = [f"{suite}.{name}" for suite, name in re.findall(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources)]
    return [part for filter_ in filters for part in filter_.split(":") if not fnmatch.filter(tests, part)]


def output_of(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def tests_of(mutant):
    """Returns the program and the filter of the tests for this mutant."""
    own = mutant[4:]
    return own[0] if own else next(tests for beginning, tests in TESTS.items() if mutant[1].startswith(beginning))


class Builder:
    """Compiles one source file with a replacement and links its test program with it."""

    def __init__(self, folder):
        self.folder = folder
        self.commands = {}  # The command that compiles a source, alone or with other sources that one file includes.
        for entry in json.loads(output_of(["ninja", "-t", "compdb"], cwd=folder)):
            if not entry["output"].endswith(".o"):
                continue
            compiled = pathlib.Path(os.path.normpath(folder / entry["file"]))
            sources = [compiled]
            if "Unity" in compiled.parts:
                sources = re.findall(r'^#include "(.*)"', compiled.read_text(), re.MULTILINE)
            self.commands |= {str(source): entry for source in sources}

    def build(self, path, source, program, out):
        entry = self.commands[str(ROOT / path)]
        command = shlex.split(entry["command"])
        mutated = out / pathlib.Path(path).name
        mutated.write_text(source)
        if entry["file"] != str(ROOT / path):
            together = (self.folder / entry["file"]).read_text().replace(f'"{ROOT / path}"', f'"{mutated}"')
            mutated = out / "unity.cc"
            mutated.write_text(together)
        command[command.index("-o") + 1] = str(out / "mutant.o")
        command = [str(mutated) if argument == entry["file"] else argument for argument in command]
        command = [str(out / "mutant.d") if argument.endswith(".o.d") else argument for argument in command]
        link = output_of(["ninja", "-t", "commands", "-s", program], cwd=self.folder).strip().splitlines()[-1]
        link = shlex.split(link.removeprefix(": && ").removesuffix(" && :"))
        link[link.index("-o") + 1] = str(out / "test")
        link.insert(next(i for i, argument in enumerate(link) if argument.endswith(".o")), str(out / "mutant.o"))
        unlinked = f"does not link, which also happens if {program} has not been built"
        for step, error in ((command, "does not compile"), (link, unlinked)):
            result = subprocess.run(step, cwd=self.folder, capture_output=True, text=True)
            if result.returncode != 0:
                return f"{error}: {result.stderr[:2000]}"
        return ""


def run_tests(binary, seeds, tests):
    """Returns the seed that failed, or `seeds` if it is unknown or none failed, or 0 if a test other than the storms
    failed; and the failure or None. A program that runs no test, or fails and names no failed test, raises
    RuntimeError: it says nothing about the mutant."""
    environment = {**os.environ, "XLAD_STORM_SEEDS": str(seeds), "GTEST_FAIL_FAST": "1"}
    try:
        result = subprocess.run([str(binary), f"--gtest_filter={tests}"], cwd=ROOT, env=environment,
                                capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return seeds, f"does not end within {TIMEOUT_S} s"
    if "Running 0 tests" in result.stdout:
        raise RuntimeError(f"{binary}: found no test for the filter {tests}, expected one or more")
    found = re.search(r"^seed (\d+) \(.*?\): (.*)", result.stdout, re.MULTILINE)
    if found:
        return int(found[1]), found[2]
    if result.returncode < 0 or "check failed" in result.stderr:
        words = result.stderr.strip().splitlines() or [f"signal {-result.returncode}"]
        return seeds, f"a crash: {words[-1][:150]}"
    found = re.search(r"^C\+\+ exception with description (.*) thrown", result.stdout, re.MULTILINE)
    if found:
        return seeds, f"an exception: {found[1]}"
    found = re.search(r"^\[  FAILED  \] ((?!StormTest\.)\w+\.\w+)", result.stdout, re.MULTILINE)
    if found:
        return 0, found[1]
    if result.returncode == 0:
        return seeds, None
    found = re.search(r"^\[  FAILED  \] (\w[\w./]+)", result.stdout, re.MULTILINE)
    if found:
        return seeds, found[1]
    raise RuntimeError(f"{binary}: found exit code {result.returncode} and no failed test, expected one: "
                       f"{(result.stderr or result.stdout).strip()[-500:]}")


def try_mutant(builder, mutant, seeds):
    name, path, text, replacement = mutant[:4]
    program, tests = tests_of(mutant)
    source = (ROOT / path).read_text()
    # The path is the same in each run, so that a compiler cache can reuse the object.
    out = builder.folder / "mutants" / re.sub(r"\W+", "-", name)
    out.mkdir(parents=True, exist_ok=True)
    error = builder.build(path, source.replace(text, replacement), program, out)
    if error:
        return "stale", error, 0
    after, violation = run_tests(out / "test", seeds, tests)
    (out / "test").unlink()
    return ("caught", violation, after) if violation else ("missed", "", after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--check", action="store_true",
                        help="only check that the text of each mutant occurs once, and that each filter has a test")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant[0]]
    stale = stale_mutants(mutants)
    for name, what in stale:
        print(f"| {name} | stale | 0 | {what} |")
    without_test = filters_without_test(sorted({tests_of(mutant)[1] for mutant in mutants}))
    for part in without_test:
        print(f"found no test for the filter {part}, expected one or more")
    if stale or without_test or options.check:
        return 1 if stale or without_test else 0
    builder = Builder(ROOT / options.build)
    counts = {"caught": 0, "missed": 0, "stale": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tries = [(mutant, pool.submit(try_mutant, builder, mutant, options.seeds)) for mutant in mutants]
        for mutant, future in tries:
            state, what, after = future.result()
            counts[state] += 1
            print(f"| {mutant[0]} | {state} | {after} | {what} |", flush=True)
    tried = counts["caught"] + counts["missed"]
    print(f"{counts['caught']} of {tried} mutants caught; {counts['stale']} cannot be tried")
    return 1 if counts["stale"] or counts["caught"] < 0.95 * tried else 0


if __name__ == "__main__":
    sys.exit(main())
