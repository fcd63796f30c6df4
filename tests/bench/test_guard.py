"""The guard of instruction counts notices a workload that takes more than it did."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("DLFS_BIN", ROOT / "build/release/bin/dlfs")).with_name("guard")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    if shutil.which("valgrind") is None or not BINARY.exists():
        pytest.skip("needs valgrind and build/release/bin/guard")
    counts = tmp_path_factory.mktemp("guard") / "counts.json"
    assert guard(counts, "--update").returncode == 0
    return counts


def guard(counts, *arguments):
    return subprocess.run([sys.executable, ROOT / "bench/guard.py", "--binary", BINARY, "--counts", counts, *arguments], capture_output=True, text=True)


def test_the_same_program_passes(record):
    result = guard(record)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("instructions") == len(next(iter(json.loads(record.read_text()).values())))


def test_more_instructions_fail_and_are_named(record, tmp_path):
    counts = json.loads(record.read_text())
    (compiler, workloads), = counts.items()
    workloads["read-chunk"] = int(workloads["read-chunk"] / 1.07)
    workloads["mount"] = int(workloads["mount"] / 1.03)
    other = tmp_path / "counts.json"
    other.write_text(json.dumps(counts))
    result = guard(other)
    assert result.returncode == 1
    assert "read-chunk" in result.stderr and "mount" not in result.stderr


def test_another_compiler_is_skipped_visibly(tmp_path):
    other = tmp_path / "counts.json"
    other.write_text(json.dumps({"gcc-1": {}}))
    if not BINARY.exists() or shutil.which("valgrind") is None:
        pytest.skip("needs valgrind and build/release/bin/guard")
    result = guard(other)
    assert result.returncode == 0 and "SKIPPED" in result.stderr
