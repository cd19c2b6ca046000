"""A program whose calls have wrong types. test_types.py checks that mypy refuses each line with a comment."""

import xlad


def main(cluster: xlad.Cluster) -> None:
    cluster.train(lambda s: (s, 0.0), 1.0, steps="3")  # arg-type
    cluster.train(lambda s: (s, 0.0), 1.0, length=3)  # call-arg
    cluster.jit(lambda x: x, donate_argnums=0.5)  # call-overload
    xlad.local(workers=2.5)  # arg-type
    xlad.fetched({})  # attr-defined
    cluster.jobs().result()  # attr-defined
