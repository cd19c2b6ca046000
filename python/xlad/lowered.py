"""A function of a cluster as a program, before and after it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xlad import commands
from xlad.job import Axes, axes_text
from xlad.session import Loaded
from xlad.trees import Tree


class Lowered:
    """The result of Jitted.lower: the program of a function for certain shapes."""

    def __init__(self, name: str, axes: Axes, program: bytes, out_info: Tree, text: str,
                 stablehlo: Callable[[], str], load: Callable[[], Loaded], function: Callable[..., Any]) -> None:
        self.out_info = out_info  # jax.ShapeDtypeStructs of the results.
        self._name = name
        self._axes = axes
        self._program = program
        self._text = text
        self._stablehlo = stablehlo
        self._load = load
        self._function = function

    def as_text(self, dialect: str = "hlo") -> str:
        """Returns the program of all devices together, with its sharding annotations. `dialect` is "hlo" or
        "stablehlo"."""
        if dialect not in ("hlo", "stablehlo"):
            raise ValueError(f"found dialect {dialect!r}, expected 'hlo' or 'stablehlo'")
        return self._text if dialect == "hlo" else self._stablehlo()

    def explain(self) -> str:
        """Returns what is sent between devices, most bytes first, and the source lines that cause it."""
        return commands.on_program("explain", self._program, self._axes)

    def partitioned(self) -> str:
        """Returns the program that every device runs, as HLO."""
        return commands.on_program("partition", self._program, self._axes)

    def compile(self) -> Compiled:
        """Compiles the program on the cluster, which then has it in its cache."""
        return Compiled(self, self._load())

    def __repr__(self) -> str:
        return f"<program of {self._name} on mesh {axes_text(self._axes)}>"


class Compiled:
    """The result of Lowered.compile. It can be called like the function."""

    def __init__(self, lowered: Lowered, loaded: Loaded) -> None:
        from xlad import shardings

        def split(boxes: list[Any]) -> list[Any]:
            """Returns a NamedSharding for each value, or None if no NamedSharding describes how it is split."""
            sizes = lambda of: [max((box[d][1] for box in of), default=0) for d in range(len(of[0]))] if of else []
            specs = [shardings.spec_of_boxes(lowered._axes, sizes(of), of) for of in boxes]
            mesh = shardings.abstract_mesh(lowered._axes)
            return [None if spec is None else shardings.NamedSharding(mesh, spec) for spec in specs]

        self.compile_ms = loaded.compile_ms  # The time of the build in milliseconds.
        self.cached = loaded.cached  # Whether the executable came from the cache and was not compiled.
        self.warnings = loaded.warnings
        self.input_shardings = split(loaded.parameters)  # One for each leaf.
        self.output_shardings = split(loaded.results)
        self._lowered = lowered

    def as_text(self) -> str:
        """Returns the program that every device runs, as HLO."""
        return self._lowered.partitioned()

    def __call__(self, *arguments: Tree, **named: Tree) -> Tree:
        return self._lowered._function(*arguments, **named)

    def __repr__(self) -> str:
        how = "from the cache" if self.cached else f"in {self.compile_ms:.0f} ms"
        return f"<{self._lowered._name} on mesh {axes_text(self._lowered._axes)}, compiled {how}>"
