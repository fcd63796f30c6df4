"""The schema of a volume: its named fields, and free-form attributes of the data set."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from ._errors import InvalidArgumentError

_KINDS = ("bytes", "text", "tensor")


def encode_text(value: str | bytes) -> bytes:
    """Names and URLs are bytes; as str they are UTF-8, and other bytes are lone surrogates, as in :func:`os.fsencode`."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def decode_text(value: bytes) -> str:
    """The inverse of :func:`encode_text`."""
    return value.decode("utf-8", "surrogateescape")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """See :attr:`Field.numpy_dtype` for bfloat16."""
    if name != "bfloat16":
        return np.dtype(name).newbyteorder("<") if np.dtype(name).itemsize > 1 else np.dtype(name)
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return np.dtype("<u2")
    return found


@dataclass(frozen=True)
class Field:
    """One field of every sample.

    Attributes:
        kind: ``"bytes"`` and ``"text"`` (UTF-8) vary in length; a ``"tensor"`` has a fixed dtype and shape.
        dtype: NumPy's name for a tensor, else ``""``.
        shape: of a tensor; ``()`` for a scalar.
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype that this field has in NumPy: that of a tensor; uint8 for bytes and text.

        NumPy has no bfloat16 of its own: it is that of the package ``ml_dtypes`` where it is installed, else the raw bits as
        uint16 (:mod:`dlfs.torch` gives ``torch.bfloat16`` in any case).
        """
        return numpy_dtype(self.dtype) if self.kind == "tensor" else np.dtype(np.uint8)

    def __str__(self) -> str:
        if self.kind != "tensor":
            return f"{self.name}: {self.kind}"
        shape = "[" + ",".join(str(n) for n in self.shape) + "]" if self.shape else ""
        return f"{self.name}: {self.dtype}{shape}"


class Schema(Mapping[str, Field]):
    """The fields by name, in order. ``str(schema)`` is what :class:`dlfs.Writer` takes, and :meth:`parse` reads."""

    def __init__(self, fields: list[Field], attributes: dict[str, str] | None = None) -> None:
        self.fields = tuple(fields)
        self.attributes = dict(attributes or {})
        self._index = {field.name: i for i, field in enumerate(self.fields)}

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Reads for example ``"image: bytes, label: int64, mask: uint8[256,256], caption: text"``."""
        return cls._of_raw(_core.parse_schema(encode_text(text)))

    @classmethod
    def _of_raw(cls, raw: _core.RawSchema) -> Schema:
        fields, attributes = raw
        return cls([Field(name, _KINDS[kind], dtype, shape) for name, kind, dtype, shape in fields], dict(attributes))

    def index(self, name: str) -> int:
        """The position of a field. Raises KeyError that names the fields there are."""
        try:
            return self._index[name]
        except (KeyError, TypeError):
            raise KeyError(f"there is no field {name!r}; the fields are {', '.join(self._index)}") from None

    def __getitem__(self, name: str) -> Field:
        return self.fields[self.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return ", ".join(str(field) for field in self.fields)

    def __repr__(self) -> str:
        return f"Schema({str(self)!r})"


def schema_of(given: str | Mapping[str, object] | Schema) -> Schema:
    """A schema from its text, or from a dict of field name to type.

    A type is a text (``"int64"``, ``"uint8[256,256]"``), ``bytes``, ``str``, ``int``, ``float``, ``complex``, ``bool``, a NumPy dtype,
    or a pair (dtype, shape).
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return Schema.parse(given)
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"a schema is a text such as 'image: bytes, label: int64', or a dict of field name to type, not {given!r}"
        )
    for name in given:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"the names of fields are str, not {name!r}")
    schema = Schema.parse(", ".join(f"{name}: {_type_text(name, kind)}" for name, kind in given.items()))
    if list(schema) != list(given):  # a name that holds ':' or ',' was read as several
        wrong = next(name for name in given if name not in schema)
        raise InvalidArgumentError(f"{wrong!r} cannot be the name of a field: it holds a colon, a comma or a blank at an end")
    return schema


def _type_text(name: str, kind: object) -> str:
    known = {bytes: "bytes", str: "text", int: "int64", float: "float64", complex: "complex128", bool: "bool"}
    if isinstance(kind, str):
        return kind
    if isinstance(kind, type) and kind in known:
        return known[kind]
    try:
        if isinstance(kind, tuple):
            dtype, shape = kind
            return f"{np.dtype(dtype).name}[{','.join(str(int(n)) for n in shape)}]" if shape else np.dtype(dtype).name
        return np.dtype(kind).name  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        raise InvalidArgumentError(
            f"field {name!r}: {kind!r} is no type; use for example 'bytes', 'text', 'int64', 'uint8[256,256]' or a NumPy dtype"
        ) from None
