import os
import pathlib
import re
import shutil

import pytest

import machine as machines

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_configure(config):
    config.addinivalue_line("markers", "complaints(*patterns): what the guest's kernel may complain of in this test")


@pytest.fixture(scope="session")
def dlfs() -> str:
    binary = os.environ.get("DLFS_BIN") or str(ROOT / "build/release/bin/dlfs")
    if not os.access(binary, os.X_OK):
        pytest.skip(f"{binary} is not built: run ./dev build, or set DLFS_BIN")
    return binary


@pytest.fixture(scope="session")
def machine_directory() -> pathlib.Path:
    if reason := machines.missing():
        pytest.skip(reason)
    directory = pathlib.Path(os.environ.get("DLFS_MACHINE", ROOT / ".cache" / "machine"))
    if reason := machines.make(directory):
        pytest.skip(reason)
    return directory


@pytest.fixture(scope="module")
def capture(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("capture") / "packets.pcap"


@pytest.fixture(scope="module")
def machine(machine_directory, capture):
    booted = machines.Machine(machine_directory, capture)
    try:
        yield booted
    finally:
        booted.stop()


@pytest.fixture
def content(request, machine):
    """The guest's kernel has nothing to complain of at the end of the test, but for what the test's marker allows:
    @pytest.mark.complaints("a regular expression")."""
    marker = request.node.get_closest_marker("complaints")
    allowed = re.compile("|".join(marker.args)) if marker else None
    machine.mark(request.node.name)
    yield
    found = [line for line in machine.complaints(request.node.name) if not (allowed and allowed.search(line))]
    assert found == [], "the guest's kernel complains:\n" + "\n".join(found)


@pytest.fixture(scope="session")
def tshark() -> str:
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (apt-get install tshark)")
    return program


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> pathlib.Path:
    """Class folders of small files, of sizes from nothing to beyond a chunk."""
    import random

    root = tmp_path_factory.mktemp("source")
    random_bytes = random.Random(7)
    for number in range(3000):
        folder = root / f"class{number % 10}"
        folder.mkdir(exist_ok=True)
        size = random_bytes.choice([0, 1, 511, 512, 900, 4096, 10_000]) if number % 50 else 700_000
        (folder / f"{number:05}.bin").write_bytes(random_bytes.randbytes(size))
    return root
