"""Installs the wheel of `make wheel` into a fresh environment, and trains there with its own command and libraries.

    make wheel && build/venv/bin/python python/tests/try_wheel.py
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

from harness import REPO

# Checks that the processes of the cluster have mapped only libraries of the wheel and of glibc.
CHECK = """
import pathlib, re, sys, xlad
package = pathlib.Path(xlad.__file__).parent
with xlad.local(devices=8, workers=4) as cluster:
    import numpy as np, jax.numpy as jnp
    assert abs(float(cluster.jit(lambda x: jnp.linalg.svd(x, compute_uv=False).sum())(np.eye(5))) - 5) < 1e-5
    for pid in (cluster.pid, *(worker.pid for worker in cluster.workers())):
        paths = {line.split()[-1] for line in open(f"/proc/{pid}/maps") if "/" in line and ".so" in line}
        glibc = r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|mvec))[.]so.*"
        foreign = [p for p in paths if package not in pathlib.Path(p).parents
                   and not re.fullmatch(glibc, pathlib.Path(p).name)]
        assert not foreign, foreign
"""


def main() -> None:
    wheels = list((REPO / "build" / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"found {len(wheels)} wheels in build/wheel, expected one; run make wheel")
    script = re.search(r"```python\n(.*?)```", (REPO / "README.md").read_text(), re.DOTALL).group(1)
    with tempfile.TemporaryDirectory() as where:
        folder = pathlib.Path(where) / "bin"
        subprocess.run([sys.executable, "-m", "venv", where], check=True)
        subprocess.run([folder / "python", "-m", "pip", "install", "-q", f"{wheels[0]}[jax]"], check=True)
        env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": where, "JAX_PLATFORMS": "cpu",
               **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}}
        print(subprocess.run(["xlad", "version"], env=env, cwd=where, check=True, capture_output=True,
                             text=True).stdout.splitlines()[0])
        for program in (CHECK, script):
            subprocess.run([folder / "python", "-c", program], env=env, cwd=where, check=True,
                           stdout=subprocess.DEVNULL)
    print("the wheel trains with its own command and libraries")


if __name__ == "__main__":
    main()
