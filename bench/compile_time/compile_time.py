"""Measures the times of the passes of a build, for programs in files and for synthetic programs of growing size.

    python3 bench/compile_time/compile_time.py step.hlo --mesh dp=4,tp=2
    python3 bench/compile_time/compile_time.py --kind layers --sizes 1000,4000,16000 --until steps
    python3 bench/compile_time/compile_time.py step.hlo --before OLD/build/release/bin/compile_time_xlad

Each run is a process of its own (compile_time_xlad). With --before, an older build runs alternately with the new one,
and the columns are the fastest of all rounds: seconds of the old build, of the new one, and new divided by old. Without
--before, the columns are the seconds for each program. Passes below --least seconds are left out.

The kinds of synthetic programs: `layers` is a forward and a backward pass over layers with weights that are split over
fsdp and tp, on 8 devices; `donated` updates many donated parameters; `constants` has kernels that differ in a constant;
`carried` is a loop that carries many arrays; `chain` is one long chain of operations.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def listed(count, text):
    return ", ".join(text.replace("$", str(i)) for i in range(count))


def layers(size):
    count = max(1, size // 10)
    lines = [f"HloModule layers, num_partitions=8, input_output_alias={{ {listed(count, '{$}: ($, {}, may-alias)')} }}",
             "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }", "ENTRY e {"]
    split = "sharding={devices=[2,2,2]<=[2,2,2]T(1,2,0) last_tile_dim_replicate}"
    lines += [f" w{i} = f32[64,64] parameter({i}), {split}" for i in range(count)]
    lines += [f" x = f32[64,64] parameter({count}), sharding={{devices=[4,1,2]<=[8] last_tile_dim_replicate}}",
              " zero = f32[] constant(0)", " y_ = f32[64,64] negate(x)"]
    before = "y_"
    for i in range(count):
        lines += [f" h{i} = f32[64,64] dot({before}, w{i}), {DOT}", f" t{i} = f32[64,64] tanh(h{i})",
                  f" n{i} = f32[64] reduce(t{i}, zero), dimensions={{1}}, to_apply=sum",
                  f" m{i} = f32[64,64] broadcast(n{i}), dimensions={{0}}", f" d{i} = f32[64,64] multiply(t{i}, m{i})",
                  f" y{i} = f32[64,64] add({before}, d{i})",
                  f" g{i} = f32[64,64] dot({before}, y{i}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
                  f" u{i} = f32[64,64] subtract(w{i}, g{i})"]
        before = f"y{i}"
    return lines + [f" ROOT r = ({listed(count, 'f32[64,64]')}) tuple({listed(count, 'u$')})", "}"]


def donated(size):
    count = max(2, size // 3)
    lines = [f"HloModule donated, input_output_alias={{ {listed(count, '{$}: ($, {}, may-alias)')} }}", "ENTRY e {"]
    lines += [f" p{i} = f32[32,32] parameter({i})" for i in range(count)]
    for i in range(count):
        lines += [f" d{i} = f32[32,32] dot(p{i}, p{(i + 1) % count}), {DOT}", f" a{i} = f32[32,32] add(p{i}, d{i})"]
    return lines + [f" ROOT r = ({listed(count, 'f32[32,32]')}) tuple({listed(count, 'a$')})", "}"]


def constants(size):
    count = max(1, size // 4)
    lines = ["HloModule constants, num_partitions=8",
             "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }", "ENTRY e {",
             " x = f32[64,64] parameter(0), sharding={devices=[8,1]<=[8]}", " zero = f32[] constant(0)"]
    for i in range(count):
        lines += [f" c{i} = f32[] constant({i})", f" b{i} = f32[64,64] broadcast(c{i}), dimensions={{}}",
                  f" a{i} = f32[64,64] multiply(x, b{i})",
                  f" r{i} = f32[64] reduce(a{i}, zero), dimensions={{0}}, to_apply=sum, sharding={{replicated}}"]
    return lines + [f" ROOT r = ({listed(count, 'f32[64]')}) tuple({listed(count, 'r$')})", "}"]


def carried(size):
    count = max(2, size // 5)
    kind = f"(s32[], {listed(count, 'f32[64,64]')})"
    lines = ["HloModule carried", "c {", f" s = {kind} parameter(0)", " i = s32[] get-tuple-element(s), index=0",
             " n = s32[] constant(40)", " ROOT p = pred[] compare(i, n), direction=LT", "}", "b {",
             f" s = {kind} parameter(0)", " i = s32[] get-tuple-element(s), index=0", " one = s32[] constant(1)",
             " next = s32[] add(i, one)"]
    lines += [f" v{i} = f32[64,64] get-tuple-element(s), index={i + 1}" for i in range(count)]
    for i in range(count):
        lines += [f" d{i} = f32[64,64] dot(v{i}, v{(i + 1) % count}), {DOT}", f" t{i} = f32[64,64] tanh(d{i})"]
    lines += [f" ROOT r = {kind} tuple(next, {listed(count, 't$')})", "}", "ENTRY e {", " zero = s32[] constant(0)"]
    lines += [f" p{i} = f32[64,64] parameter({i})" for i in range(count)]
    return lines + [f" t = {kind} tuple(zero, {listed(count, 'p$')})",
                    f" ROOT w = {kind} while(t), condition=c, body=b", "}"]


def chain(size):
    lines = ["HloModule chain", "ENTRY e {", " x = f32[64,64] parameter(0)", " v0 = f32[64,64] negate(x)"]
    for i in range(size):
        lines.append(f" v{i + 1} = f32[64,64] " + (f"dot(v{i}, x), {DOT}" if i % 4 == 3 else f"add(v{i}, x)"))
    return lines + [f" ROOT r = f32[64,64] tanh(v{size})", "}"]


KINDS = {kind.__name__: kind for kind in (layers, donated, constants, carried, chain)}


def run(binary, program, args):
    done = subprocess.run([binary, program, args.mesh, args.until], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def fastest(runs):
    names = dict.fromkeys(name for r in runs for name in r["seconds"])
    return {name: min(r["seconds"][name] for r in runs if name in r["seconds"]) for name in names}


def show(titles, columns, args):
    names = dict.fromkeys(name for column in reversed(columns) for name in column)
    names = [name for name in names if max(column.get(name, 0) for column in columns) >= args.least]
    print(f"{'pass':28}" + "".join(f"{title:>14}" for title in titles))
    for name in names:
        # An older build may lack a pass, or have one that was removed since.
        row = "".join(f"{column[name]:14.3f}" if name in column else f"{'-':>14}" for column in columns)
        ratio = ""
        if args.before:
            both = all(name in column for column in columns)
            ratio = f"{columns[1][name] / max(columns[0][name], 1e-6):14.2f}" if both else f"{'-':>14}"
        print(f"{name:28}{row}{ratio}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", help="HLO files")
    parser.add_argument("--kind", choices=sorted(KINDS), help="a synthetic program, in addition to the files")
    parser.add_argument("--sizes", default="1000,4000,16000", help="approximate numbers of instructions, for --kind")
    parser.add_argument("--mesh", default="", help="mesh axes and sizes, as dp=4,tp=2")
    parser.add_argument("--until", default="", choices=["", "partition", "steps"],
                        help="the stage after which compilation ends")
    parser.add_argument("--binary", default=REPO / "build/release/bin/compile_time_xlad")
    parser.add_argument("--before", help="compile_time_xlad of an older build")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=float, default=0.01, help="the shortest time that is printed, in seconds")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        programs = list(args.programs)
        for size in args.sizes.split(",") if args.kind else []:
            path = pathlib.Path(folder) / f"{args.kind}.{size}.hlo"
            path.write_text("\n".join(KINDS[args.kind](int(size))))
            programs.append(str(path))
        results = []
        for program in programs:
            sides = [args.before, args.binary] if args.before else [args.binary]
            rounds = [[run(side, program, args) for side in sides] for _ in range(args.rounds)]
            results.append([[r[s] for r in rounds] for s in range(len(sides))])
            if args.before:
                print(f"{pathlib.Path(program).name}: {rounds[0][0]['instructions']} instructions")
                show(["before", "after", "ratio"], [fastest(runs) for runs in results[-1]], args)
        if not args.before:
            show([pathlib.Path(p).stem[-13:] for p in programs], [fastest(sides[0]) for sides in results], args)


if __name__ == "__main__":
    main()
