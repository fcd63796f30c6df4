"""bench/guest.py: the smallest real run in the virtual machine, and that its reader refuses wrong bytes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DLFS = Path(os.environ.get("DLFS_BIN") or ROOT / "build/release/bin/dlfs")
READER = DLFS.resolve().parent / "guest_reader"
SAMPLES, BYTES = 300, 512
READERS = {"ext4 files", "ext4 files x8", "ext4 packed", "ext4 packed direct", "dlfs chunk", "dlfs full"}
CANNOT = 3  # guest.py: no virtual machine can be had here
TIMEOUT_S = 900

pytestmark = pytest.mark.skipif(not (os.access(DLFS, os.X_OK) and os.access(READER, os.X_OK)), reason=f"not built: {DLFS}, {READER} (./dev build)")


@pytest.fixture(scope="module", params=["user", None], ids=["user_network", "best_network"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("guest") / "guest.json"
    command = [sys.executable, ROOT / "bench/guest.py", "--sizes", str(BYTES), "--most-samples", str(SAMPLES), "--rounds", "1", "--seconds", "0.3", "--dlfs", DLFS, "--out", out]
    done = subprocess.run([*command, *(["--network", request.param] if request.param else [])], capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode == CANNOT:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    return done, json.loads(out.read_text())


def test_all_readers_deliver_the_same_samples_with_both_numbers_of_queues(run):
    _, results = run
    assert {(row["reader"], row["queues"]) for row in results["rows"]} == {(reader, queues) for reader in READERS for queues in (1, 2)}
    for row in results["rows"]:
        assert row["sample_bytes"] == BYTES and row["of"] == SAMPLES
        assert len(row["samples_per_s"]) == len(row["cpu_s_per_million"]) == 1
        assert row["samples_per_s"][0] > 0 and row["cpu_s_per_million"][0] >= 0
        # Each sample that was counted had all its bytes compared: the reader ends with an error else.
        if row["reader"].startswith("dlfs"):
            assert row["whole_epochs"][0] >= 1 and row["distinct"] == [SAMPLES] and row["samples"] == [SAMPLES * row["whole_epochs"][0]]
            assert row["device_bytes"][0] >= row["samples"][0] * BYTES, "cold: all of it came from the target"
        else:
            assert 0 < row["samples"][0] <= SAMPLES and row["distinct"] == row["samples"]


def test_the_results_say_where_they_come_from_and_what_they_cannot_show(run):
    done, results = run
    assert results["environment"]["kvm"] and results["environment"]["guest_kernel"] and results["environment"]["network"]
    assert "emulated" in results["distortions"] and "CRC32C" in results["distortions"]
    assert {(each["initiator"], each["request_bytes"]) for each in results["raw"]} == {(i, b) for i in ("dlfs bench device", "kernel, fio") for b in (4096, 262144)}
    assert {each["reader"] for each in results["ratios"]} == {"dlfs chunk", "dlfs full"}
    for reader in READERS:
        assert reader in done.stdout


@pytest.fixture
def made(tmp_path):
    (tmp_path / "f").mkdir()
    subprocess.run([READER, "make", tmp_path / "f", "--packed", tmp_path / "packed", *shape()], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([DLFS, "pack", tmp_path / "f", tmp_path / "v.dlfs", "--quiet"], check=True)
    return tmp_path


def shape():
    return ["--count", str(SAMPLES), "--bytes", str(BYTES)]


def read(*arguments):
    return subprocess.run([READER, *arguments, *shape()], capture_output=True, text=True, timeout=60)


def flip(path: Path, needle: bytes):
    """Changes the last byte of `needle`, which lies somewhere in the file."""
    content = bytearray(path.read_bytes())
    at = content.index(needle) + len(needle) - 1
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "reader, where, damaged, named",
    [
        ("files", "f", "f/42/00000042", "sample 42 "), ("packed", "packed", "packed", "sample 42 "),
        ("chunk", "v.dlfs", "v.dlfs", "sample 126 "), ("full", "v.dlfs", "v.dlfs", "sample 126 "), ("chunk --no-verify", "v.dlfs", "v.dlfs", "sample 126 "),
    ],
)  # fmt: skip
def test_one_wrong_byte_ends_a_reader(made, reader, where, damaged, named):
    """In the volume it is sample 126: its file's path is the 127th, three files a folder."""
    name, *options = reader.split()
    whole = read(name, made / where, *options)
    assert whole.returncode == 0 and json.loads(whole.stdout)["distinct"] == SAMPLES, whole.stderr
    sample = (made / "f/42/00000042").read_bytes()
    assert len(sample) == BYTES
    flip(made / damaged, sample)
    wrong = read(name, made / where, *options)
    assert wrong.returncode == 1 and named in wrong.stderr and wrong.stdout == "", wrong.stderr


def test_a_missing_file_is_named_with_its_error(made):
    (made / "f/07/00000007").unlink()
    gone = read("files", made / "f", "--threads", "4")
    assert gone.returncode == 1 and "cannot read sample 7" in gone.stderr and "No such file" in gone.stderr


@pytest.mark.parametrize("arguments", [["files"], ["files", "x", "--bytes", "12"], ["chunk", "x", "--seed"], ["full", "x", "--threads", "-1"]])
def test_a_command_line_without_sense_shows_the_usage(arguments):
    refused = subprocess.run([READER, *arguments], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "usage: guest_reader" in refused.stderr
