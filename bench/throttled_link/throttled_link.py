"""Compares xlad's AllReduce over TCP or UCX with a plain loop over sockets on a link of limited rate.

    sudo python3 bench/throttled_link/throttled_link.py                        1500 Mbit/s, 1 MB to 64 MB
    sudo python3 bench/throttled_link/throttled_link.py --mbit 400 --bytes 16M --sockets 1,4
    sudo python3 bench/throttled_link/throttled_link.py --transports tcp,ucx --sockets 1

htb limits the loopback interface of a separate network namespace. Both ranks are in this namespace and share the rate.
In an AllReduce of two ranks, each rank sends the other as many bytes as its operand has. The loop does the same: each
of two processes writes this number of bytes to its sockets, and reads the other's bytes in threads.

For each size, xlad over each transport and the loop with each number of sockets run in turn. The script prints the
median times. For each side but the first, it also prints the median of a ratio: the time of the loop with the first
number of sockets divided by the time of that side. Above 1, the loop with the first number of sockets is slower.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

REPO = pathlib.Path(__file__).resolve().parents[2]
UNITS = {"K": 10, "M": 20}


class Host:
    """A network namespace whose loopback interface sends at most `mbit` Mbit/s."""

    def __init__(self, mbit):
        self.name = f"xladtl{os.getpid()}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        for command in ("ip link set lo up", "tc qdisc add dev lo root handle 1: htb default 1",
                        f"tc class add dev lo parent 1: classid 1:1 htb rate {mbit}mbit quantum 60000"):
            subprocess.run(self.argv(command.split()), check=True)

    def argv(self, args):
        return ["ip", "netns", "exec", self.name, *map(str, args)]

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name])


def loop(size, count, repeats):
    """Prints the seconds of each repeat. Runs in the namespace, in two processes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    first = os.fork() == 0
    ends = [socket.create_connection(listener.getsockname()) if first else listener.accept()[0] for _ in range(count)]
    part = bytes(size // count)
    buffers = [memoryview(bytearray(len(part))) for _ in ends]

    def read(end, into):
        while into:
            into = into[end.recv_into(into):]

    for _ in range(repeats):
        start = time.perf_counter()
        threads = [threading.Thread(target=read, args=pair) for pair in zip(ends, buffers)]
        threads += [threading.Thread(target=end.sendall, args=(part,)) for end in ends[1:]]
        for thread in threads:
            thread.start()
        ends[0].sendall(part)
        for thread in threads:
            thread.join()
        if not first:
            print(time.perf_counter() - start)
    if first:
        os._exit(0)
    os.wait()


def measure_loop(host, size, count, repeats):
    command = [sys.executable, __file__, "--loop", size, count, repeats + 1]
    done = subprocess.run(host.argv(command), capture_output=True, text=True, check=True)
    return statistics.median(map(float, done.stdout.split()[1:]))


def measure_xlad(host, args, transport, size):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        command = [args.xlad, "bench", "all_reduce", "--ranks", 2, "-b", size, "-e", size, "-f", 2, "-c", 0, "-n", 1,
                   "-w", 1, "--batches", args.repeats, "--transport", transport, "--json", path]
        if args.algorithm:
            command += ["--algorithm", args.algorithm]
        subprocess.run(host.argv(command), stdout=subprocess.DEVNULL, check=True)
        return json.loads(path.read_text())["rows"][0]["out_of_place"]["time_us"] / 1e6


def main():
    if sys.argv[1:2] == ["--loop"]:
        return loop(*map(int, sys.argv[2:]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", default=os.environ.get("XLAD", REPO / "build/release/bin/xlad"))
    parser.add_argument("--mbit", type=float, default=1500)
    parser.add_argument("--bytes", default="1M,4M,16M,64M")
    parser.add_argument("--sockets", default="1,4", help="numbers of sockets of the loop")
    parser.add_argument("--transports", default="tcp", help="transports of xlad: tcp, ucx")
    parser.add_argument("--algorithm", help="a plan instead of the one that xlad chooses")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="measurements in a round")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("throttled_link.py: found a user without the right to make network namespaces, expected root (sudo)")
    counts = [int(count) for count in args.sockets.split(",")]
    host = Host(args.mbit)
    try:
        for text in args.bytes.split(","):
            size = int(text[:-1]) << UNITS[text[-1]]
            sides = {f"{count} socket{'s' if count > 1 else ''}":
                     lambda count=count: measure_loop(host, size, count, args.repeats) for count in counts}
            sides |= {f"xlad {transport}": lambda transport=transport: measure_xlad(host, args, transport, size)
                      for transport in args.transports.split(",")}
            rounds = [{name: side() for name, side in sides.items()} for _ in range(args.rounds)]
            base = next(iter(sides))
            columns = [f"{name} {1e3 * statistics.median(row[name] for row in rounds):.2f} ms "
                       f"({statistics.median(row[base] / row[name] for row in rounds):.3f})" for name in sides]
            print(f"{text:>5}  {'  '.join(columns)}", flush=True)
    finally:
        host.close()
    return None


if __name__ == "__main__":
    sys.exit(main())
