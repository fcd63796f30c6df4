"""Batches and the columns in them: views into the reader's memory, copied only where arrays are asked for."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, Union, cast, overload

import numpy as np
import numpy.typing as npt

from . import _core
from ._errors import InvalidArgumentError
from ._schema import Field, Schema

Array = npt.NDArray[Any]
#: One field of one sample: a read-only memoryview of bytes, a str, a NumPy scalar, or a read-only array.
Value = Union[memoryview, str, "np.generic[Any]", Array]
#: A sample: its fields by name, in the schema's order.
Sample = dict[str, Any]


class Column(Sequence[Any]):
    """A field of varying length of all samples of a batch.

    ``column[i]`` is a read-only :class:`memoryview` of sample i's bytes, without a copy (``bytes`` fields), or a ``str``
    (``text`` fields). A memoryview keeps the whole batch in memory; ``bytes(view)`` is a copy of its own. It goes as it is
    into ``io.BytesIO``, ``numpy.frombuffer(view, numpy.uint8)``, ``hashlib``, ``==`` and so on.
    """

    __slots__ = ("_batch", "_field", "_text")

    def __init__(self, batch: _core.Batch, field: int, text: bool) -> None:
        self._batch = batch
        self._field = field
        self._text = text

    def __len__(self) -> int:
        return self._batch.size

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return self._values()[i]
        return self._value(position(i, len(self)))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def _values(self) -> list[Any]:
        if self._text:
            return [str(each, "utf-8") for each in self._batch.copies(self._field)]
        return self._batch.views(self._field)

    def _value(self, i: int) -> memoryview | str:
        if self._text:
            return str(self._batch.copy(i, self._field), "utf-8")
        return self._batch.view(i, self._field)

    def tolist(self) -> list[Any]:
        """Copies: a list of ``bytes`` (or ``str``)."""
        copies = self._batch.copies(self._field)
        return [str(each, "utf-8") for each in copies] if self._text else copies

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Bytes of each sample: int64, shape (n,)."""
        lengths = np.empty(len(self), np.int64)
        self._batch.copy_lengths(self._field, lengths)
        return lengths

    @property
    def nbytes(self) -> int:
        """Bytes of all samples together."""
        return self._batch.gather(self._field, None, None)

    def gather(self, out: Array | None = None) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Copies all samples back to back, at the speed of memory.

        Returns the bytes (uint8, shape (total,)) and the offsets (int64, shape (n + 1,)): sample i is
        ``data[offsets[i]:offsets[i + 1]]``. With ``out`` (C-contiguous, writable, at least ``nbytes`` long) the bytes go there.
        """
        needed = self.nbytes
        into = np.empty(needed, np.uint8) if out is None else flat(out)
        if into.nbytes < needed:
            raise InvalidArgumentError(f"out holds {into.nbytes} bytes, and {needed} are needed")
        offsets = np.empty(len(self) + 1, np.int64)
        self._batch.gather(self._field, into, offsets)
        return into[:needed], offsets

    def __repr__(self) -> str:
        return f"<dlfs.Column of {len(self)} {'texts' if self._text else 'byte strings'}>"


class Batch:
    """Some samples: a mini-batch, or what a list of ids gave.

    ``batch["image"]`` is a :class:`Column` for fields of varying length, and for tensors a NumPy array of shape (n, \\*shape),
    copied together at the first use. ``batch[i]`` and iteration give samples, as :meth:`dlfs.Volume.__getitem__` does.
    The reader gets the memory back when the batch and all views of it are gone.
    """

    __slots__ = ("_core", "_schema", "_ids", "_columns")

    def __init__(self, core: _core.Batch, schema: Schema) -> None:
        self._core = core
        self._schema = schema
        self._ids: npt.NDArray[np.int64] | None = None
        self._columns: dict[str, Column | Array] = {}

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """The samples' ids: int64, shape (n,)."""
        if self._ids is None:
            self._ids = np.empty(self._core.size, np.int64)
            self._core.copy_ids(self._ids)
        return self._ids

    @property
    def epoch(self) -> int:
        """The epoch that this batch belongs to."""
        return self._core.epoch

    @property
    def number(self) -> int:
        """The batch's number within its epoch, from 0."""
        return self._core.number

    @property
    def padding(self) -> int:
        """How many samples at the end are repeats (``tail="pad"``)."""
        return self._core.padding

    @property
    def schema(self) -> Schema:
        return self._schema

    def keys(self) -> list[str]:
        """The names of the fields."""
        return list(self._schema)

    def items(self) -> Iterator[tuple[str, Any]]:
        return ((name, self[name]) for name in self._schema)

    def values(self) -> Iterator[Any]:
        return (self[name] for name in self._schema)

    def __len__(self) -> int:
        """The number of samples."""
        return self._core.size

    def __contains__(self, name: object) -> bool:
        return name in self._schema

    def __iter__(self) -> Iterator[Sample]:
        return (sample_of(self._core, i, self._schema) for i in range(len(self)))

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: int) -> Sample: ...
    def __getitem__(self, key: str | int) -> Any:
        if not isinstance(key, str):
            return sample_of(self._core, position(key, len(self)), self._schema)
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = self._column(key)
        return column

    def _column(self, name: str) -> Column | Array:
        index = self._schema.index(name)
        field = self._schema.fields[index]
        if field.kind != "tensor":
            return Column(self._core, index, field.kind == "text")
        return self._stack(index, field, None)

    def gather(self, name: str, out: Array | None = None) -> Any:
        """Copies one field of all samples together, into ``out`` if given (C-contiguous and writable).

        For a tensor: an array of shape (n, \\*shape). Else what :meth:`Column.gather` returns.
        """
        index = self._schema.index(name)
        field = self._schema.fields[index]
        if field.kind != "tensor":
            return Column(self._core, index, field.kind == "text").gather(out)
        return self._stack(index, field, out)

    def _stack(self, index: int, field: Field, out: Array | None) -> Array:
        shape = (len(self), *field.shape)
        if out is None:
            out = np.empty(shape, field.numpy_dtype)
        elif isinstance(out, np.ndarray) and (out.shape != shape or out.dtype != field.numpy_dtype):
            raise InvalidArgumentError(
                f"out is {out.dtype} of shape {out.shape}, and field {field.name!r} needs {field.numpy_dtype} of shape {shape}"
            )
        self._core.gather(index, flat(out), None)
        return out

    def __repr__(self) -> str:
        return f"<dlfs.Batch of {len(self)} samples: {self._schema}>"


def sample_of(core: _core.Batch, i: int, schema: Schema) -> Sample:
    return {field.name: _value_of(core, i, f, field) for f, field in enumerate(schema.fields)}


def _value_of(core: _core.Batch, i: int, index: int, field: Field) -> Value:
    if field.kind == "text":
        return str(core.copy(i, index), "utf-8")
    view = core.view(i, index)
    if field.kind == "bytes":
        return view
    dtype = field.numpy_dtype
    array = np.frombuffer(view, np.uint8).view(dtype).reshape(field.shape)
    if not field.shape:
        return cast("np.generic[Any]", array[()])
    return array if array.flags.aligned else array.copy()


def position(i: int, length: int) -> int:
    """Python's indexing: from the end when negative. Raises IndexError."""
    try:
        number = operator.index(i)
    except TypeError:
        raise TypeError(f"an index must be an integer, not {i!r}") from None
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of range for {length} samples")
    return number + length if number < 0 else number


def flat(array: Array) -> npt.NDArray[np.uint8]:
    """The array's own memory as bytes, for the buffer protocol. Raises InvalidArgumentError where that is not one piece."""
    if not (isinstance(array, np.ndarray) and array.flags.c_contiguous and array.flags.writeable):
        hint = "; for a tensor in the CPU's memory give out.numpy(), which shares it" if hasattr(array, "numpy") else ""
        raise InvalidArgumentError(f"out must be a C-contiguous, writable numpy.ndarray{hint}")
    return array.reshape(-1).view(np.uint8)
