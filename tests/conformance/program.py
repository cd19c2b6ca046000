"""Builds HLO text from instructions."""

import numpy as np

from cases import Case, NAMES, shape_text


class Program:
    def __init__(self):
        self.inputs, self.lines, self.computations, self.roots, self.compare = [], [], [], [], []
        self.counter = 0

    def parameter(self, array):
        array = np.asarray(array)
        self.lines.append(f"  p{len(self.inputs)} = {shape_text(array)} parameter({len(self.inputs)})")
        self.inputs.append(array)
        return f"p{len(self.inputs) - 1}"

    def op(self, shape, opcode, operands, attributes=""):
        name = f"v{len(self.lines)}"
        suffix = f", {attributes}" if attributes else ""
        self.lines.append(f"  {name} = {shape} {opcode}({', '.join(operands)}){suffix}")
        return name

    def constant(self, name, value):
        return self.op(f"{name}[]", "constant", [str(value)])

    def computation(self, text):
        """Adds `text`, with {name} replaced by a new name, and returns the name."""
        name = f"f{len(self.computations)}"
        self.computations.append(text.replace("{name}", name))
        return name

    def combiner(self, name, opcode):
        return self.computation(f"{{name}} {{\n  x = {name}[] parameter(0)\n  y = {name}[] parameter(1)\n"
                                f"  ROOT r = {name}[] {opcode}(x, y)\n}}")

    def result(self, name, shape, compare):
        self.roots.append((name, shape))
        self.compare.append(compare)

    def case(self, name, **fields):
        lines = list(self.lines)
        if len(self.roots) == 1:
            root = self.roots[0][0]
            lines = [line.replace(f"  {root} =", f"  ROOT {root} =", 1) for line in lines]
        else:
            shapes = ", ".join(shape for _, shape in self.roots)
            names = ", ".join(root for root, _ in self.roots)
            lines.append(f"  ROOT results = ({shapes}) tuple({names})")
        body = "\n".join(lines)
        computations = "".join(text + "\n\n" for text in self.computations)
        text = f"HloModule {name.replace('/', '_').replace('-', '_')}\n\n{computations}ENTRY e {{\n{body}\n}}\n"
        return Case(name, text, self.inputs, self.compare, **fields)


def shape(name, dims):
    return f"{name}[{','.join(str(int(d)) for d in dims)}]"


def name_of(array):
    return NAMES[array.dtype]


# Results must be equal, including the signs of zeros, after all denormals are replaced by zeros. XLA's CPU backend
# replaces them.
FLUSHED_EQUAL = {"kind": "ulp", "max_ulp": 0, "signed_zero": True, "flush_denormals": True}


def ulp(count):
    return {**FLUSHED_EQUAL, "max_ulp": count}


def close(rtol, atol=0.0):
    return {"kind": "close", "rtol": rtol, "atol": atol}
