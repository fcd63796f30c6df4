"""The main job on real data: the 60,000 JPEG files of CIFAR-10 packed, verified and drawn, every byte compared with its file.

Looks for cifar10-images.tar.xz in DLFS_TEST_DATA, then in ../shared/data; skips when it is in neither.
"""

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

dlfs = pytest.importorskip("dlfs")
np = pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parent.parent
ARCHIVE = Path(os.environ.get("DLFS_TEST_DATA") or ROOT.parent / "shared" / "data") / "cifar10-images.tar.xz"
DLFS = os.environ.get("DLFS_BIN", str(ROOT / "build/release/bin/dlfs"))

pytestmark = [
    pytest.mark.skipif(not ARCHIVE.exists(), reason=f"the real data is not there: {ARCHIVE}"),
    pytest.mark.skipif(not Path(DLFS).exists(), reason=f"the command is not built: {DLFS}"),
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """(folder of the images, volume, what pack and stat said)"""
    folder = tmp_path_factory.mktemp("real-data")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder / "images")
    volume = folder / "cifar10.dlfs"
    subprocess.run([DLFS, "pack", "--quiet", str(folder / "images"), str(volume)], check=True)
    stat = json.loads(subprocess.run([DLFS, "stat", "--json", str(volume)], check=True, capture_output=True).stdout)
    return folder / "images", volume, stat


def test_all_files_are_packed_with_little_overhead(packed):
    folder, volume, stat = packed
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) == stat["samples"] == 60_000
    sample_bytes = sum(path.stat().st_size for path in files)
    # All that is neither index nor names nor schema, over the sum of the samples' bytes.
    extra = volume.stat().st_size - stat["index_bytes"] - stat["name_bytes"] - sample_bytes
    assert 0 < extra <= 0.04 * sample_bytes
    assert stat["directory_bytes"] <= 16 * len(files)


def test_verify_finds_nothing(packed):
    subprocess.run([DLFS, "verify", "--json", str(packed[1])], check=True, capture_output=True)


@pytest.mark.parametrize("mode", ["chunk", "full"])
def test_an_epoch_delivers_every_file_once_and_byte_for_byte(packed, mode):
    folder, path, _ = packed
    volume = dlfs.mount(str(path))
    names = list(volume.names())
    seen = np.zeros(len(volume), np.int64)
    for batch in volume.batches(256, shuffle=mode, seed=1, epoch=3, cache_bytes=64 << 20):
        ids, images, labels = batch.ids, batch["image"], batch["label"]
        np.add.at(seen, ids, 1)
        for i, sample in enumerate(ids):
            name = names[int(sample)]
            assert bytes(images[i]) == (folder / name).read_bytes()
            assert volume.classes[int(labels[i])] == name.split("/", 1)[0]
    assert (seen == 1).all()


def test_two_epochs_differ_and_are_the_same_again_when_asked(packed):
    volume = dlfs.mount(str(packed[1]))
    orders = [np.concatenate(list(volume.order(256, shuffle="chunk", seed=1, epoch=epoch))) for epoch in (0, 1, 0)]
    assert (orders[0] == orders[2]).all()
    assert (orders[0] == orders[1]).mean() < 0.001
