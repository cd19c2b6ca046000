"""Measures how much time is saved if collectives overlap computation, between two hosts on a slow network.

    sudo python3 bench/overlap_between_hosts/overlap.py                       nano_gpt, dp=2, 400 Mbit/s
    sudo python3 bench/overlap_between_hosts/overlap.py --job DIR --mbit 200,800 --devices 8

Two network namespaces act as two hosts with half of the cores each. htb limits the rate at which each of them sends. A
job is trained on the devices of both hosts, with --overlap never and by-cost in turn. Before that, it is trained alone:
on one host that has all devices and all cores. The collectives of this run use mapped memory and take little time, so
its step time is taken as the time of the computation. These numbers are from the job's trace (xlad trace), per step of
device 0:

computation  the time of kernels, library calls and copies
waiting      the time of collectives and of waits for them, in which the device does not compute
overlapping  the share of the device's messages that are sent or received while it computes
step         the median time from the beginning of the first instruction to the end of the last
tenth        the tenth percentile of the same time, which other processes of the machine disturb less
messages     the number of messages that the device sends and receives
wire         the bytes that the second host sends in the whole run, divided by the number of steps and by the rate of
             the link: about the shortest time in which the link can transfer the bytes of a step

The script prints step / computation, tenth / alone and wire / alone for both settings of --overlap, where `alone` is
the tenth percentile of the run on one host. If several devices share a core, the times of kernels include those of
other devices, so step / computation is meaningful only with one device on each core.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
Row = collections.namedtuple("Row", "compute waiting overlapping messages step tenth wire")
SUBNET = "10.231.78"


def ip(*args):
    done = subprocess.run(["ip", *map(str, args)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(map(str, args))}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    """Two network namespaces, connected by a virtual link whose ends send at most `mbit` Mbit/s."""

    def __init__(self, mbit):
        self.names = [f"xladov{os.getpid()}{side}" for side in "ab"]
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", "name", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns",
           self.names[1])
        for number, name in enumerate(self.names, 1):
            ip("-n", name, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            for command in (f"qdisc add dev eth0 root handle 1: htb default 1",
                            f"class add dev eth0 parent 1: classid 1:1 htb rate {mbit}mbit quantum 60000"):
                subprocess.run(["ip", "netns", "exec", name, "tc", *command.split()], check=True, capture_output=True)

    def argv(self, side, args, cores):
        return ["ip", "netns", "exec", self.names[side], "taskset", "-c", cores, "unshare", "--pid", "--fork",
                "--kill-child", "--mount-proc", *map(str, args)]

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def cores_of(side, hosts):
    """Returns the cores of host number `side`. All cores are divided among `hosts` hosts."""
    cores = sorted(os.sched_getaffinity(0))
    part = len(cores) // hosts
    return ",".join(map(str, cores[side * part:(side + 1) * part] if part > 0 else cores))


def read_trace(trace):
    """Returns the medians and the tenth percentile over the steps of device 0."""
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] in ("X", "s", "f")]
    process = next(e["pid"] for e in events if e["ph"] == "X" and e["cat"] == "step" and e["tid"] == 0)
    own = [e for e in events if e["pid"] == process and e["tid"] == 0]
    rows, steps = [], []
    # The first steps are left out, because their times include page faults.
    for step in [e for e in own if e["ph"] == "X" and e["cat"] == "step"][2:]:
        inside = [e for e in own if step["ts"] <= e["ts"] <= step["ts"] + step["dur"] and e is not step]
        spans = [e for e in inside if e["ph"] == "X" and e["cat"] not in ("loop", "branch")]
        waits = [e for e in spans if e["cat"] in ("collective", "wait")]
        compute = [e for e in spans if e["cat"] not in ("collective", "wait")]
        messages = [e for e in inside if e["ph"] != "X"]
        overlapping = [m for m in messages if any(c["ts"] < m["ts"] < c["ts"] + c["dur"] for c in compute)]
        steps.append((spans[-1]["ts"] + spans[-1]["dur"] - spans[0]["ts"]) / 1000)
        rows.append((sum(e["dur"] for e in compute) / 1000, sum(e["dur"] for e in waits) / 1000,
                     len(overlapping) / max(1, len(messages)), len(messages)))
    compute, waiting, overlapping, messages = [statistics.median(column) for column in zip(*rows)]
    return Row(compute, waiting, overlapping, messages, statistics.median(steps), sorted(steps)[len(steps) // 10], 0)


def train(args, overlap, where, mbit, sides):
    """Trains on the hosts `sides`, which share all cores. Returns the numbers of the trace and the losses."""
    where.mkdir()
    hosts = Hosts(mbit)
    cores = [cores_of(side, len(sides)) for side in sides]
    processes = []
    environment = {**os.environ, "XDG_CONFIG_HOME": str(where / "config"), "OMP_NUM_THREADS": "1"}

    def start(side, name, *command):
        log = open(where / f"{name}.log", "wb")
        processes.append(subprocess.Popen(hosts.argv(side, command, cores[side]), stdout=log, stderr=log,
                                          env=environment, process_group=0))

    def run(*command):
        done = subprocess.run(hosts.argv(0, command, cores[0]), capture_output=True, text=True, env=environment,
                              timeout=600)
        if done.returncode != 0:
            logs = "".join(p.read_text()[-2000:] for p in where.glob("*.log"))
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stdout}{done.stderr}{logs}")
        return done.stdout

    try:
        start(0, "coordinator", args.xlad, "coordinator", "--listen", f"{SUBNET}.1:7411", "--data", where / "data")
        join = where / "config/xlad/join"
        while not join.exists():
            time.sleep(0.1)
        token = where / "worker.join"
        run(args.xlad, "token", "--data", where / "data", "--role", "worker", "-o", token)
        for side in sides:
            start(side, f"worker{side}", args.xlad, "worker", "--join", token, "--listen", f"{SUBNET}.{side + 1}",
                  "--devices", args.devices // len(sides), "--id", f"w{side}")
        while sum(len(n["workers"]) for n in json.loads(run(args.xlad, "nodes", "--format", "json"))) < len(sides):
            time.sleep(0.2)
        submitted = run(args.xlad, "submit", args.job, "--mesh", f"dp={args.devices}", "--steps", args.steps,
                        "--overlap", overlap, "--curve", where / "curve.json", "--compile-tier", "optimized")
        time.sleep(0.5)
        loss = json.loads((where / "curve.json").read_text())["loss"]
        run(args.xlad, "trace", submitted.split()[0], "-o", where / "trace.json")
        sent = int(ip("netns", "exec", hosts.names[1], "cat", "/sys/class/net/eth0/statistics/tx_bytes"))
        row = read_trace(where / "trace.json")._replace(wire=sent * 8e-3 / args.steps / float(mbit))
        return row, loss
    finally:
        for process in processes:  # The signal is for the whole process group, because unshare ignores it.
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait()
        hosts.close()


def measure(args, where):
    """Trains with each rate and setting, args.rounds times in turn, and prints medians. Returns whether all losses are
    equal."""
    runs = [(None, "never", (0,))]
    runs += [(mbit, overlap, (0, 1)) for mbit in args.mbit.split(",") for overlap in ("never", "by-cost")]
    rows, losses = {run: [] for run in runs}, []
    for number in range(args.rounds):
        for mbit, overlap, sides in runs:
            row, loss = train(args, overlap, where / f"{number}-{mbit}-{overlap}", mbit or 1000, sides)
            rows[mbit, overlap, sides].append(row)
            losses.append(loss)
    print(f"{'Mbit/s':>7} {'overlap':10} {'computation':>12} {'waiting':>10} {'overlapping':>11} {'messages':>8} "
          f"{'step':>10} {'step/computation':>17} {'tenth':>10} {'tenth/alone':>12} {'wire/alone':>11}")
    # Other work on the machine changes all times of a round, so each run is compared with the first run of its round.
    alone = [row.tenth for row in rows[runs[0]]]
    for mbit, overlap, sides in runs:
        found = rows[mbit, overlap, sides]
        middle = Row(*map(statistics.median, zip(*found)))
        relative = statistics.median(row.tenth / base for row, base in zip(found, alone))
        wire = statistics.median(row.wire / base for row, base in zip(found, alone)) if mbit else 0
        print(f"{mbit or 'alone':>7} {overlap:10} {middle.compute:9.2f} ms {middle.waiting:7.2f} ms "
              f"{middle.overlapping:11.0%} {middle.messages:8.0f} {middle.step:7.2f} ms "
              f"{middle.step / middle.compute:17.2f} {middle.tenth:7.2f} ms {relative:12.2f} {wire:11.2f}")
    return all(loss == losses[0] for loss in losses)


def main():
    examples = pathlib.Path(os.environ.get("XLAD_EXAMPLES", REPO / "examples"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", type=pathlib.Path, default=examples / "nano_gpt")
    parser.add_argument("--mbit", default="400", help="one or more rates, separated by commas")
    parser.add_argument("--devices", type=int, default=2, help="of both hosts together")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--xlad", type=pathlib.Path, default=REPO / "build/release/bin/xlad")
    parser.add_argument("--keep", type=pathlib.Path, help="keep logs and traces in this new folder")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("overlap.py: found a user without the right to make network namespaces, expected root")
    with tempfile.TemporaryDirectory() as scratch:
        where = args.keep or pathlib.Path(scratch) / "run"
        where.mkdir()
        equal = measure(args, where)
        print("losses: equal" if equal else "losses: DIFFERENT")
        return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
