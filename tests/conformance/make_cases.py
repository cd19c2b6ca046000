"""Makes the conformance cases of the folder beside this script: programs of JAX with jaxlib's results, and the cases of
own_cases.py, most of which have opcodes that JAX does not emit. The results of the cases of own_cases.py are from
numpy, from mpmath or from the opcode's definition.

    python make_cases.py [--only PREFIX ...] [--folder FOLDER]
"""

import argparse
import pathlib
import shutil
import zlib

import numpy as np

import jax_programs
import own_cases
from cases import write

FOLDER = pathlib.Path(__file__).parent / "slice"
# The maximum number of characters of a program. Special functions and random numbers can unroll to much longer
# programs, for which no cases are made.
MAX_TEXT = 7000


def jax_cases(only):
    """Yields one case per expression, each in one element type. The types alternate."""
    for i, (family, expression, names) in enumerate(jax_programs.expressions()):
        if not family.startswith(only):
            continue
        name = names[i % len(names)]
        seed = zlib.crc32(f"{family}{expression}{name}".encode())
        try:
            case = jax_programs.make_case(np.random.default_rng(seed), family, expression, name)
        except Exception as error:  # JAX raises many kinds of errors if a function does not accept a type.
            print(f"no case: {expression} in {name}: {str(error).splitlines()[0][:100]}")
            continue
        if len(case.text) <= MAX_TEXT:
            yield case


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER,
                        help="the output, whose old contents are removed")
    parser.add_argument("--only", nargs="*", default=[""], help="prefixes of the families of JAX programs to make")
    arguments = parser.parse_args()
    cases = {case.name: case for case in [*own_cases.all_cases(), *jax_cases(tuple(arguments.only))]}
    shutil.rmtree(arguments.folder, ignore_errors=True)
    write(arguments.folder, list(cases.values()))
    size = sum(path.stat().st_size for path in arguments.folder.rglob("*") if path.is_file())
    print(f"{len(cases)} cases, {size} bytes")


if __name__ == "__main__":
    main()
