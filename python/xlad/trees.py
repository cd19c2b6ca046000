"""Trees of JAX (pytrees). JAX is imported when it is first needed."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Sequence
from typing import Any

Tree = Any
MAX_KEYS = 5  # The number of keys of a node that an error names.


def flatten(tree: Tree) -> tuple[list[Any], Any]:
    """Returns the leaves of a tree and its structure."""
    import jax

    leaves, treedef = jax.tree_util.tree_flatten(tree)
    return leaves, treedef


def unflatten(treedef: Any, leaves: Sequence[Any]) -> Tree:
    """Returns the tree with this structure and these leaves."""
    import jax

    return jax.tree_util.tree_unflatten(treedef, leaves)


def key_text(key: Any) -> str:
    """Returns a key of a path of JAX as text: the key of a dictionary, an index, or the name of a field."""
    return str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))))


def label(name: str) -> str:
    """Returns how messages call the leaf with this name: "w" is called w, and "0", of a tuple, leaf 0."""
    return f"leaf {name}" if name[:1].isdigit() else name


def first_difference(found: Tree, expected: Tree, place: str) -> str:
    """Describes the first node at which the structures of two trees differ. `place` is the name of the trees."""
    import jax

    structure: Any = jax.tree_util.tree_structure  # JAX does not declare the methods of a PyTreeDef.
    one_level: Any = lambda tree: jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    (parts, node), (others, other_node) = one_level(found), one_level(expected)
    if node == other_node:
        for (path, part), (_, other) in zip(parts, others):
            if structure(part) != structure(other):
                return first_difference(part, other, f"{place}.{key_text(path[0])}")
    kinds = [_kind(found, parts, others), _kind(expected, others, parts)]
    return f"{place}: found {kinds[0]}, expected {kinds[1] if len({*kinds}) == 2 else 'other static fields'}"


def _kind(tree: Tree, parts: Sequence[tuple[Any, Any]], others: Sequence[tuple[Any, Any]]) -> str:
    """Describes a node with these parts. If it has many keys, only those that are not in `others` are named."""
    if tree is None or parts and not parts[0][0]:
        return "None" if tree is None else "a leaf"
    name = type(tree).__name__
    if type(tree) in (list, tuple):
        return f"{name} of {len(parts)}"
    keys, known = [key_text(path[0]) for path, _ in parts], {key_text(path[0]) for path, _ in others if path}
    if len(keys) <= MAX_KEYS:
        return f"{name}({', '.join(keys)})"
    own = [key for key in keys if key not in known]
    named = ", ".join([*own[:MAX_KEYS], *(["..."] if len(own) > MAX_KEYS else [])])
    return f"{name} of {len(keys)} keys" + (f", among them {named}" if own else "")


class _Node:
    """A node with the keys of another node."""

    def __init__(self, keys: tuple[Any, ...], children: Iterable[Tree]):
        self.keys = keys
        self.children = tuple(children)


@functools.cache
def _register_node() -> None:
    import jax

    jax.tree_util.register_pytree_with_keys(_Node, lambda node: (zip(node.keys, node.children), node.keys), _Node)


def plain(tree: Tree) -> Tree:
    """Returns the tree with nodes of a class of this module instead of the nodes of other classes. The paths of the
    leaves stay the same. A tree with this structure may have any leaves, such as shardings, but other classes may
    refuse them."""
    import jax

    _register_node()
    children, treedef = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: part is not tree)
    if tree is None or jax.tree_util.treedef_is_leaf(treedef):
        return tree
    parts = [plain(child) for _, child in children]
    if type(tree) in (dict, list, tuple, collections.OrderedDict, collections.defaultdict):
        return jax.tree_util.tree_unflatten(treedef, parts)
    return _Node(tuple(path[0] for path, _ in children), parts)
