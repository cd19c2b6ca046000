"""Compares how fast xlad and jaxlib read HLO, as text and as a proto, into a module.

    build/venv/bin/python bench/parse_vs_jaxlib/parse_vs_jaxlib.py FILE_OR_FOLDER ... [--rounds 9] [--json out.json]

Reads *.hlo files, and *.hlo.zst files through the zstd program. The proto is jaxlib's serialization of the text. The
bytes are in memory before the measurement. The time is the CPU time of the thread that reads and releases the module.
The sides run alternately on one core. Each row is one form of one file: megabytes per second of both sides (median over
rounds), and the ratio xlad / jaxlib of these speeds (median, lowest and highest).

The exit code is 1 if a file cannot be read.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


def sources(paths):
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            yield from sorted(p for p in path.iterdir() if p.name.endswith((".hlo", ".hlo.zst")))
        else:
            yield path


class Xlad:
    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def seconds(self, form, path):
        print(form, path, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if answer.startswith("error"):
            raise RuntimeError(f"xlad, {form}: {answer}")
        return float(answer)


def jaxlib_seconds(read, data):
    start = time.thread_time()
    module = read(data)
    del module
    return time.thread_time() - start


def measure(name, size, rounds, xlad, jaxlib):
    ours, theirs = [], []
    for turn in range(rounds + 1):
        pair = (xlad(), jaxlib()) if turn % 2 else (jaxlib(), xlad())[::-1]
        if turn:  # The first round fills the caches.
            ours.append(pair[0])
            theirs.append(pair[1])
    ratios = [theirs[i] / ours[i] for i in range(rounds)]
    return {"form": name, "bytes": size, "xlad_mb_s": size / statistics.median(ours) / 1e6,
            "jaxlib_mb_s": size / statistics.median(theirs) / 1e6, "ratio": statistics.median(ratios),
            "ratio_low": min(ratios), "ratio_high": max(ratios)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    parser.add_argument("--binary", default=REPO / "build/release/bin/parse_vs_jaxlib_xlad")
    args = parser.parse_args()
    from jaxlib import _hlo

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # The child process inherits the affinity.
    xlad = Xlad(str(args.binary))
    rows, failed = [], False
    print(f"{'file':44} {'form':5} {'MB':>6} {'xlad MB/s':>10} {'jaxlib MB/s':>12} {'ratio':>6}  lowest to highest")
    with tempfile.TemporaryDirectory() as folder:
        for source in sources(args.paths):
            data = source.read_bytes()
            if source.name.endswith(".zst"):
                data = subprocess.run(["zstd", "-qdc", str(source)], capture_output=True, check=True).stdout
            text_path = pathlib.Path(folder) / f"text{len(rows)}"
            proto_path = pathlib.Path(folder) / f"proto{len(rows)}"
            try:
                proto = _hlo.hlo_module_from_text(data.decode()).as_serialized_hlo_module_proto()
                text_path.write_bytes(data)
                proto_path.write_bytes(proto)
                for form, path, given, read in (
                        ("text", text_path, data.decode(), _hlo.hlo_module_from_text),
                        ("proto", proto_path, proto, _hlo.HloModule.from_serialized_hlo_module_proto)):
                    row = measure(form, len(given), args.rounds, lambda: xlad.seconds(form, path),
                                  lambda: jaxlib_seconds(read, given))
                    rows.append({"file": source.name, **row})
                    print(f"{source.name[-44:]:44} {form:5} {row['bytes'] / 1e6:6.1f} {row['xlad_mb_s']:10.1f} "
                          f"{row['jaxlib_mb_s']:12.1f} {row['ratio']:6.2f}  {row['ratio_low']:.2f} to "
                          f"{row['ratio_high']:.2f}", flush=True)
            except Exception as error:  # The row has the error; other files are still measured.
                failed = True
                print(f"{source.name[-44:]:44} {error}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    sys.exit(failed)


if __name__ == "__main__":
    main()
