"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any


def describe(work: Path, dlfs: Path, root: Path) -> dict[str, Any]:
    """Facts for the report, by name."""
    return {
        "dlfs": _output([str(dlfs), "--version"]),
        "commit": _commit(root),
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "kernel": platform.release(),
        "system": _first("/etc/os-release", "PRETTY_NAME", "=").strip('"'),
        "python": sys.version.split()[0],
        "file_system": _output(["findmnt", "-no", "FSTYPE,SOURCE", "--target", str(work)]),
        "fio": _output(["fio", "--version"]) if shutil.which("fio") else "not installed",
        "load_before": list(os.getloadavg()),
        "virtual_machine": "hypervisor" in _first("/proc/cpuinfo", "flags"),
    }


def _commit(root: Path) -> str:
    commit = _output(["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"])
    changed = _output(["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return commit + (" with local changes" if commit and changed else "")


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _first(path: str, key: str, separator: str = ":") -> str:
    try:
        with open(path) as file:
            for line in file:
                name, _, value = line.partition(separator)
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return ""
