"""Compiles a corpus of programs for GPUs and assembles every kernel with ptxas. Nothing runs on a GPU.

    python3 bench/gpu/ptxas_corpus.py                           every program, for sm_80 and sm_90
    python3 bench/gpu/ptxas_corpus.py --one-per-step --seconds 600 --json ptxas.json

The corpus ($XLAD_CORPUS or --corpus) has a manifest.jsonl with the file of each program. Constants whose values are not
in the corpus (printed as {...}) are replaced by an iota. Programs are compiled for the mesh that they name, smallest
first. ptxas is taken from XLAD_PTXAS, from the PATH, or from PyPI's nvidia-cuda-nvcc in build/venv.

kernels   kernels in the PTX of one device's program, without duplicates. serial: kernels with one thread per block
accepted  kernels in PTX that ptxas accepted, of all GPUs together
xlad s, ptxas s   seconds of the compilation and of ptxas, of all GPUs together

The exit code is 1 if a program does not compile or is not accepted.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


def find_ptxas():
    given = os.environ.get("XLAD_PTXAS") or shutil.which("ptxas")
    if given:
        return given
    found = sorted((REPO / "build" / "venv").glob("lib/python3*/site-packages/nvidia/*/bin/ptxas"))
    return str(found[0]) if found else None


def programs(corpus, only, one_per_step):
    entries = [json.loads(line) for line in (corpus / "manifest.jsonl").read_text().splitlines()]
    seen = set()
    for entry in sorted(entries, key=lambda entry: entry["instructions"]):
        step = (entry["model"], entry["step"])
        if (only and only not in entry["name"]) or (one_per_step and step in seen):
            continue
        seen.add(step)
        yield entry


def run(command, seconds):
    """Returns the time that the command took, and its error or None."""
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return seconds, f"took more than {seconds:.0f} s"
    return time.monotonic() - start, None if done.returncode == 0 else done.stderr.strip()[-300:]


def measure(entry, flags, folder):
    program = folder / "program.hlo"
    unpack = ["zstd", "-qdc", str(flags.corpus / entry["file"])]
    text = subprocess.run(unpack, stdout=subprocess.PIPE, check=True).stdout
    program.write_bytes(re.sub(rb"constant\(\{\.\.\.\}\)", b"iota(), iota_dimension=0", text))
    row = {"name": entry["name"], "kernels": 0, "serial": 0, "accepted": 0, "emitted": 0, "xlad_s": 0, "ptxas_s": 0}
    for gpu in flags.gpus.split(","):
        ptx = folder / f"{gpu}.ptx"
        seconds, error = run([flags.xlad, "compile", str(program), "--target", f"nvptx-{gpu}", "--emit", "ptx", "-o",
                              str(ptx)], flags.each)
        row["xlad_s"] += seconds
        if error:
            return row | {"error": f"xlad: {error}"}
        code = ptx.read_text()
        row["kernels"] = len(re.findall(r"\.visible \.entry", code))
        row["serial"] = len(re.findall(r"\.reqntid 1, 1, 1", code))
        row["emitted"] += row["kernels"]
        seconds, error = run([flags.ptxas, f"-arch={gpu}", f"-O{flags.optimize}", str(ptx), "-o",
                              str(folder / "out.cubin")], flags.each)
        row["ptxas_s"] += seconds
        if error:
            return row | {"error": f"ptxas {gpu}: {error}"}
        row["accepted"] += row["kernels"]
    return row


ROW = "{:<52} {:>7} {:>6} {:>9} {:>7} {:>8}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=pathlib.Path, default=os.environ.get("XLAD_CORPUS"))
    parser.add_argument("--xlad", default=str(REPO / "build/release/bin/xlad"))
    parser.add_argument("--ptxas", default=find_ptxas())
    parser.add_argument("--gpus", default="sm_80,sm_90")
    parser.add_argument("--optimize", type=int, default=3, help="ptxas's optimization level, 0 to 3")
    parser.add_argument("--only", help="only programs whose name contains this")
    parser.add_argument("--one-per-step", action="store_true", help="compile each step of a model for one mesh only")
    parser.add_argument("--seconds", type=float, help="start no program after this many seconds")
    parser.add_argument("--each", type=float, default=600, help="limit in seconds for one compilation or assembly")
    parser.add_argument("--json", help="also write all rows to this file")
    flags = parser.parse_args()
    if not flags.corpus:
        parser.error("found no corpus; set XLAD_CORPUS or use --corpus")
    if not flags.ptxas:
        parser.error("found no ptxas; pip install nvidia-cuda-nvcc-cu12 in build/venv, or set XLAD_PTXAS")
    print(ROW.format("program", "kernels", "serial", "accepted", "xlad s", "ptxas s"))
    start, rows, left = time.monotonic(), [], 0
    for entry in programs(flags.corpus, flags.only, flags.one_per_step):
        if flags.seconds and time.monotonic() - start > flags.seconds:
            left += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measure(entry, flags, pathlib.Path(folder))
        rows.append(row)
        print(ROW.format(row["name"], row["kernels"], row["serial"], f"{row['accepted']}/{row['emitted']}",
                         f"{row['xlad_s']:.1f}", f"{row['ptxas_s']:.1f}"), flush=True)
        if "error" in row:
            print(f"    {row['error']}", flush=True)
    failed = [row for row in rows if "error" in row]
    print(f"{len(rows)} programs, {left} not tried, {len(failed)} failed; kernels: {sum(r['accepted'] for r in rows)} "
          f"of {sum(r['emitted'] for r in rows)} accepted, {sum(r['serial'] for r in rows)} of "
          f"{sum(r['kernels'] for r in rows)} serial")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=1))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
