"""Arrays that stay on the workers of a session."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from xlad import element_types
from xlad.errors import Error
from xlad.index_updates import At
from xlad.session import Session
from xlad.trees import Tree

if TYPE_CHECKING:
    from jax.core import ShapedArray
    from jax.sharding import NamedSharding

# Calls a function of arrays on the cluster. The key identifies the function: equal keys mean equal functions.
Operate = Callable[[Any, Callable[..., Any], list[Any]], Any]


class RemoteDevice(NamedTuple):
    """A device of a session. `id` is its position in the mesh, in row-major order."""

    id: int


class RemoteArray:
    """An array on the workers, which behaves like a jax.Array, and is one for isinstance.

    Operators, indexing and methods run on the cluster and return remote arrays. np.asarray(), float(), .get() and the
    functions of jax.numpy fetch the array and compute in this process, and so do all operations on random keys.
    Immutable. The array on the workers is freed when this object is no longer referenced.
    """

    __array_priority__ = 200  # Operators of numpy arrays leave the operation to this class.
    # JAX may compute with the array on any device of this machine, regardless of its sharding.
    committed = _committed = False
    is_fully_addressable = True  # This process can read all elements.
    __hash__ = None  # type: ignore[assignment]  # Because == is elementwise.

    def __new__(cls, *arguments: Any, **named: Any) -> RemoteArray:
        return object.__new__(_class_for_jax() if cls is RemoteArray else cls)

    def __init__(self, session: Session, number: int, dtype: np.dtype, shape: tuple[int, ...], *, key: Any = None,
                 spec: Any = None, operate: Operate | None = None, is_weak: bool = False) -> None:
        """If the array contains random keys as uint32 words, `key` is their KeyLeaf, which has their implementation.
        `spec` is the array's PartitionSpec, or None if it is not split. `is_weak` says whether its type is weak."""
        self._dtype = dtype
        self._shape = shape
        self._session = session
        self._number: int | None = number
        self._key = key
        self._spec = spec
        self._operate = operate
        self.weak_type = is_weak
        self._here: np.ndarray | None = None
        session.add(self)
        if not _flax_knows and "flax.serialization" in sys.modules:
            _tell_flax()

    if TYPE_CHECKING:  # The operators and methods that are added below.

        def __getattr__(self, name: str) -> Any: ...

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def sharding(self) -> NamedSharding:
        """A NamedSharding on an abstract mesh, which says how the array is split."""
        from xlad import shardings

        spec = shardings.P() if self._spec is None else self._spec
        return shardings.RemoteSharding(shardings.abstract_mesh(self._session.axes), spec)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all elements."""
        entries = () if self._spec is None else self._spec
        names = itertools.chain.from_iterable((entry,) if isinstance(entry, str) else entry or () for entry in entries)
        return all(self._session.axes[name] == 1 for name in names)

    @property
    def aval(self) -> ShapedArray:
        import jax

        if self._key is not None:
            return cast("ShapedArray", jax.typeof(self.get()))
        return jax.core.ShapedArray(self.shape, self.dtype, weak_type=self.weak_type)

    def devices(self) -> set[RemoteDevice]:
        """The devices of the array's session. All of them have a part of the array."""
        return {RemoteDevice(i) for i in range(math.prod(self._session.axes.values()))}

    @property
    def device(self) -> Any:
        """The array's device, or its sharding if it is on several devices, as for a jax.Array."""
        found = self.devices()
        return self.sharding if len(found) > 1 else found.pop()

    @property
    def addressable_shards(self) -> Any:
        raise NotImplementedError(f"found {self!r}, whose parts are on workers, expected an array of this process: use "
                                  ".get()")

    global_shards = addressable_shards

    def addressable_data(self, index: int) -> Any:
        return self.addressable_shards[index].data

    def copy_to_host_async(self) -> None:
        """Does nothing: the array is fetched when it is used."""

    def get(self) -> Any:
        """Returns a numpy array, or JAX keys if the array has random keys."""
        array = self._words()
        if self._key is None:
            return array
        from xlad import program

        return program.wrap_keys([array], [self._key])[0]

    def _words(self) -> np.ndarray:
        """Returns a numpy array, which has the uint32 words of random keys."""
        if self._here is not None:
            return self._here
        return np.frombuffer(self._session.get(self.number()), self.dtype).reshape(self.shape)

    def move_here(self) -> None:
        """Fetches the array before its session ends."""
        self._here = self._words()

    def number(self, what: str = "the array") -> int:
        """Returns the number of the array. `what` names the array in errors."""
        if self._number is None:
            raise Error(f"{what} was donated to an earlier call, expected an array that exists: use what that call "
                        "returned, or do not donate it", "NOT_FOUND")
        if self._session.ended is not None:
            raise Error(f"{what} was lost with its session: {self._session.ended}", "ABORTED")
        return self._number

    def is_of(self, session: Session) -> bool:
        return self._session is session

    def is_deleted(self) -> bool:
        """Whether the array was donated."""
        return self._number is None

    def donate(self) -> None:
        self._number = None
        self._session.forget(self)

    def block_until_ready(self) -> RemoteArray:
        """Waits until the array is computed, like jax.block_until_ready: requests it, and stops at its first bytes."""
        if self._here is None:
            self._session.wait(self.number())
        return self

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # Without a copy, the result shares the memory of get(), which may be read-only.
        return np.array(self.get(), dtype) if copy else np.asarray(self.get(), dtype)

    def __jax_array__(self) -> Any:
        import jax.numpy as jnp

        return self.get() if self._key is not None else jnp.asarray(self.get())

    def item(self, *index: int) -> Any:
        return self.get().item(*index)

    def tolist(self) -> Any:
        return self.get().tolist()

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __complex__(self) -> complex:
        return complex(self.get())

    def __index__(self) -> int:
        return operator.index(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dimensions")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        """Fetches the array once, and yields its rows as numpy arrays."""
        if not self.shape:
            raise TypeError("iteration over an array without dimensions")
        return iter(self.get())

    def __contains__(self, value: Any) -> bool:
        return value in self.get()

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __repr__(self) -> str:
        split = "" if self._spec is None else f", {self._spec}"
        return f"RemoteArray({element_types.shape_text(self.dtype, self.shape)}{split})"

    def __str__(self) -> str:
        """Fetches the array and returns its contents, in the form of a numpy array. If the array was donated or lost,
        returns its type and shape."""
        is_gone = self._here is None and (self._number is None or self._session.ended is not None)
        return repr(self) if is_gone else str(self.get())

    def __reduce__(self) -> Any:
        """Pickled arrays are numpy arrays, or JAX keys."""
        return _unpickled, (self._words(), None if self._key is None else str(self._key.impl))

    def __copy__(self) -> RemoteArray:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None and self._session.ended is None:
            self._session.drop(self._number)  # type: ignore[arg-type]

    @property
    def flat(self) -> Any:
        return self.__jax_array__().flat

    @property
    def T(self) -> Any:
        return self.transpose()

    @property
    def mT(self) -> Any:
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> Any:
        return self.run("real", lambda x: x.real)

    @property
    def imag(self) -> Any:
        return self.run("imag", lambda x: x.imag)

    @property
    def at(self) -> At:
        """x.at[i].set(y), .add(y), ... return changed copies, as for a jax.Array."""
        return At(self)

    def nonzero(self, *, size: int | None = None, fill_value: Any = None) -> Any:
        """As jax.Array.nonzero. Without `size`, the shapes of the results depend on the elements, and the array is
        fetched."""
        if size is None:
            return self.__jax_array__().nonzero()
        fill = None if fill_value is None else np.asarray(fill_value).tolist()
        return self.run(("nonzero", size, repr(fill)), lambda x: x.nonzero(size=size, fill_value=fill))

    def __round__(self, digits: int = 0) -> Any:
        return self.round(digits)

    def copy(self) -> Any:
        return self.run("copy", lambda x: x.copy())

    def __getitem__(self, index: Any) -> Any:
        from xlad import indexing

        found = indexing.split(index, self.shape)
        return self.run(("getitem", found.static), found.take, *found.arrays)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("arrays are immutable: instead of x[i] = y, use x = x.at[i].set(y)")

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def run(self, key: Any, function: Callable[..., Any], *others: Any) -> Any:
        """Returns function(self, *others), computed on the cluster, except for random keys. Equal values of `key` mean
        equal functions."""
        if self._key is not None:
            return function(self.get(), *others)
        if self._operate is None:
            raise Error(f"found {self!r} without a cluster to compute on, expected one: use np.asarray(array)",
                        "FAILED_PRECONDITION")
        return self._operate(key, function, [self, *others])


@functools.cache
def _class_for_jax() -> type[RemoteArray]:
    """Returns the class of remote arrays, which also inherits from jax.Array. Therefore libraries that look for arrays
    with isinstance, such as equinox, find them. It is created here because the package does not import JAX before it
    needs it."""
    import jax

    create: Any = type(jax.Array)
    members = {"__module__": __name__, "__doc__": RemoteArray.__doc__, "__hash__": None}
    return cast("type[RemoteArray]", create("RemoteArray", (RemoteArray, jax.Array), members))


def tell_jax() -> None:
    """Makes functions of JAX accept remote arrays and fetch them. This uses private functions of JAX. With a version of
    JAX that lacks them, users must pass np.asarray(array)."""
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src import core, dtypes
        from jax._src.interpreters import pxla

        kind = _class_for_jax()
        if kind in core.pytype_aval_mappings:
            return

        def shards(arrays: Any, shardings: Any, layouts: Any, copy_semantics: Any) -> Any:
            return pxla.shard_args(shardings, layouts, copy_semantics, [array.get() for array in arrays])

        pxla.shard_arg_handlers[kind] = shards
        dtypes.register_canonicalize_value_handler(kind, lambda array: array.__jax_array__())
        core.pytype_aval_mappings[kind] = lambda array: array.aval


_flax_knows = False


def _tell_flax() -> None:
    """Makes flax.serialization store remote arrays as numpy arrays."""
    global _flax_knows
    _flax_knows = True
    sys.modules["flax.serialization"].register_serialization_state(
        _class_for_jax(), lambda array: np.asarray(array), lambda array, found: found, override=True)


def _unpickled(words: np.ndarray, impl: str | None) -> Any:
    if impl is None:
        return words
    import jax
    import jax.numpy as jnp

    return jax.random.wrap_key_data(jnp.asarray(words), impl=impl)


def _is_operand(value: Any) -> bool:
    return isinstance(value, (RemoteArray, np.ndarray, np.generic, bool, int, float, complex)) or (
        hasattr(value, "dtype") and hasattr(value, "shape"))


def _binary(name: str, reflected: bool) -> Callable[[RemoteArray, Any], Any]:
    function = getattr(operator, name)

    def method(self: RemoteArray, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        if name == "pow" and isinstance(other, int) and not reflected:  # Exact for integers, as in JAX.
            return self.run(("pow", other), lambda x: x ** other)
        swapped = (lambda x, y: function(y, x)) if reflected else function
        return self.run((name, reflected), swapped, other)

    return method


def _unary(name: str) -> Callable[[RemoteArray], Any]:
    function = getattr(operator, name)
    return lambda self: self.run(name, lambda x: function(x))


def _named(name: str) -> Callable[..., Any]:
    def method(self: RemoteArray, *arguments: Any, **named: Any) -> Any:
        is_array = lambda value: isinstance(value, (RemoteArray, np.ndarray)) or hasattr(value, "sharding")
        arrays = [value for value in arguments if is_array(value)]
        if any(map(is_array, named.values())) or 0 < len(arrays) < len(arguments):
            return getattr(self.__jax_array__(), name)(*arguments, **named)
        static = () if arrays else arguments
        key = (name, repr(static), repr(sorted(named.items())))
        return self.run(key, lambda x, *rest: getattr(x, name)(*rest, *static, **named), *arrays)

    method.__name__ = name
    method.__doc__ = f"As jax.Array.{name}, computed on the cluster."
    return method


def _fetching(name: str) -> Callable[..., Any]:
    def method(self: RemoteArray, *arguments: Any, **named: Any) -> Any:
        return getattr(self.__jax_array__(), name)(*arguments, **named)

    method.__name__ = name
    method.__doc__ = f"As jax.Array.{name}, computed in this process."
    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift",
              "rshift"):
    setattr(RemoteArray, f"__{_name.rstrip('_')}__", _binary(_name, False))
    setattr(RemoteArray, f"__r{_name.rstrip('_')}__", _binary(_name, True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(RemoteArray, f"__{_name}__", _binary(_name, False))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(RemoteArray, f"__{_name}__", _unary(_name))
for _name in ("all", "any", "argmax", "argmin", "argpartition", "argsort", "astype", "byteswap", "clip", "conj",
              "conjugate", "cumprod", "cumsum", "diagonal", "dot", "flatten", "max", "mean", "min", "prod", "ptp",
              "ravel", "repeat", "reshape", "round", "searchsorted", "sort", "squeeze", "std", "sum", "swapaxes",
              "take", "trace", "transpose", "var", "view"):
    setattr(RemoteArray, _name, _named(_name))

for _name in ("choose", "compress", "to_device"):
    setattr(RemoteArray, _name, _fetching(_name))


def fetch(tree: Tree) -> Tree:
    """Returns the tree with every RemoteArray replaced by its contents."""
    from xlad.program import jax

    return jax.tree_util.tree_map(lambda leaf: leaf.get() if isinstance(leaf, RemoteArray) else leaf, tree)
