"""A job in memory: the contents of a job directory for one mesh (docs/reference/job-directory.md)."""

from __future__ import annotations

import dataclasses
import json
import operator
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xlad import element_types, protos
from xlad.connection import sha256

Axes = dict[str, int]
MAX_KEPT = 64  # The largest number of checkpoints that are kept for evaluations, which may be slower than the training.

_MODES = ("run-to-run", "fast", "canonical")  # Ordered by their numbers in proto/executable.proto.
_TIERS = ("quick-first", "optimized")  # Ordered by their numbers in proto/job.proto.
_PARAMETER_KINDS = {"state": 1, "rng": 1, "data": 2, "step": 3}
_RESULT_KINDS = {"state": 1, "rng": 1, "loss": 2, "metric": 3}


def axes_text(axes: Mapping[str, int]) -> str:
    return ",".join(f"{name}={size}" for name, size in axes.items()) or "single"


def parse_axes(text: str) -> Axes:
    """Parses "dp=4,tp=2". The texts "" and "single" mean one device."""
    axes: Axes = {}
    for part in text.split(",") if text not in ("", "single") else []:
        name, _, size = part.strip().partition("=")
        if not name or not size.isdigit() or int(size) < 1 or name in axes:
            raise ValueError(f"found mesh {text!r}, expected AXIS=SIZE[,AXIS=SIZE...], as in dp=4,tp=2")
        axes[name] = int(size)
    return axes


def as_int(value: Any) -> int | None:
    """Returns an integer of Python, numpy or JAX as an int, and None for any other value, including a boolean. Arrays
    of numpy and JAX have `__index__` whatever they contain, so it is called."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def whole_number(value: Any, what: str) -> int:
    """Returns `value`, which may be a float without a fraction, as an int of 0 or more."""
    if hasattr(value, "is_integer") and value.is_integer():
        value = int(value)
    number = as_int(value)
    if number is None or number < 0:
        raise ValueError(f"found {what}={value!r}, expected a whole number, 0 or more")
    return number


@dataclasses.dataclass(frozen=True)
class Recovery:
    """When a job saves its state, the state from which it starts, and how its program is compiled."""

    checkpoint_every: int | None = None  # In steps; None means every 5 minutes.
    resume: str | None = None  # A job's id or the URI of a checkpoint; None means the initial state of the job.
    start_step: int = 0
    keep: int = 0  # The number of checkpoints that are kept; 0 means the default, 2.
    stop_when_not_finite: bool = False
    mode: str = "run-to-run"
    memory_limit: int = 0  # In bytes; 0 means no limit.
    compile_tier: str = "quick-first"

    def with_evaluation(self, evaluate: Any, every: int | None, steps: int) -> Recovery:
        """Returns these options, changed so that the checkpoints that evaluations need are saved and kept."""
        if (evaluate is None) != (every is None):
            found, missing = ("evaluate_every", "evaluate") if evaluate is None else ("evaluate", "evaluate_every")
            raise TypeError(f"found {found} without {missing}, expected both")
        if every is None:
            return self
        if whole_number(every, "evaluate_every") < 1:
            raise ValueError(f"found evaluate_every={every}, expected 1 or more steps")
        saved = every if self.checkpoint_every is None else self.checkpoint_every
        if saved < 1 or every % saved:
            raise ValueError(f"found checkpoint_every={saved} and evaluate_every={every}, expected evaluate_every to "
                             "be a multiple of checkpoint_every: only saved states are evaluated")
        keep = min(MAX_KEPT, max(2, steps // saved + 1))  # Includes the final checkpoint.
        return dataclasses.replace(self, checkpoint_every=saved, keep=keep)

    def fill(self, spec: Any) -> None:
        if self.checkpoint_every is not None:
            if self.checkpoint_every < 1:
                raise ValueError(f"found checkpoint_every={self.checkpoint_every}, expected 1 or more steps")
            spec.checkpoint.every_steps = self.checkpoint_every
            spec.checkpoint.keep = self.keep
        if self.mode not in _MODES:
            raise ValueError(f"found mode={self.mode!r}, expected one of {', '.join(_MODES)}")
        spec.compile.reduction_mode = _MODES.index(self.mode)
        spec.compile.memory_limit_bytes = whole_number(self.memory_limit, "memory_limit")
        if self.compile_tier not in _TIERS:
            raise ValueError(f"found compile_tier={self.compile_tier!r}, expected one of {', '.join(_TIERS)}")
        spec.compile_tier = _TIERS.index(self.compile_tier)
        spec.stop_when_not_finite = self.stop_when_not_finite
        spec.resume = self.resume or ""
        spec.start_step = self.start_step


@dataclasses.dataclass(frozen=True)
class Job:
    manifest: dict[str, Any]  # The contents of manifest.json; its meshes are ignored.
    axes: Axes
    program: bytes  # HLO text or proto
    state: bytes  # safetensors
    data: bytes  # safetensors; may be empty
    # If set, replaces `data`. Given a step, yields one safetensors file for that step and one for each later step.
    stream: Callable[[int], Iterator[bytes]] | None = None

    @property
    def metric_names(self) -> list[str]:
        return [r["name"] for r in self.manifest["results"] if r["kind"] in ("loss", "metric")]

    def spec(self, keep_final_state: bool) -> Any:
        """Returns the JobSpec."""
        spec = protos.message("JobSpec")(
            name=self.manifest.get("name", "job"),
            program_blob=sha256(self.program),
            state_blob=sha256(self.state),
            data_blob=sha256(self.data) if self.data else "",
            mesh=[{"name": name, "size": size} for name, size in self.axes.items()],
            steps=self.manifest["steps"],
            keep_final_state=keep_final_state,
        )
        if self.stream is not None:
            spec.data_uri = "stream:"
        batches = self.manifest.get("batches")
        if batches:
            spec.batch_size, spec.batch_count = batches["batch"], batches["count"]
        for entry in self.manifest["parameters"]:
            _fill(spec.parameters.add(), entry, _PARAMETER_KINDS)
        for entry in self.manifest["results"]:
            result = spec.results.add()
            _fill(result, entry, _RESULT_KINDS)
            feeds = entry.get("feeds")
            result.feeds = -1 if feeds is None else feeds
        return spec


def _fill(message: Any, entry: Mapping[str, Any], kinds: Mapping[str, int]) -> None:
    if entry["kind"] not in kinds:
        raise ValueError(f"{entry['name']}: found kind {entry['kind']!r}, expected one of {', '.join(kinds)}")
    message.name, message.kind = entry["name"], kinds[entry["kind"]]
    row, dims = element_types.parse_shape(entry["shape"])
    message.shape.element_type = row.number
    message.shape.dims.extend(dims)


def _read_program(folder: pathlib.Path, mesh: Mapping[str, Any]) -> bytes:
    """Returns the text. Returns the proto if there is no text, or if the text omits constants and there is a proto."""
    texts: list[pathlib.Path] = [folder / name for name in mesh["files"] if name.endswith(".hlo")]
    protobufs: list[pathlib.Path] = [folder / name for name in mesh["files"] if name.endswith(".pb")]
    if texts and ("constant({...})" not in texts[0].read_text() or not protobufs):
        return texts[0].read_bytes()
    if not protobufs:
        raise ValueError(f"mesh {mesh.get('name')} lists no file that ends in .hlo or .pb")
    return protobufs[0].read_bytes()


def read_directory(directory: str | pathlib.Path, axes: Axes, steps: int | None) -> Job:
    """Returns the job of a job directory, with the program of the mesh that has these axes. If there is no such mesh,
    takes the program of a mesh with the same axis names. `steps` replaces the manifest's number unless it is None."""
    folder = pathlib.Path(directory)
    path = folder / "manifest.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no manifest.json, expected a job directory")
    try:
        manifest = json.loads(path.read_text())
        meshes = manifest["meshes"]
        same = [mesh for mesh in meshes if list(mesh["axes"].items()) == list(axes.items())]
        same += [mesh for mesh in meshes if axes and set(mesh["axes"]) == set(axes)]
        if not same:
            known = "; ".join(axes_text(mesh["axes"]) for mesh in meshes)
            raise ValueError(f"found no program for mesh {axes_text(axes)}, expected one of {known} "
                             "(or other sizes of the same axes)")
        program = _read_program(folder, same[0])
        if steps is not None:
            manifest["steps"] = steps
        has_data = any(entry["kind"] == "data" for entry in manifest["parameters"])
        job = Job(manifest, axes, program, (folder / "state.safetensors").read_bytes(),
                  (folder / "data.safetensors").read_bytes() if has_data else b"")
        job.spec(False)
    except (KeyError, TypeError, ValueError) as error:
        missing = f"found no field {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: {missing}") from None
    return job
