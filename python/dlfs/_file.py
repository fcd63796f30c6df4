"""A sample opened for reading in parts."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from . import _core
from ._errors import InvalidArgumentError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class SampleFile(io.RawIOBase):
    """One field of one sample as a read-only raw binary file, from :meth:`dlfs.Volume.open`.

    A sample larger than a chunk is never read whole: each read fetches and verifies what it needs. Wrap it in
    ``io.BufferedReader`` for many small reads.
    """

    def __init__(self, core: _core.File, name: str) -> None:
        super().__init__()
        self._core = core
        self._position = 0
        self.name = name

    @property
    def id(self) -> int:
        """The sample's id."""
        return self._core.id

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self._core.size

    def readable(self) -> bool:
        self._check_open()
        return True

    def seekable(self) -> bool:
        self._check_open()
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        self._check_open()
        with memoryview(into) as view, view.cast("B") as flat:
            got = self._core.read_into(flat, self._position)
        self._position += got
        return got

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._core.size}
        if whence not in starts:
            raise InvalidArgumentError(f"whence is {whence!r}, and must be 0, 1 or 2")
        target = starts[whence] + offset
        if target < 0:
            raise InvalidArgumentError(f"cannot seek to {target}, before the beginning")
        self._position = target
        return target

    def tell(self) -> int:
        self._check_open()
        return self._position

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def __repr__(self) -> str:
        return f"<dlfs.SampleFile {self.name!r}, sample {self.id}, {self.size} bytes>"
