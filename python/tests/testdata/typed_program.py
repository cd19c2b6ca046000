"""A program with types, as users write it. test_types.py checks it with mypy, and does not run it."""

from collections.abc import Iterator
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import xlad

State = dict[str, jax.Array]


def step(state: State, batch: jax.Array) -> tuple[State, jax.Array]:
    loss = jnp.mean((batch @ state["w"]) ** 2)
    return {"w": state["w"] - 0.1 * loss}, loss


def batches() -> Iterator[np.ndarray]:
    yield np.ones((4, 2), np.float32)


def train(cluster: xlad.Cluster, state: State) -> Any:
    run = cluster.train(step, state, batches(), steps=3, mesh={"dp": 2}, in_shardings=(None, P("dp")), drop_last=True,
                        on_step=lambda s: print(s.step, s.loss), evaluate=lambda s, t: float(t), evaluate_every=1)
    assert_type(run, xlad.Run)
    for s in run:
        assert_type(s, xlad.Step)
        assert_type(s.step, int)
    assert_type(run.wait(), xlad.Status)
    assert_type(run.checkpoint(), xlad.Checkpoint | None)
    assert_type(run.why(), str)
    assert_type(run.evaluations, list[xlad.Evaluation])
    return run.result()


def operate(cluster: xlad.Cluster, x: xlad.RemoteArray) -> None:
    double = cluster.jit(lambda a: a * 2, mesh="dp=2", donate_argnums=0)
    assert_type(double, xlad.Jitted)
    assert_type(double.lower(x), xlad.Lowered)
    assert_type(double.lower(x).compile(), xlad.Compiled)

    @cluster.jit(static_argnames="power")
    def raised(a: jax.Array, power: int = 2) -> jax.Array:
        return a ** power

    assert_type(raised, xlad.Jitted)
    assert_type(x.shape, tuple[int, ...])
    assert_type(x.devices(), set[xlad.RemoteDevice])
    assert_type(x.block_until_ready(), xlad.RemoteArray)
    assert_type(float(x[0] + 1), float)
    x.at[0].set(1.0, mode="drop")


def main() -> None:
    with xlad.local(devices=2) as cluster:
        assert_type(cluster, xlad.LocalCluster)
        assert_type(cluster.jobs(), list[xlad.Status])
        assert_type(cluster.workers(), list[xlad.Worker])
        train(cluster, {"w": jnp.ones(2)})
    with xlad.connect("127.0.0.1:7411") as other:
        assert_type(other, xlad.Cluster)
