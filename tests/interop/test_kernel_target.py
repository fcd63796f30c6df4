"""The Linux kernel's NVMe/TCP target, in a virtual machine: DLFS packs onto it, verifies, reads, and gets over its loss."""

import json
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from machine import NQN

# What nvmet says when it closes connections, or was closed itself, with a host still there.
LOSS = (r"nvmet_tcp: queue \d+ unhandled state", r"ctrl \d+ keep-alive timer .* expired", r"ctrl \d+ fatal error occurred")
pytestmark = pytest.mark.usefixtures("content")


@pytest.fixture(scope="module")
def target(machine):
    machine.make_target()
    return machine


def run(dlfs, *arguments, check=True, timeout=180):
    done = subprocess.run([dlfs, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    assert not check or done.returncode == 0, f"dlfs {' '.join(map(str, arguments))} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done


def files_of(root: pathlib.Path) -> dict:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_discovery_and_identity(dlfs, target):
    found = json.loads(run(dlfs, "discover", f"127.0.0.1:{target.port}", "--json").stdout)
    assert NQN in [entry["nqn"] for entry in found["entries"]]
    assert {entry["transport"] for entry in found["entries"]} == {"tcp"}
    identity = json.loads(run(dlfs, "identify", target.url(), "--json").stdout)
    assert identity["model"] == "Linux"
    assert identity["namespace"]["capacity_bytes"] == 128 << 20
    assert identity["namespaces"] == [1]
    assert identity["namespace"]["uuid"] != ""


@pytest.mark.complaints("connect request for invalid subsystem nqn.no:such")
def test_what_is_not_there_is_said(dlfs, target):
    wrong = run(dlfs, "identify", f"nvme-tcp://127.0.0.1:{target.port}/nqn.no:such", check=False)
    assert wrong.returncode == 1 and "no subsystem nqn.no:such" in wrong.stderr
    wrong = run(dlfs, "stat", target.url().replace("nsid=1", "nsid=7"), check=False)
    assert wrong.returncode == 1 and "namespace 7 is not there; there are: 1" in wrong.stderr


@pytest.mark.parametrize("digests", ["", "&header_digest=on", "&data_digest=on", "&header_digest=on&data_digest=on&queues=2"])
def test_pack_verify_and_read_every_byte(dlfs, target, source, tmp_path, digests):
    url = target.url(digests)
    run(dlfs, "pack", source, url, "--force")
    run(dlfs, "verify", url)
    run(dlfs, "export", url, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(source)
    report = json.loads(run(dlfs, "bench", url, "--mode", "full", "--no-raw", "--json").stdout)
    assert report["samples"] == 3000 and report["distinct_samples"] == 3000


class Reading:
    """Epochs over the volume in a thread: every sample is compared with its file."""

    def __init__(self, url, source):
        self.dlfs = pytest.importorskip("dlfs")
        self.files = {name.encode(): data for name, data in files_of(source).items()}
        self.volume = self.dlfs.mount(url)
        self.names = [self.volume.name(i) for i in range(len(self.volume))]
        self.batches, self.error, self.stop = 0, None, False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            epoch = 0
            while not self.stop:
                field = self.volume.schema.fields[0].name
                for batch in self.volume.batches(64, shuffle="full", seed=3, epoch=epoch, cache_bytes=16 << 20):
                    for place, sample in enumerate(batch.ids):
                        name = self.names[sample]
                        name = name if isinstance(name, bytes) else name.encode()
                        assert bytes(batch[field][place]) == self.files[name], name
                    self.batches += 1
                    if self.stop:
                        return
                epoch += 1
        except BaseException as error:  # noqa: BLE001: shown by finish()
            self.error = error

    def wait_for_more(self, timeout_s):
        before, deadline = self.batches, time.monotonic() + timeout_s
        while self.batches < before + 3:
            assert self.error is None, self.error
            assert time.monotonic() < deadline, f"no batch came in {timeout_s} s"
            time.sleep(0.05)

    def finish(self):
        self.stop = True
        self.thread.join(120)
        assert not self.thread.is_alive()
        assert self.error is None, self.error


@pytest.mark.complaints(*LOSS)
def test_a_target_that_goes_and_comes_back(dlfs, target, source):
    url = target.url("&keep_alive=5s&data_digest=on")
    run(dlfs, "pack", source, url, "--force")
    reading = Reading(url, source)
    try:
        reading.wait_for_more(60)
        target.close_target()
        time.sleep(1.5)
        target.open_target()
        reading.wait_for_more(60)
        target.freeze()  # the machine stands still: no byte, no reset
        time.sleep(8)
        target.thaw()
        reading.wait_for_more(90)
    finally:
        target.thaw()
        reading.finish()


@pytest.mark.complaints(*LOSS)
def test_a_target_that_stays_away_is_an_error_in_time(dlfs, target, source):
    url = target.url("&ctrl_loss_timeout=3s&keep_alive=2s")
    run(dlfs, "pack", source, url, "--force")
    dlfs_module = pytest.importorskip("dlfs")
    volume = dlfs_module.mount(url)
    target.close_target()
    try:
        begin = time.monotonic()
        with pytest.raises(dlfs_module.Error) as caught:
            for sample in range(len(volume)):
                volume[sample]
        assert time.monotonic() - begin < 30
        assert "ctrl_loss_timeout" in str(caught.value)
    finally:
        target.open_target()


@pytest.mark.complaints(*LOSS)
def test_pauses_longer_than_the_keep_alive_time_lose_nothing(dlfs, target):
    module = pytest.importorskip("dlfs")
    url = target.url("&keep_alive=2s&data_digest=on")
    samples = [bytes([number % 251]) * (number % 3000) for number in range(4000)]
    with module.Writer(url, "data: bytes", overwrite=True) as writer:
        for number, sample in enumerate(samples):
            writer.write({"data": sample})
            if number in (1500, 3999):
                time.sleep(5)  # nobody looks after the connection while writes are under way: the target drops it
    run(dlfs, "verify", url)
    volume = module.mount(url)
    time.sleep(5)
    assert [bytes(volume[number]["data"]) for number in range(0, 4000, 97)] == samples[::97]
