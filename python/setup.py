"""Compiles proto/ of the checkout into a file of descriptors, from which the package creates its messages.

If the folder xlad/bin/ exists (scripts/wheel.sh creates it), the wheel contains the xlad command and is for one
platform.
"""

import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
HAS_COMMAND = (HERE / "xlad" / "bin" / "xlad").exists()


class BuildWithProtos(build_py):
    def run(self) -> None:
        built = HERE / "xlad" if self.editable_mode else pathlib.Path(self.build_lib) / "xlad"
        if not self.editable_mode:
            shutil.rmtree(built, ignore_errors=True)  # Remove modules of an earlier build.
        super().run()
        if not (HERE.parent / "proto" / "worker.proto").exists():
            raise SystemExit(f"found no {HERE.parent / 'proto'}, expected to be in a checkout of xlad")
        from grpc_tools import protoc

        code = protoc.main(["protoc", f"-I{HERE.parent}", "--include_imports",
                            f"--descriptor_set_out={built / 'protos.binpb'}", "proto/worker.proto"])
        if code != 0:
            raise SystemExit(f"protoc ended with {code}")


def options() -> dict[str, object]:
    if not HAS_COMMAND:
        return {"cmdclass": {"build_py": BuildWithProtos}}
    from setuptools.command.bdist_wheel import bdist_wheel

    class WheelOfOnePlatform(bdist_wheel):
        def finalize_options(self) -> None:
            super().finalize_options()
            self.root_is_pure = False

        def get_tag(self) -> tuple[str, str, str]:
            return "py3", "none", os.environ["XLAD_WHEEL_PLATFORM"]

    return {"cmdclass": {"build_py": BuildWithProtos, "bdist_wheel": WheelOfOnePlatform},
            "entry_points": {"console_scripts": ["xlad = xlad.installed_command:run_program"]}}


setup(**options())
