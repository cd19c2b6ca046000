"""Kills a rank of `xlad bench` by SIGKILL at a random moment, many times, and checks which rank the survivors name.

    python3 bench/killed_ranks/killed_ranks.py --transports shm,tcp,ucx --kills 100

For each transport, the script prints how often every survivor named the rank and the process and continued. It also
prints percentiles of two times: from the kill until the last survivor has named the rank, and from then until the
smaller group of the survivors has finished an all-reduce. Then a rank is stopped by SIGSTOP for --stop-s seconds: no
other rank may report it as dead, and all ranks must continue after SIGCONT. The exit code is 1 if a survivor named
another rank or did not continue, or if a stopped rank was reported as dead.
"""

import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

FINISHED = re.compile(r"all_reduce finished ([0-9.]+) ms after the error")
SIZES = ("8", "4K", "64K", "1M")


class Rank:
    """A process, and the time at which each line of its output arrived."""

    def __init__(self, args, transport, size, number, launch, folder):
        environment = os.environ | {"XLAD_RANK": str(number), "XLAD_RANKS": str(args.ranks), "XLAD_LAUNCH": launch,
                                    "XLAD_COMM_DIR": str(folder)}
        command = [args.xlad, "bench", "all_reduce", "-b", size, "-e", size, "-f", "2", "-n", "1000",
                   "--batches", "90000", "--transport", transport, "--shrink"]
        self.number = number
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        self.out, self.err, self.runs = [], [], threading.Event()
        self.threads = [threading.Thread(target=self.read, args=(self.process.stdout, self.out)),
                        threading.Thread(target=self.read, args=(self.process.stderr, self.err))]
        for thread in self.threads:
            thread.start()

    def read(self, stream, lines):
        for line in stream:
            lines.append((time.monotonic(), line.rstrip()))
            if "(GB/s)" in line:  # The last line that rank 0 prints before the first operation.
                self.runs.set()

    def wait(self):
        self.process.wait()
        for thread in self.threads:
            thread.join()


def start(args, transport, size, folder):
    launch = uuid.uuid4().hex
    ranks = [Rank(args, transport, size, number, launch, folder) for number in range(args.ranks)]
    if not ranks[0].runs.wait(60):
        sys.exit(f"{transport}: the group has not started after 60 s: {[rank.err for rank in ranks]}")
    return ranks, launch


def stop_all(ranks):
    for rank in ranks:
        rank.process.kill()
        rank.wait()


def kill_once(args, transport, choose, folder):
    """Returns the times in ms, or an error."""
    ranks, _ = start(args, transport, choose.choice(SIZES), folder)
    victim = ranks[choose.randrange(args.ranks)]
    time.sleep(choose.random() * 0.2)
    killed = time.monotonic()
    victim.process.kill()
    names = re.compile(rf"rank {victim.number}\b.*pid {victim.process.pid}\b")
    named_ms, finished_ms = [], []
    for rank in ranks:
        try:
            rank.process.wait(60)
        except subprocess.TimeoutExpired:
            stop_all(ranks)
            return f"rank {rank.number} has not ended 60 s after rank {victim.number} was killed"
        rank.wait()
        if rank is victim:
            continue
        if not rank.err or not names.search(rank.err[0][1]):
            stop_all(ranks)
            return f"rank {rank.number} says {rank.err}, expected rank {victim.number}, pid {victim.process.pid}"
        named_ms.append((rank.err[0][0] - killed) * 1e3)
        finished = [match for _, line in rank.out if (match := FINISHED.search(line))]
        if not finished:
            return f"rank {rank.number} has not continued: {rank.out} {rank.err}"
        finished_ms.append(float(finished[0][1]))
    return max(named_ms), max(finished_ms)


def stop_once(args, transport, folder):
    """Returns the error, or an empty string."""
    ranks, launch = start(args, transport, "4K", folder)
    victim = ranks[-1]
    victim.process.send_signal(signal.SIGSTOP)
    time.sleep(args.stop_s)
    wrong = [rank for rank in ranks if rank.process.poll() is not None or rank.err]
    text = "" if not wrong else f"rank {wrong[0].number} says {wrong[0].err} about a stopped rank"
    why = subprocess.run([args.xlad, "comm", "why", launch], env=os.environ | {"XLAD_COMM_DIR": str(folder)},
                         capture_output=True, text=True)
    if not re.search(rf"rank {victim.number} .* is stopped", why.stdout):
        text = text or f"`xlad comm why` says {why.stdout}{why.stderr}, expected that rank {victim.number} is stopped"
    victim.process.send_signal(signal.SIGCONT)
    time.sleep(0.5)
    if not text and any(rank.process.poll() is not None or rank.err for rank in ranks):
        text = "the ranks did not continue"
    stop_all(ranks)
    return text


def percentiles(times):
    """`times` are sorted."""
    shares = [(f"{share} %", times[(len(times) - 1) * share // 100]) for share in (50, 90, 99, 100)]
    return ", ".join(f"{time:.1f} ms ({share})" for share, time in shares)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=os.environ.get("XLAD", "build/release/bin/xlad"))
    parser.add_argument("--transports", default="shm,tcp,ucx")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--stop-s", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    choose = random.Random(args.seed)
    failed = False
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for transport in args.transports.split(","):
            results = [kill_once(args, transport, choose, pathlib.Path(folder)) for _ in range(args.kills)]
            right = [result for result in results if not isinstance(result, str)]
            for result in results:
                if isinstance(result, str):
                    print(f"{transport}: {result}")
            named, finished = [sorted(times) for times in zip(*right)] or ([], [])
            print(f"{transport}: {len(right)} of {args.kills} kills named by all survivors, which then continued",
                  flush=True)
            for text, times in (("named after", named), ("the smaller group has finished after another", finished)):
                if times:
                    print(f"{transport}: {text} {percentiles(times)}", flush=True)
            stopped = stop_once(args, transport, pathlib.Path(folder))
            right_text = "no rank reports it as dead, `xlad comm why` names it, and all continue"
            print(f"{transport}: a stopped rank: {stopped or right_text}", flush=True)
            failed = failed or len(right) < args.kills or bool(stopped)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
