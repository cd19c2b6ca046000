"""Compiles proto/ of the checkout into a file of descriptors, from which the package creates its messages."""

import pathlib
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent


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


setup(cmdclass={"build_py": BuildWithProtos})
