"""Compares xlad with jaxlib in linear algebra and Fourier transforms, on one thread.

    python bench/linear_algebra/linear_algebra.py                    all rows
    python bench/linear_algebra/linear_algebra.py --only fft,eigh    rows whose names begin with these words

Each row is a program of one routine, written as a job directory and measured by step_vs_jax.py: blocks of steps of xlad
and of jaxlib alternate, both bound to the same CPU. A ratio is jaxlib's time over xlad's; above 1, xlad is faster. Both
times include a sum over the results, without which the routine would be dead code.
"""

import argparse
import os
import pathlib
import sys
import tempfile

os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402  (the environment must be set first)
import jax.numpy as jnp  # noqa: E402
import jax.scipy.linalg as linalg  # noqa: E402
import numpy as np  # noqa: E402
from xlad.export import export  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "step_vs_jax"))
import step_vs_jax  # noqa: E402

TYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def positive(a):
    return a @ jnp.swapaxes(a.conj(), -1, -2) + a.shape[-1] * jnp.eye(a.shape[-1], dtype=a.dtype)


def tridiagonal(a):
    d = a[..., 0, :]
    return jax.lax.linalg.tridiagonal_solve(d * 0.1, d + 4, d * 0.1, a)


# Each routine takes one matrix, or a batch of matrices.
ROUTINES = {
    "cholesky": lambda a: jnp.linalg.cholesky(positive(a), symmetrize_input=False),
    "lu": linalg.lu_factor,
    "solve": lambda a: jnp.linalg.solve(a, a[..., :, :8]),
    "inv": jnp.linalg.inv,
    "triangular": lambda a: linalg.solve_triangular(jnp.tril(a) / 9 + 2 * jnp.eye(a.shape[-1], dtype=a.dtype), a,
                                                    lower=True),
    "qr": jnp.linalg.qr,
    "eigh": lambda a: jnp.linalg.eigh(a + jnp.swapaxes(a.conj(), -1, -2)),
    "svd": lambda a: jnp.linalg.svd(a, full_matrices=False),
    "singular_values": lambda a: jnp.linalg.svd(a, compute_uv=False),
    "tridiagonal": tridiagonal,
    "eig": jnp.linalg.eig,
}
SINGLE_ROUTINES = {  # In JAX, these take one matrix and no batch.
    "qr_pivoted": lambda a: linalg.qr(a, pivoting=True),
    "schur": linalg.schur,
    "hessenberg": linalg.hessenberg,
}
TRANSFORMS = {"fft": jnp.fft.fft, "ifft": jnp.fft.ifft, "rfft": jnp.fft.rfft, "irfft": jnp.fft.irfft,
              "fft2": jnp.fft.fft2, "irfft2": jnp.fft.irfft2}
LENGTHS = {"fft": [(4096, 16), (1024, 64), (256, 100), (256, 243), (64, 1000), (64, 1024), (16, 4093), (16, 4096),
                   (16, 5040), (1, 8192), (8, 8192), (1, 65536), (1, 65537), (1, 1048576)],
           "ifft": [(64, 1000)], "rfft": [(64, 1000), (64, 1024), (64, 1001), (16, 4093), (1, 65536)],
           "irfft": [(64, 501), (64, 513), (16, 2047)], "fft2": [(8, 64, 64), (512, 512), (100, 243)],
           "irfft2": [(8, 64, 33)]}


def cases():
    for name, routine in (ROUTINES | SINGLE_ROUTINES).items():
        single = name in SINGLE_ROUTINES
        for dims in ((8, 8), (64, 64), (256, 256)) if single else ((128, 8, 8), (16, 64, 64), (256, 256)):
            for kind in TYPES:
                yield name, kind, dims, routine
    for name, shapes in LENGTHS.items():
        for dims in shapes:
            for kind in ("f32", "f64") if name.startswith("r") else ("c64", "c128"):
                yield name, kind, dims, TRANSFORMS[name]


def write(folder, kind, dims, routine):
    rng = np.random.default_rng(0)
    real = np.zeros(0, TYPES[kind]).real.dtype
    state = {part: rng.normal(size=dims).astype(real) for part in ("re", "im")} | {"t": np.zeros((), real)}

    def step(state):
        x = state["re"] + state["t"]
        if kind[0] == "c":
            x = jax.lax.complex(x, state["im"])
        total = sum(jnp.sum(jnp.abs(leaf)) for leaf in jax.tree.leaves(routine(x)))
        return dict(state, t=(1e-12 * total).astype(real)), total.astype(np.float32)

    export(step, state, to=folder, steps=10)
    return pathlib.Path(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="prefixes of the names of rows, separated by commas")
    parser.add_argument("--types", default=",".join(TYPES), help="element types, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--block-ms", type=float, default=40)
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release" / "bin")
    args = parser.parse_args()
    args.builds = 1
    kinds = args.types.split(",")
    print(f"{'routine':16} {'type':5} {'sizes':12} {'xlad ms':>9} {'jaxlib ms':>9} {'ratio':>6}")
    slow = 0
    for name, kind, dims, routine in cases():
        if kind not in kinds or not any(name.startswith(word) for word in args.only.split(",")):
            continue
        label = f"{name:16} {kind:5} {'x'.join(map(str, dims)):12}"
        try:
            with tempfile.TemporaryDirectory() as folder:
                job = write(folder + "/job", kind, dims, routine)
                row = step_vs_jax.measure(job, {"name": "single", "axes": {}}, args)
        except Exception as error:  # After an error in one row, the table continues with the next row.
            print(label, f"{type(error).__name__}: {error}", flush=True)
            slow += 1
            continue
        ratio = row["step"]["ratio"]["median"]
        slow += ratio < 0.8
        print(label, f"{row['step']['xlad_ms']['median']:9.3f} {row['step']['jax_ms']['median']:9.3f} {ratio:6.2f}",
              "" if ratio >= 0.8 else "slower", flush=True)
    print(f"{slow} rows have a ratio below 0.8 or failed")


if __name__ == "__main__":
    main()
