"""Compares training steps of job directories between xlad and jax.jit: step time, compile time, memory.

    python bench/step_vs_jax/step_vs_jax.py                       all job directories, all meshes of their manifests
    python bench/step_vs_jax/step_vs_jax.py --only cnn,lstm --mesh single --json ratios.json
    python bench/step_vs_jax/programs.py /tmp/programs && \
        python bench/step_vs_jax/step_vs_jax.py --examples /tmp/programs --threads 2

Job directories are read from --examples (default: $XLAD_EXAMPLES and the project's examples/). Both sides run
alternately: a pair is one block of steps of each, and one side is idle while the other runs.

mesh `single`: both processes are bound to the same --threads CPUs (default 1).
other meshes:  all CPUs. xlad's devices are threads of one process, JAX's are its virtual CPU devices. With --workers N,
               a third side runs xlad's devices in N processes, as N workers on this host do. Its ratios are its time
               over that of the faster of the other two sides: the median over the rounds, and the ratio of the fastest
               blocks.

step    time per step in milliseconds: the median of xlad's blocks, the median of JAX's blocks, and the median ratio of
        the pairs (with the lowest and the highest). A ratio is JAX's time over xlad's; above 1, xlad is faster. `best`
        is the ratio of the fastest blocks, `cpu` the ratio of CPU times; both are more reliable than the median if
        other programs use the CPUs.
compile xlad: the time of the child process from program text to executable, which includes process start, partitioning
        and checks. JAX: the time of compiling StableHLO in a process that has compiled before. Medians; the ratio is
        JAX's over xlad's.
roof    for programs with dots or convolutions on one device, if the trip counts of all loops are known: the roofline
        time of the step as a share of xlad's fastest block. The roofline time is that of the dots and convolutions, as
        written, at the matrix library's rate for 1024 x 1024 matrices of f32, and of reading and writing the state at
        the rate of copies. Both rates are measured before and after the blocks, and the higher one counts. Convolutions
        by Winograd's algorithm, dots of bf16 and masked attention can exceed 100 %. `limit` is JAX's fastest block over
        the roofline time: about the highest step ratio that this machine allows otherwise.
memory  the memory of one device's step according to the buffer plan: arguments + results - shared + temporaries. The
        ratio is xlad's over JAX's. The JSON also has the peak resident sizes of the processes (JAX's includes Python
        and the compiler; xlad compiles in a child).
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parent.parent
END_S = 20  # A process whose input or output is closed may take so long to end.


class Side:
    """A process that answers each line of its input with one line of JSON."""

    def __init__(self, name, command, cpus):
        bind = (lambda: os.sched_setaffinity(0, cpus)) if cpus else None
        self.name = name
        self.command = command
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        preexec_fn=bind, stderr=subprocess.PIPE)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name}: {self.reason_of_end()}")
        return json.loads(answer)

    def reason_of_end(self):
        """Returns how the process ended, and the last lines that it wrote. It is killed if it does not end soon after
        it closed its output. The reading also ends if a child of the process keeps the pipe open."""
        written, end = "", None
        for _ in range(2):
            try:
                written = self.process.communicate(timeout=END_S)[1]
                break
            except subprocess.TimeoutExpired as late:
                written = (late.stderr or b"").decode(errors="replace")
                if self.process.poll() is None:
                    end = f"closed its output without ending within {END_S} s"
                self.process.kill()
        status = self.process.wait()
        if end is None:
            end = f"exit status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
        words = " ".join(written.strip().splitlines()[-3:])
        return f"{end}: {words or 'it wrote no message'}"

    def step_ms(self, steps):
        """Returns the wall-clock milliseconds per step."""
        return self.ask(f"steps {steps}")["ms"] / steps

    def block(self, steps):
        """Returns the wall-clock and the CPU milliseconds per step."""
        before = self.cpu_ms()
        wall = self.step_ms(steps)
        return wall, (self.cpu_ms() - before) / steps

    def cpu_ms(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # The process may have ended before it read a command.
            self.process.stdin.close()
        try:
            self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def middle(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "all": values}


def block_size(side, milliseconds):
    """Returns the number of steps that take about `milliseconds`, measured after warming up."""
    side.step_ms(3)
    return max(2, min(2000, round(milliseconds / side.step_ms(5))))


def place(mesh, threads):
    """Returns the number of devices of a mesh, its value of --mesh, and the CPUs for one device (None for several)."""
    devices = math.prod(mesh["axes"].values()) if mesh["name"] != "single" else 1
    flag = ",".join(f"{name}={size}" for name, size in mesh["axes"].items()) if devices > 1 else ""
    cpus = set(sorted(os.sched_getaffinity(0))[-threads:]) if devices == 1 else None
    return devices, flag, cpus


def measure(job, mesh, args):
    devices, flag, cpus = place(mesh, args.threads)
    xlad = Side("xlad", [str(args.build / "step_vs_jax_xlad"), str(args.build / "xlad"), str(job), flag], cpus)
    jax = Side("jax", [sys.executable, str(HERE / "jax_side.py"), str(job), mesh["name"], str(devices)], cpus)
    workers = min(args.workers, devices)
    several = Side("workers", [*xlad.command, str(workers)], cpus) if workers > 1 else None
    try:
        builds = [(xlad.ask("build")["build_ms"], jax.ask("build")["build_ms"]) for _ in range(args.builds)]
        counts = [block_size(side, args.block_ms) for side in (xlad, jax)]
        if several:
            several.ask("build")
            several.step_ms(3)
        rates = [xlad.ask("roofline")] if devices == 1 else []
        blocks, several_ms = [], []
        for _ in range(args.rounds):
            blocks.append((xlad.block(counts[0]), jax.block(counts[1])))
            if several:
                several_ms.append(several.step_ms(counts[0]))
        memory = xlad.ask("memory"), jax.ask("memory")
        rates += [xlad.ask("roofline")] if devices == 1 else []
    finally:
        xlad.close()
        jax.close()
        if several:
            several.close()
    row = {"example": job.name, "mesh": mesh["name"], "devices": devices, "steps_in_block": counts,
           "threads": len(cpus or os.sched_getaffinity(0))}
    pairs = [(x[0], j[0]) for x, j in blocks]
    for what, found in (("step", pairs), ("compile", builds)):
        row[what] = {"xlad_ms": middle([x for x, _ in found]), "jax_ms": middle([j for _, j in found]),
                     "ratio": middle([j / x for x, j in found])}
    row["step"]["xlad_cpu_ms"] = statistics.median(x[1] for x, _ in blocks)
    row["step"]["jax_cpu_ms"] = statistics.median(j[1] for _, j in blocks)
    row["step"]["best_ratio"] = min(j for _, j in pairs) / min(x for x, _ in pairs)
    if several:
        others = [min(pair) for pair in pairs]
        row["workers"] = {"count": workers, "ms": middle(several_ms), "best_ratio": min(several_ms) / min(others),
                          "ratio": middle([ms / other for ms, other in zip(several_ms, others)])}
    if rates and rates[0]["flops"] > 0:
        row["roofline"] = roofline(rates, min(x for x, _ in pairs), min(j for _, j in pairs))
    row["memory"] = {"xlad": memory[0], "jax": memory[1],
                     "ratio": memory[0]["plan_bytes"] / max(1, memory[1]["plan_bytes"])}
    return row


def roofline(measured, xlad_ms, jax_ms):
    """Compares the fastest blocks with the roofline. `measured` has two answers of xlad's side."""
    work = measured[0]
    flops_per_s, bytes_per_s = (max(m[rate] for m in measured) for rate in ("flops_per_s", "bytes_per_s"))
    ms = 1000 * (work["flops"] / flops_per_s + 2 * work["state_bytes"] / bytes_per_s)
    return {"ms": ms, "share": ms / xlad_ms, "limit": jax_ms / ms, "flops_per_s": flops_per_s,
            "bytes_per_s": bytes_per_s}


def meshes_of(job):
    manifest = json.loads((job / "manifest.json").read_text())
    return [{"name": m["name"], "axes": m.get("axes") or {}} for m in manifest["meshes"]]


def geometric(values):
    return math.exp(statistics.fmean(math.log(v) for v in values))


HEADER = (f"{'example':18} {'mesh':14} {'xlad ms':>9} {'jax ms':>9} {'step ratio':>22} {'best':>5} {'cpu':>5}"
          f" {'xlad build':>10} {'jax build':>10}"
          f" {'ratio':>6} {'xlad MiB':>9} {'jax MiB':>9} {'ratio':>6} {'roof':>5} {'limit':>5}")


def line(row):
    step, build, memory = row["step"], row["compile"], row["memory"]
    ratio = step["ratio"]
    cpu = step["jax_cpu_ms"] / max(step["xlad_cpu_ms"], 1e-6)
    several = row.get("workers")
    roof = row.get("roofline")
    end = f" {roof['share']:5.0%} {roof['limit']:5.2f}" if roof else ""
    end += (f"  {several['count']} workers {several['ms']['median']:9.3f} {several['ratio']['median']:5.2f}"
           f" best {several['best_ratio']:5.2f}" if several else "")
    spread = f"{ratio['median']:.2f} ({ratio['min']:.2f}..{ratio['max']:.2f})"
    return (f"{row['example']:18} {row['mesh']:14} {step['xlad_ms']['median']:9.3f} {step['jax_ms']['median']:9.3f}"
            f" {spread:>22} {step['best_ratio']:5.2f} {cpu:5.2f}"
            f" {build['xlad_ms']['median']:10.0f} {build['jax_ms']['median']:10.0f}"
            f" {build['ratio']['median']:6.2f} {memory['xlad']['plan_bytes'] / 2**20:9.2f}"
            f" {memory['jax']['plan_bytes'] / 2**20:9.2f} {memory['ratio']:6.2f}{end}")


def summary(rows):
    result = {}
    threads = max([r["threads"] for r in rows if r["devices"] == 1], default=1)
    for name, chosen in ((f"one device, {threads} thread{'s' if threads > 1 else ''}",
                          [r for r in rows if r["devices"] == 1]),
                         (f"all devices on {os.cpu_count()} CPUs", [r for r in rows if r["devices"] > 1])):
        if chosen:
            steps = [r["step"]["ratio"]["median"] for r in chosen]
            result[name] = {"programs": len(chosen), "step": geometric(steps), "step_lowest": min(steps),
                            "step_best": geometric([r["step"]["best_ratio"] for r in chosen]),
                            "compile": geometric([r["compile"]["ratio"]["median"] for r in chosen]),
                            "memory": geometric([r["memory"]["ratio"] for r in chosen]),
                            "memory_highest": max(r["memory"]["ratio"] for r in chosen)}
            limits = [r["roofline"]["limit"] for r in chosen if "roofline" in r]
            if limits:
                result[name]["limit"] = {"programs": len(limits), "step": geometric(limits)}
    return result


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = [pathlib.Path(os.environ["XLAD_EXAMPLES"])] if os.environ.get("XLAD_EXAMPLES") else []
    parser.add_argument("--examples", type=pathlib.Path, action="append",
                        help="a job directory or a folder of them; may be repeated")
    parser.add_argument("--only", default="", help="names of job directories, comma-separated")
    parser.add_argument("--mesh", default="", help="names of meshes, comma-separated")
    parser.add_argument("--rounds", type=int, default=9, help="number of pairs of blocks")
    parser.add_argument("--workers", type=int, default=1,
                        help="number of processes of the third side; 1: no third side")
    parser.add_argument("--threads", type=int, default=1, help="number of CPUs for one device")
    parser.add_argument("--builds", type=int, default=3, help="number of compilations on each side")
    parser.add_argument("--block-ms", type=float, default=300, help="approximate length of a block in milliseconds")
    parser.add_argument("--build", type=pathlib.Path, default=REPO / "build/release/bin", help="folder of the binaries")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    args = parser.parse_args()
    folders = args.examples or [*given, REPO / "examples"]
    jobs = [p for f in folders for p in ([f] if (f / "manifest.json").exists() else sorted(f.glob("*/manifest.json")))]
    args.jobs = [p.parent if p.name == "manifest.json" else p for p in jobs]
    if not args.jobs:
        parser.error(f"found no job directory (manifest.json) in {', '.join(map(str, folders))}")
    return args


def main():
    args = arguments()
    chosen = lambda name, names: not names or name in names.split(",")  # noqa: E731
    rows, failures = [], []
    print(HEADER)
    for job in args.jobs:
        for mesh in meshes_of(job) if chosen(job.name, args.only) else []:
            if not chosen(mesh["name"], args.mesh):
                continue
            try:
                rows.append(measure(job, mesh, args))
                print(line(rows[-1]), flush=True)
            except RuntimeError as error:
                failures.append({"example": job.name, "mesh": mesh["name"], "error": str(error)})
                print(f"{job.name:18} {mesh['name']:14} {error}", flush=True)
    for name, figures in summary(rows).items():
        limit = (f", limit {figures['limit']['step']:.2f}x over {figures['limit']['programs']}" if "limit" in figures
                 else "")
        print(f"{name}: geometric means over {figures['programs']}: step {figures['step']:.2f}x (lowest"
              f" {figures['step_lowest']:.2f}x, of fastest blocks {figures['step_best']:.2f}x{limit}), compile"
              f" {figures['compile']:.2f}x, memory {figures['memory']:.2f}x"
              f" (highest {figures['memory_highest']:.2f}x)")
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "failures": failures, "summary": summary(rows)}, indent=1))
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()
