"""The whole job across machines: the 60,000 JPEG files of CIFAR-10 packed onto a namespace of the Linux kernel's target, and trained
from, over NVMe/TCP in user space.

Looks for cifar10-images.tar.xz in DLFS_TEST_DATA, then in ../shared/data; skips when it is in neither.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHIVE = pathlib.Path(os.environ.get("DLFS_TEST_DATA") or ROOT.parent / "shared" / "data") / "cifar10-images.tar.xz"

pytestmark = [
    pytest.mark.skipif(not ARCHIVE.exists(), reason=f"the real data is not there: {ARCHIVE}"),
    pytest.mark.usefixtures("content"),
]


# The demo's classifier, on the volume of the second argument.
TRAIN = "import sys; sys.path.insert(0, sys.argv[1]); import demo, dlfs; demo.train(dlfs.mount(sys.argv[2]), 1)"


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    with tarfile.open(ARCHIVE) as archive:
        return {member.name.removeprefix("./"): archive.extractfile(member).read() for member in archive if member.isfile()}


@pytest.fixture(scope="module")
def target(machine):
    machine.make_target()
    return machine


@pytest.fixture(scope="module")
def packed(target, images) -> str:
    """The volume's URL. Images are called train/cat/0001.jpg; the class is the middle."""
    module = pytest.importorskip("dlfs")
    url = target.url("&data_digest=on")
    classes = sorted({name.split("/")[1] for name in images})
    with module.Writer(url, "image: bytes, label: int64", overwrite=True, attributes={"classes": classes}) as writer:
        for name, image in images.items():
            writer.write({"image": image, "label": classes.index(name.split("/")[1])}, name)
    return url


def test_every_image_comes_back_in_an_epoch(dlfs, packed, images):
    module = pytest.importorskip("dlfs")
    verified = subprocess.run([dlfs, "verify", "--json", packed], check=True, capture_output=True, timeout=300)
    assert json.loads(verified.stdout)["samples"] == len(images) == 60_000
    volume = module.mount(packed)
    names = list(volume.names())
    seen = set()
    for batch in volume.batches(256, shuffle="chunk", seed=1, epoch=0):
        for image, label, sample in zip(batch["image"], batch["label"], batch.ids.tolist()):
            assert bytes(image) == images[names[sample]], names[sample]
            assert volume.classes[int(label)] == names[sample].split("/")[1]
            seen.add(sample)
    assert len(seen) == 60_000


# The mounted volume's own handle, for random access, may be idle for longer than its keep-alive time while the epoch's reader
# reads: its controller expires, and it connects again when it is used.
@pytest.mark.complaints(r"ctrl \d+ keep-alive timer .* expired", r"ctrl \d+ fatal error occurred")
def test_a_network_learns_from_it(target, packed):
    pytest.importorskip("PIL", reason="Pillow is not installed")
    trained = subprocess.run([sys.executable, "-c", TRAIN, ROOT / "tools" / "demo", packed], capture_output=True, text=True, timeout=600,
                             env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    assert trained.returncode == 0, trained.stdout + trained.stderr
    accuracy = float(re.search(r"held-out samples of 10 classes: ([\d.]+) %", trained.stdout).group(1))
    assert accuracy > 25, trained.stdout  # by chance: 10
