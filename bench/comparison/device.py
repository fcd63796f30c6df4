"""The raw device below a file: fio and `dlfs bench device`; and DLFS without Python on it, `dlfs bench`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

KIB = 1 << 10
DEADLINE_S = 120
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class ToolError(Exception):
    """A tool gave no result; str() says why."""


def run_json(command: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON that a command prints. Raises ToolError."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, env={**os.environ, **(environment or {})})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{' '.join(command)}: exit code {done.returncode}: {words[-1] if words else 'no message'}")
    try:
        return json.loads(done.stdout[done.stdout.index("{") :])
    except ValueError as error:
        raise ToolError(f"{' '.join(command)}: no JSON: {error}") from None


def fio_command(path: Path, size: int, depth: int, seconds: float) -> list[str]:
    return [
        "fio", "--name=raw", f"--filename={path}", "--readonly", "--rw=randread", "--ioengine=io_uring", "--direct=1",
        f"--bs={size}", f"--iodepth={depth}", "--time_based", f"--runtime={seconds * 1000:.0f}ms", "--norandommap", "--randrepeat=0",
        "--thread", "--output-format=json",
    ]  # fmt: skip


def fio(path: Path, size: int, depth: int, seconds: float, huge: bool = True) -> dict[str, Any]:
    """Random O_DIRECT reads by fio's io_uring engine. Raises ToolError.

    huge: its buffers lie in transparent huge pages, as DLFS's do. On a virtual disk that is up to three times as fast, since
    a request of 256 KiB is then one piece of memory and not 64.
    """
    if not shutil.which("fio"):
        raise ToolError("fio is not installed: apt-get install fio")
    job = run_json(fio_command(path, size, depth, seconds), HUGE_PAGES if huge else None)["jobs"][0]
    read = job["read"]
    cpu_s = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
    ios = max(1, read["total_ios"])
    return _row("fio, huge pages" if huge else "fio", size, depth, read["iops"], read["bw_bytes"], cpu_s / ios * 1e6)


def dlfs_device(dlfs: Path, path: Path, size: int, depth: int, seconds: float) -> dict[str, Any]:
    """The same by DLFS's own device layer. Raises ToolError."""
    options = ["--size", str(size), "--depth", str(depth), "--seconds", f"{seconds:g}", "--warmup", "0.1"]
    out = run_json([str(dlfs), "bench", "device", "--json", str(path), *options])
    return _row("dlfs bench device", size, depth, out["iops"], out["bytes_per_s"], out["cpu_s_per_million_ios"])


def _row(tool: str, size: int, depth: int, iops: float, rate: float, cpu: float) -> dict[str, Any]:
    return {"tool": tool, "size_bytes": size, "depth": depth, "iops": iops, "bytes_per_s": rate, "cpu_s_per_million": cpu}


def dlfs_bench(dlfs: Path, volume: Path | str, mode: str, *options: str) -> dict[str, Any]:
    """An epoch drawn without Python. Raises ToolError."""
    return run_json([str(dlfs), "bench", "--json", "--no-raw", "--mode", mode, "--batch", "256", *options, str(volume)])


def aligned(size: int) -> int:
    """A request size that O_DIRECT takes: whole 512 bytes, and whole 4 KiB above that."""
    return 512 if size <= 512 else -(-size // (4 * KIB)) * 4 * KIB
