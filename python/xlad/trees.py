"""Trees of JAX (pytrees). JAX is imported when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Tree = Any


def flatten(tree: Tree) -> tuple[list[Any], Any]:
    """Returns the leaves of a tree and its structure."""
    import jax

    leaves, treedef = jax.tree_util.tree_flatten(tree)
    return leaves, treedef


def unflatten(treedef: Any, leaves: Sequence[Any]) -> Tree:
    """Returns the tree with this structure and these leaves."""
    import jax

    return jax.tree_util.tree_unflatten(treedef, leaves)
