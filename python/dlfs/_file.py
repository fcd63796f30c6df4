"""A sample opened for reading in parts."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

from . import _core
from ._errors import InvalidArgumentError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE = 32 << 20


class SampleFile(io.RawIOBase):
    """One field of one sample as a read-only raw binary file, from :meth:`dlfs.Volume.open`.

    A sample larger than a chunk is never read whole unless you ask for that: each read fetches and verifies the chunks that
    it needs, and the last one is kept for the next read. Wrap it in ``io.BufferedReader`` for reads of a few bytes.
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

    def readall(self) -> bytes:
        """The rest of it, in few long reads."""
        self._check_open()
        rest = bytearray(max(self.size - self._position, 0))
        at = 0
        with memoryview(rest) as view:
            while at < len(rest):
                got = self.readinto(view[at : at + _PIECE])  # between pieces Ctrl-C is looked at
                if got == 0:
                    break
                at += got
        return bytes(rest[:at]) if at < len(rest) else bytes(rest)

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
