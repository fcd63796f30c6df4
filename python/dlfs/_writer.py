"""Packing: from Python samples to a volume."""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import _core
from ._errors import InvalidArgumentError, SchemaError
from ._options import U32, unsigned
from ._schema import Field, Schema, encode_text, numpy_dtype, schema_of
from ._volume import Url, url_text

#: Text as it is; a list of texts is joined by NUL (as "classes" are); anything else becomes JSON.
Attribute = Union[str, Sequence[str], int, float, bool, None, Mapping[str, Any]]
_Encoder = Callable[[Any], Any]
_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 complex64 complex128".split()
)


class _Misfit(Exception):
    """A value does not fit its field; str() says what came."""


class Writer:
    """Packs samples into a new volume. Nothing is visible at the destination before the commit.

    ::

        with dlfs.Writer("train.dlfs", "image: bytes, label: int64") as writer:
            for name, image, label in source:
                writer.write({"image": image, "label": label}, name)

    A ``with`` block commits at its end; an exception in it (Ctrl-C too) leaves the destination as it was.

    Args:
        url: the destination: a file, a block device, or ``nvme-tcp://HOST:PORT/NQN?nsid=1``.
        schema: ``"image: bytes, label: int64"``, a dict of field name to type, or a :class:`dlfs.Schema`; None: taken from the
            first sample: bytes -> bytes, str -> text, int -> int64, float -> float64, complex -> complex128, bool -> bool, an
            array or a PyTorch tensor -> its dtype and shape.
        overwrite: replaces a volume, or whatever else is there.
        shuffle: places the samples in random order, so that ``shuffle="chunk"`` mixes a sorted source. Ids keep the source's order.
        seed: of that placement.
        names: True or False: every sample has a name or none has; None: as the first sample.
        attributes: facts to keep with the data set, for example ``{"classes": ["cat", "dog"]}``.
        chunk_bytes: a power of two, 64 KiB to 16 MiB. 1 MiB wastes less room with samples of 30 to 500 KiB, 64 KiB with
            larger ones.
        pool_bytes: memory for the placement.

    Values are checked, and neither cut nor promoted: a misfit is a :class:`dlfs.SchemaError` that names sample and field.
    """

    def __init__(
        self,
        url: Url,
        schema: str | Mapping[str, object] | Schema | None = None,
        *,
        overwrite: bool = False,
        shuffle: bool = True,
        seed: int = 0,
        names: bool | None = None,
        attributes: Mapping[str, Attribute] | None = None,
        chunk_bytes: int = 256 << 10,
        pool_bytes: int = 64 << 20,
    ) -> None:
        self._url = url_text(url)
        self._schema = None if schema is None else schema_of(schema)
        self._names = names
        given = {} if self._schema is None else self._schema.attributes
        self._attributes = [(encode_text(k), _attribute(k, v)) for k, v in {**given, **(attributes or {})}.items()]
        self._options = {
            "overwrite": bool(overwrite),
            "shuffle": bool(shuffle),
            "seed": unsigned("seed", seed),
            "chunk_bytes": unsigned("chunk_bytes", chunk_bytes, U32),
            "pool_bytes": unsigned("pool_bytes", pool_bytes),
        }
        self._count = 0
        self._closed = False
        self._encoders: list[tuple[Field, _Encoder]] = []
        self._core: _core.Writer | None = None
        if self._schema is not None and names is not None:
            self._create(self._schema, names)  # everything is known: a destination that cannot be written is an error now

    @property
    def schema(self) -> Schema | None:
        """None before the first sample where it is taken from that."""
        return self._schema

    def __len__(self) -> int:
        """Samples written so far."""
        return self._count

    def write(self, sample: Mapping[str, Any], name: str | bytes | None = None) -> int:
        """Adds the next sample and returns its id. The values are copied.

        Raises :class:`dlfs.SchemaError` when it does not fit the schema (nothing is added then, and one may go on), and
        :class:`dlfs.Error` when the destination cannot be written.
        """
        if self._closed:
            raise ValueError(f"the writer of {self._url} is closed: make a new one")
        if not isinstance(sample, Mapping):
            raise SchemaError(f"sample {self._count} must be a dict of field name to value, not {_describe(sample)}")
        raw_name = b"" if name is None else self._name_bytes(name)
        if self._core is None:
            self._begin(sample, name)
        if (name is not None) != self._names:
            has, others = ("a name", "have none") if name is not None else ("no name", "have names")
            raise SchemaError(f"sample {self._count} has {has}, but the samples of {self._url} {others}")
        core = self._core
        assert core is not None
        core.append(raw_name, self._encode(sample))
        self._count += 1
        return self._count - 1

    def commit(self) -> None:
        """Makes the volume visible and closes the writer. Called by the ``with`` block."""
        if self._closed:
            raise ValueError(f"the writer of {self._url} is closed: make a new one")
        if self._core is None:
            if self._schema is None:
                raise InvalidArgumentError("nothing was written and there is no schema: an empty volume needs one")
            self._create(self._schema, bool(self._names))
        core = self._core
        assert core is not None
        try:
            core.commit()
        finally:
            self.abort()

    def abort(self) -> None:
        """Gives up: a file at the destination stays as it was. Idempotent; nothing happens after a commit."""
        self._closed = True
        if self._core is not None:
            self._abort()
        self._core = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._closed:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a writer cannot be pickled")

    # ---- inside ----

    def _begin(self, first: Mapping[str, Any], name: str | bytes | None) -> None:
        if self._schema is None:
            self._schema = _infer(first)
        if self._names is None:
            self._names = name is not None
        self._create(self._schema, self._names)

    def _create(self, schema: Schema, names: bool) -> None:
        self._names = names
        self._encoders = [(field, _encoder(field)) for field in schema.fields]
        options = {**self._options, "names": names}
        self._core = _core.create_writer(encode_text(self._url), encode_text(str(schema)), self._attributes, options)
        self._abort = weakref.finalize(self, self._core.abort)

    def _name_bytes(self, name: str | bytes) -> bytes:
        if not isinstance(name, (str, bytes)):
            raise InvalidArgumentError(f"the name of sample {self._count} must be a str or bytes, not {_describe(name)}")
        if len(name) == 0:
            raise InvalidArgumentError(f"sample {self._count} has an empty name")
        try:
            return encode_text(name)
        except UnicodeEncodeError:
            raise InvalidArgumentError(
                f"the name of sample {self._count} holds a lone surrogate, which is no Unicode text: {name!r:.80}"
            ) from None

    def _encode(self, sample: Mapping[str, Any]) -> list[Any]:
        values = []
        for field, encode in self._encoders:
            try:
                values.append(encode(sample[field.name]))
            except KeyError:
                raise SchemaError(f"sample {self._count} has no field {field.name!r} ({field})") from None
            except _Misfit as misfit:
                text = f"sample {self._count}: field {field.name!r} is {str(field).partition(': ')[2]}, and got {misfit}"
                raise SchemaError(text) from None
        if len(sample) != len(self._encoders):
            known = {field.name for field, _ in self._encoders}
            extra = next(name for name in sample if name not in known)
            raise SchemaError(f"sample {self._count} has a field {extra!r} that the schema does not know: {self._schema}")
        return values


def pack(
    samples: Iterable[Mapping[str, Any] | tuple[str | bytes, Mapping[str, Any]]],
    url: Url,
    schema: str | Mapping[str, object] | Schema | None = None,
    **options: Any,
) -> int:
    """Packs an iterable of samples, or of pairs (name, sample), and returns how many. Arguments as :class:`Writer`."""
    with Writer(url, schema, **options) as writer:
        for each in samples:
            if isinstance(each, tuple):
                if len(each) != 2:
                    raise InvalidArgumentError(
                        f"sample {len(writer)} must be a dict or a pair (name, dict), not a tuple of {len(each)}"
                    )
                name, sample = each
                writer.write(sample, name)
            else:
                writer.write(each)
        return len(writer)


def _attribute(key: str, value: Attribute) -> bytes:
    if isinstance(value, str):
        return encode_text(value)
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        if any("\0" in each for each in value):
            raise InvalidArgumentError(f"attribute {key!r}: texts in a list cannot hold NUL")
        return encode_text("\0".join(value))
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"attribute {key!r} cannot be kept as text: {error}") from None


# ---- values ----


def _infer(sample: Mapping[str, Any]) -> Schema:
    if not sample:
        raise SchemaError("sample 0 has no fields: give it one, for example {'image': b'...'}")
    return schema_of({name: _type_of(name, value) for name, value in sample.items()})


def _type_of(name: str, value: object) -> object:
    # bool is an int: the order matters. NumPy's str_ and bytes_ are a str and bytes.
    for kinds, text in (
        ((bytes, bytearray, memoryview), "bytes"),
        (str, "text"),
        (bool, "bool"),
        (int, "int64"),
        (float, "float64"),
        (complex, "complex128"),
    ):
        if isinstance(value, kinds):
            return text
    try:
        if isinstance(value, (np.ndarray, np.generic)) or _is_tensor(value):
            array, dtype = _array_of(value)
            if dtype not in _DTYPES:
                raise _Misfit(f"an array of {dtype}")
            return (dtype, array.shape) if dtype != "bfloat16" else _bfloat16_text(array.shape)
        raise _Misfit(f"of type {type(value).__name__}")
    except _Misfit as misfit:
        raise SchemaError(
            f"sample 0: field {name!r} is {misfit}, which has no place in a schema; "
            "give bytes, str, a number, or an array or tensor of numbers"
        ) from None


def _bfloat16_text(shape: tuple[int, ...]) -> str:
    return f"bfloat16[{','.join(map(str, shape))}]" if shape else "bfloat16"


def _is_tensor(value: object) -> bool:
    """PyTorch's, without importing PyTorch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _array_of(value: Any) -> tuple[npt.NDArray[Any], str]:
    """An array or a tensor as an array, and the name of its dtype. bfloat16 may be uint16 in the array."""
    if isinstance(value, np.ma.MaskedArray):
        raise _Misfit("a masked array (give its filled(), or the mask as a field of its own)")
    if not _is_tensor(value):
        array = np.asarray(value)
        return array, array.dtype.name
    tensor = value.detach().cpu()
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        if name == "bfloat16":
            bits = tensor.contiguous().view(sys.modules["torch"].int16).numpy()
            return bits.view(numpy_dtype("bfloat16")), name
        return tensor.resolve_conj().resolve_neg().numpy(), name
    except (TypeError, RuntimeError) as error:
        raise _Misfit(f"a tensor of {name} ({error})") from None


def _encoder(field: Field) -> _Encoder:
    if field.kind == "bytes":
        return _encode_bytes
    if field.kind == "text":
        return _encode_str
    if field.dtype == "bfloat16":
        return _array_encoder(field)
    dtype = field.numpy_dtype
    return _array_encoder(field) if field.shape else _scalar_encoder(dtype)


def _encode_bytes(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, np.ma.MaskedArray) or _is_tensor(value):
        raise _Misfit(f"a {type(value).__name__} (make the field a tensor)")
    if isinstance(value, np.ndarray) and (value.dtype != np.uint8 or value.ndim != 1):
        raise _Misfit(f"an array of {value.dtype} of shape {value.shape} (give its tobytes(), or make the field a tensor)")
    if isinstance(value, (memoryview, np.ndarray)):
        view = memoryview(value)  # type: ignore[arg-type,unused-ignore]
        return view if view.c_contiguous else view.tobytes()
    raise _Misfit(_describe(value))


def _encode_str(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _Misfit(_describe(value))
    try:
        return value.encode("utf-8")
    except UnicodeEncodeError:
        raise _Misfit(f"a str with lone surrogates, which is not Unicode text: {value!r:.80}") from None


def _scalar_encoder(dtype: np.dtype[Any]) -> _Encoder:
    whole = dtype.kind in "iu"
    low, high = (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) if whole else (0, 0)

    def encode_int(value: Any) -> bytes:
        value = _unwrap_zero_dim(value)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise _Misfit(_describe(value))
        number = int(value)
        if not low <= number <= high:
            raise _Misfit(f"{number}, which lies outside {low}..{high}")
        return number.to_bytes(dtype.itemsize, "little", signed=low < 0)

    def encode_bool(value: Any) -> bytes:
        value = _unwrap_zero_dim(value)
        if not isinstance(value, (bool, np.bool_)):
            raise _Misfit(_describe(value))
        return b"\x01" if value else b"\x00"

    def encode_inexact(value: Any) -> bytes:
        value = _unwrap_zero_dim(value)
        kinds = (float, np.floating) if dtype.kind == "f" else (complex, np.complexfloating)
        if not isinstance(value, kinds):
            raise _Misfit(_describe(value))
        kind = type(value)
        with np.errstate(all="ignore"):
            stored = dtype.type(value)
            exact = kind(stored) == value or value != value
        if not exact:
            raise _Misfit(f"{value!r}, which {dtype} cannot hold exactly (give numpy.{dtype.name}(...) to round it yourself)")
        return bytes(np.asarray(stored, dtype).tobytes())

    return encode_int if whole else encode_bool if dtype.kind == "b" else encode_inexact


def _unwrap_zero_dim(value: Any) -> Any:
    if _is_tensor(value):
        array, name = _array_of(value)
        return array[()] if array.ndim == 0 and name != "bfloat16" else value
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _array_encoder(field: Field) -> _Encoder:
    dtype, shape = field.numpy_dtype, field.shape
    # Without a bfloat16 in NumPy its bits come as uint16.
    names = {field.dtype, dtype.name}

    def encode(value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.generic)) and not _is_tensor(value):
            raise _Misfit(f"{_describe(value)} (give a numpy.ndarray)")
        array, name = _array_of(value)
        if name not in names or array.shape != shape:
            raise _Misfit(f"an array of {name} of shape {array.shape}")
        return np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8)

    return encode


def _describe(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


