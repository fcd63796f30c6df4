"""The exceptions of DLFS. All are :class:`Error`, an :class:`OSError`; most are a familiar built-in one as well."""

from __future__ import annotations

import builtins

# dlfs::Code in include/dlfs/result.h; the numbers never change.
_CODES = {
    1: "invalid argument",
    2: "not found",
    3: "exists",
    4: "incomplete",
    5: "foreign",
    6: "unsupported version",
    7: "corrupt",
    8: "truncated",
    9: "io",
    10: "no space",
    11: "read only",
    12: "timed out",
    13: "interrupted",
    14: "device lost",
    15: "forked",
    16: "out of memory",
    17: "busy",
    18: "unsupported",
    19: "source changed",
    20: "duplicate name",
    21: "schema mismatch",
}


class Error(OSError):
    """What DLFS could not do. ``str(error)`` is a sentence that says what failed, on what, and what to do.

    Attributes:
        code: the kind of failure in words, for programs: ``"corrupt"``, ``"not found"``, ``"incomplete"``, ...
        errno: the operating system's error number where it failed, else None.
        nvme_status: the NVMe status field where a controller failed a command, else 0.
    """

    code: str = "io"
    nvme_status: int = 0

    def __init__(self, message: str = "", *, code: str | None = None, errno: int | None = None, nvme_status: int = 0):
        super().__init__(message)
        self.message = message
        self.errno = errno or None
        self.nvme_status = nvme_status
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.code, self.errno, self.nvme_status)


class InvalidArgumentError(Error, ValueError):
    """An argument makes no sense; the message says what would."""

    code = "invalid argument"


class NotFoundError(Error, FileNotFoundError, KeyError):
    """There is no such volume, device, name or sample."""

    code = "not found"


class ExistsError(Error, FileExistsError):
    """The destination holds data (``overwrite=True`` replaces it), or two samples have one name."""

    code = "exists"


class IncompleteError(Error):
    """A pack into this volume was interrupted before its commit. Pack again."""

    code = "incomplete"


class CorruptError(Error):
    """A check failed: the bytes on the device are not what was written. The message names sample, device and address."""

    code = "corrupt"


class TimeoutError(Error, builtins.TimeoutError):
    """A device did not answer before its deadline."""

    code = "timed out"


class ForkedError(Error, RuntimeError):
    """The object belongs to the parent process; make one in this process."""

    code = "forked"


class SchemaError(Error, ValueError):
    """A sample does not fit the schema; the message names sample, field, what was expected and what came."""

    code = "schema mismatch"


_CLASSES: dict[int, type[Error]] = {
    1: InvalidArgumentError,
    2: NotFoundError,
    3: ExistsError,
    4: IncompleteError,
    7: CorruptError,
    8: CorruptError,
    12: TimeoutError,
    15: ForkedError,
    20: ExistsError,
    21: SchemaError,
}


def make(number: int, message: str, errno: int, nvme_status: int) -> Error:
    """The exception for an error of the C++ library (called by dlfs._core)."""
    return _CLASSES.get(number, Error)(
        message, code=_CODES.get(number, f"error {number}"), errno=errno, nvme_status=nvme_status
    )


def _rebuild(kind: type[Error], message: str, code: str, errno: int | None, nvme_status: int) -> Error:
    return kind(message, code=code, errno=errno, nvme_status=nvme_status)
