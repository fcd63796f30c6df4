"""Fixtures for tests of the dlfs command. DLFS_BIN names it; otherwise the release or debug build is taken."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120


def find_command():
    given = os.environ.get("DLFS_BIN")
    candidates = [Path(given)] if given else [ROOT / "build" / preset / "bin" / "dlfs" for preset in ("release", "dev")]
    for candidate in candidates:
        if candidate.is_file():
            return str(candidate)
    pytest.fail(f"no dlfs command at {', '.join(map(str, candidates))}: build it, or set DLFS_BIN")


class Cli:
    """Runs the command. Output is bytes: names need not be UTF-8."""

    def __init__(self):
        self.path = find_command()

    def __call__(self, *arguments, code=0, **options):
        options.setdefault("timeout", TIMEOUT_S)
        done = subprocess.run([self.path, *arguments], capture_output=True, **options)
        assert code is None or done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def start(self, *arguments, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([self.path, *arguments], **options)


@pytest.fixture(scope="session")
def cli():
    return Cli()


def write_tree(folder, files):
    """files: {relative name (str or bytes): content}"""
    for name, content in files.items():
        path = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def read_tree(folder):
    """The inverse of write_tree, with names as bytes."""
    root = os.fsencode(folder)
    found = {}
    for where, _, names in os.walk(root):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def pattern(seed, size):
    """Bytes that tell where they come from."""
    block = b"".join(((seed * 2654435761 + i * 40503) & 0xFFFFFFFF).to_bytes(4, "little") for i in range(min(size, 4096) // 4 + 1))
    return (block * (size // len(block) + 1))[:size]


@pytest.fixture(scope="session")
def packed(cli, tmp_path_factory):
    """A folder of 1,200 small files in four classes, and its volume."""
    base = tmp_path_factory.mktemp("packed")
    files = {f"{name}/{i:04}.bin": pattern(k * 1000 + i, 1 + (i * 37) % 1800) for k, name in enumerate(["ant", "bee", "cat", "dog"]) for i in range(300)}
    write_tree(base / "source", files)
    cli("pack", "--quiet", "--chunk-size", "64KiB", str(base / "source"), str(base / "volume.dlfs"))
    return base / "source", base / "volume.dlfs", {os.fsencode(name): content for name, content in files.items()}
