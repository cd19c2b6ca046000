"""Functions of one number, computed with 40 digits. XLA's CPU backend computes them less accurately than possible."""

import dataclasses

import ml_dtypes
import mpmath
import numpy as np

from cases import COMPLEX, DTYPES

mpmath.mp.dps = 40
PARTS = {"c64": "f32", "c128": "f64"}


@dataclasses.dataclass
class Function:
    function: object
    low: float = -4.0  # Arguments are drawn from [low, high].
    high: float = 4.0
    real_only: bool = False

    def arguments(self, rng, name, count):
        values = rng.uniform(self.low, self.high, count)
        # Some arguments are near zero, where cancellation errors are large.
        values[::5] *= 10.0 ** rng.uniform(-6, 0, len(values[::5]))
        if self.low >= 0:
            values = np.maximum(values, self.low)
        if name in COMPLEX:
            values = values + 1j * rng.uniform(-4, 4, count)
        return values.astype(DTYPES[name])

    def result(self, name):
        return name


def logistic(z):
    return 1 / (1 + mpmath.exp(-z))


FUNCTIONS = {
    "acos": Function(mpmath.acos, -1, 1), "acosh": Function(mpmath.acosh, 1, 20), "asin": Function(mpmath.asin, -1, 1),
    "asinh": Function(mpmath.asinh), "atan": Function(mpmath.atan), "atanh": Function(mpmath.atanh, -0.99, 0.99),
    "cbrt": Function(lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -99, 99, real_only=True),
    "cosh": Function(mpmath.cosh), "sinh": Function(mpmath.sinh), "cosine": Function(mpmath.cos, -20, 20),
    "sine": Function(mpmath.sin, -20, 20), "tan": Function(mpmath.tan), "tanh": Function(mpmath.tanh),
    "erf": Function(mpmath.erf, real_only=True), "exponential": Function(mpmath.exp, -9, 9),
    "exponential-minus-one": Function(mpmath.expm1), "log": Function(mpmath.log, 1e-3, 50),
    "log-plus-one": Function(mpmath.log1p, -0.9, 9), "logistic": Function(logistic, -15, 15),
    "rsqrt": Function(lambda z: 1 / mpmath.sqrt(z), 1e-3, 50), "sqrt": Function(mpmath.sqrt, 0, 50),
}


def number(value):
    value = complex(value)
    return mpmath.mpc(value.real, value.imag) if value.imag else mpmath.mpf(value.real)


def rounded(function, values, name):
    """Returns function(values), rounded once to the type."""
    exact = [function(number(v)) for v in values.reshape(-1)]
    if name in COMPLEX:
        part = DTYPES[PARTS[name]]
        result = np.array([part(round_real(z.real, part)) + 1j * part(round_real(z.imag, part)) for z in exact])
    else:
        result = np.array([round_real(mpmath.re(z), DTYPES[name]) for z in exact])
    return result.astype(DTYPES[name]).reshape(values.shape)


def round_real(exact, dtype):
    """Rounds to nearest in one step. A conversion to a double first would round a narrow type twice."""
    if exact == 0 or not mpmath.isfinite(exact):
        return dtype(float(exact))
    bits = ml_dtypes.finfo(dtype).nmant + 1
    with mpmath.workprec(bits):
        return dtype(float(+exact))
