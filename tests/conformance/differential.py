"""Runs random programs in jaxlib and in `xlad eval`, and compares the results.

    python differential.py --xlad build/release/bin/xlad [--seed 0] [--cases 3000] [--only PREFIX ...] [--keep FOLDER]

The programs are single instructions of random types, shapes and attributes or, with --jax, expressions of JAX.

Prints the disagreements. The exit code is 1 if there are any. Programs that jaxlib refuses are counted by reason.
"""

import argparse
import collections
import re
import sys
import tempfile
import zlib

import numpy as np

import jax_programs
import random_elementwise
import random_structure
from cases import Jaxlib, Refused, evaluate, to_proto, write
from program import Program

PIECES = 12  # The pieces per program. Programs have several pieces because compilation takes most of the time.


def all_generators():
    return random_elementwise.generators() + random_structure.generators()


class Maker:
    """Makes programs of several pieces each. If jaxlib refuses a program, makes a program of each of its pieces."""

    def __init__(self, arguments):
        self.arguments, self.jaxlib = arguments, Jaxlib()
        self.cases, self.refused, self.faults, self.blocked = [], collections.Counter(), [], set()

    def make(self, pieces):
        """`pieces` is a list of (name, generator, round)."""
        pieces = [piece for piece in pieces if piece[0] not in self.blocked]
        if not pieces:
            return
        program, labels = Program(), []
        for name, generate, r in pieces:
            generate(program, np.random.default_rng([self.arguments.seed, r, zlib.crc32(name.encode())]))
            labels += [name] * (len(program.roots) - len(labels))
        if not program.roots:
            return
        case = program.case(f"{pieces[0][0]}_{pieces[0][2]}", extra={"labels": labels})
        try:
            case.expected = self.jaxlib.run(to_proto(self.arguments.xlad, case.text), case.inputs)
            self.cases.append(case)
        except Refused as error:
            if len(pieces) > 1:
                for piece in pieces:
                    self.make([piece])
            elif str(error).startswith("xlad"):
                self.faults.append((case.name, f"{error}\n{case.text}"))
            else:
                self.refused[f"{pieces[0][0]}: {error}"] += 1
                self.blocked.add(pieces[0][0])

    def make_all(self):
        chosen = [g for g in all_generators() if g[0].startswith(tuple(self.arguments.only))]
        count = self.arguments.cases
        if count < len(chosen):  # Takes every n-th generator; the seed decides with which one it begins.
            step = len(chosen) // count + 1
            chosen = chosen[self.arguments.seed % step::step]
        for r in range(max(1, count // max(1, len(chosen)))):
            families = collections.defaultdict(list)
            for name, generate in chosen:
                families[name.split("/")[0]].append((name, generate, r))
            for pieces in families.values():
                for i in range(0, len(pieces), PIECES):
                    self.make(pieces[i:i + PIECES])


def jax_cases(arguments):
    """Returns cases of JAX's expressions, and how often JAX does not accept a type, by reason."""
    cases, refused = [], collections.Counter()
    chosen = [(family, expression, name) for family, expression, names in jax_programs.expressions()
              for name in names if family.startswith(tuple(arguments.only))]
    step = max(1, len(chosen) // max(1, arguments.cases))
    for family, expression, name in chosen[arguments.seed % step::step]:
        rng = np.random.default_rng([arguments.seed, zlib.crc32(f"{expression}{name}".encode())])
        try:
            cases.append(jax_programs.make_case(rng, family, expression, name))
        except Exception as error:  # JAX raises many kinds of errors if a function does not accept a type.
            refused[f"{expression} in {name}: {str(error).splitlines()[0][:100]}"] += 1
    return cases, refused


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--xlad", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=3000)
    parser.add_argument("--only", nargs="*", default=[""], help="only programs whose names begin with one of these")
    parser.add_argument("--jax", action="store_true", help="test expressions of JAX")
    parser.add_argument("--keep", help="folder for the cases; default: a temporary one")
    parser.add_argument("--verbose", action="store_true", help="print what jaxlib refuses")
    arguments = parser.parse_args()
    failures = []
    if arguments.jax:
        cases, refused = jax_cases(arguments)
    else:
        maker = Maker(arguments)
        maker.make_all()
        cases, refused, failures = maker.cases, maker.refused, maker.faults
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        write(folder, cases)
        results = evaluate(arguments.xlad, folder)
    labels = {case.name: case.extra.get("labels") for case in cases}
    for name, (passed, message) in results.items():
        if not passed:
            index = re.match(r"result (\d+)", message)
            failures.append((f"{name} ({labels[name][int(index.group(1))]})" if index and labels[name] else name,
                             message))
    for name, message in failures:
        print(f"DIFFERS {name}: {message}")
    if arguments.verbose:
        for reason, count in refused.most_common():
            print(f"refused {count}: {reason}")
    pieces = sum(len(case.compare) for case in cases)
    agree = sum(passed for passed, _ in results.values())
    print(f"{len(results)} programs with {pieces} results: {agree} agree, "
          f"{len(failures)} differ, jaxlib refuses {sum(refused.values())}")
    if not results:
        print(f"found no program, expected some whose names begin with one of: {', '.join(arguments.only)}")
    return 1 if failures or not results else 0


if __name__ == "__main__":
    sys.exit(main())
