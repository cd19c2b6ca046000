#!/usr/bin/env python3
"""Plants faults in the coordinator's own logic, one at a time, and expects the simulation to find each of them.

  tests/simulation/mutants.py [--seeds N] [--only NAME] [--build COMMAND] [--run COMMAND]

A mutant is a replacement of one piece of source text. It is built and run over N seeds (default 200); it is caught if a
test fails. The sources are restored afterwards. The exit code is not 0 if fewer than 95 % are caught, or if a piece of
text is no longer there.
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Name, file, text, replacement.
MUTANTS = [
    ("actions although the append failed", "service/group_commit.cc",
     "  if (appended.ok()) return std::move(effects.actions);", "  if (true) return std::move(effects.actions);"),
    ("no sync", "service/log/sqlite_job_log.cc", "PRAGMA synchronous=FULL", "PRAGMA synchronous=OFF"),
    ("log read after a failed sync is not written again", "service/log/sqlite_job_log.cc",
     "Execute(\"PRAGMA wal_checkpoint(TRUNCATE)\"));\n    int64_t version", "Execute(\"PRAGMA user_version\"));\n    int64_t version"),
    ("a key makes a second job", "service/jobs/job_machine.cc", "known != nullptr) {", "known == context_.jobs.Find({})) {"),
    ("messages of older attempts", "service/state/context.cc",
     " || job->attempt != attempt) return nullptr;\n  return generation == 0 || generation == job->placed.generation() ? job "
     ": nullptr;", ") return nullptr;\n  return job;"),
    ("attempts start from the initial state", "service/log/job.cc", "if (newest != nullptr &&", "if (false &&"),
    ("attempts start from the oldest checkpoint", "service/log/job.cc", "&job.checkpoints.back();",
     "&job.checkpoints.front();"),
    ("checkpoints with missing shards", "service/attempts/checkpoints.cc",
     "if (std::ssize(shards) < job->placed.peers_size() ||", "if ("),
    ("drops the newest checkpoint", "service/attempts/checkpoints.cc", "job->checkpoints[i];",
     "job->checkpoints[job->checkpoints.size() - 1 - i];"),
    ("commits older checkpoints", "service/attempts/checkpoints.cc",
     "  if (step <= NewestStep(*job)) return;\n  JobEvent", "  JobEvent"),
    ("one worker that has finished is enough", "service/attempts/attempt_machine.cc",
     "const bool is_finished = attempt.finished.size() == workers;", "const bool is_finished = !attempt.finished.empty();"),
    ("success without the final checkpoint", "service/attempts/attempt_machine.cc",
     "if (Checkpoints::NewestStep(*job) == step) {", "if (true) {"),
    ("devices of failed attempts stay reserved", "service/attempts/ending.cc",
     "  context.RemoveAttempt(*job);\n  context.Changed(job->id);\n  job->failed_ns", "  context.Changed(job->id);\n  job->failed_ns"),
    ("terms do not rise", "service/coordinator.cc", "context_.jobs.term().value() + 1;", "context_.jobs.term().value();"),
    ("silent workers are never lost", "service/workers/worker_machine.cc",
     "} else if (silent_ns >= options.lost_ms * kNsPerMs) {", "} else if (false) {"),
    ("adoption has no end", "service/attempts/attempt_machine.cc",
     "age_ms >= context_.options.adopt_window_ms) {", "false) {"),
    ("a worker that is lost while its attempt is adopted counts as present", "service/attempts/attempt_machine.cc",
     "attempt.present.erase(worker.str());", ""),
    ("jobs behind a waiting job do not say why they wait", "service/jobs/schedule.cc",
     "SetReason(job, absl::StrCat(\"waits behind job", "(absl::StrCat(\"waits behind job"),
    ("metrics are acknowledged and not recorded", "service/attempts/attempt_machine.cc",
     "  context_.effects.batch.metrics.push_back(std::move(rows));",
     "  if (last.step() % 7 != 3) context_.effects.batch.metrics.push_back(std::move(rows));\n"
     "  else context_.effects.batch.metrics.push_back({job->id, {}});"),
    ("acknowledges metrics that have not come", "service/attempts/attempt_machine.cc",
     "set_through_step(last.step());", "set_through_step(last.step() + 3);"),
    ("attempts start one step late", "service/placement/placement.cc", "launch.set_first_step(job.placed.first_step());",
     "launch.set_first_step(job.placed.first_step() + 1);"),
    ("generations are not counted", "service/log/jobs.cc",
     "if (event.has_placed()) generation_ = std::max(generation_, Generation(event.placed().generation()));", ""),
    ("a build stays under way", "service/jobs/schedule.cc",
     "  building_.erase(id);\n  context_.reschedule = true;\n  if (job->state == COMPILING)",
     "  context_.reschedule = true;\n  if (job->state == COMPILING)"),
    ("restarted processes keep their attempts", "service/attempts/attempt_machine.cc",
     "    if (has_it) continue;", "    continue;"),
    ("recovered jobs forget their attempts", "service/attempts/attempt_machine.cc",
     "    context_.AddAttempt(*job).awaiting_adoption = true;", "    job->attempt_running = false;"),
]


def run(command, **environment):
    return subprocess.run(command, shell=True, cwd=ROOT, env={**os.environ, **environment}, capture_output=True).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="200")
    parser.add_argument("--only")
    parser.add_argument("--build", default="ninja -C build/release simulation_test")
    parser.add_argument("--run", default="timeout 300 build/release/bin/simulation_test --gtest_filter='StormTest.*Ends'")
    options = parser.parse_args()
    missed, stale, caught = [], [], 0
    for name, path, text, replacement in MUTANTS:
        if options.only and options.only not in name:
            continue
        file = ROOT / path
        source = file.read_text()
        if source.count(text) != 1:
            stale.append(f"{name}: found the text {source.count(text)} times in {path}, expected it once")
            continue
        try:
            file.write_text(source.replace(text, replacement))
            if run(options.build) != 0:
                stale.append(f"{name}: does not compile")
            elif run(options.run, XLAD_STORM_SEEDS=options.seeds) != 0:
                caught += 1
            else:
                missed.append(name)
            print(f"{'missed' if missed and missed[-1] == name else 'caught'}: {name}", flush=True)
        finally:
            file.write_text(source)
    total = caught + len(missed)
    print(f"{caught} of {total} mutants caught")
    for line in stale + [f"missed: {name}" for name in missed]:
        print(line)
    return 1 if stale or caught < 0.95 * total else 0


if __name__ == "__main__":
    sys.exit(main())
