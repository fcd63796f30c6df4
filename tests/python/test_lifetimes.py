"""Views keep their memory, memory stays flat, and nothing happens per sample before it is asked for."""

from __future__ import annotations

import gc
import sys
import weakref

import numpy as np
import pytest

dlfs = pytest.importorskip("dlfs")
COUNT = 2000


def resident_kb() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_views_outlive_batch_iterator_and_volume(volume_path, image):
    ds = dlfs.mount(volume_path)
    batches = ds.batches(50, shuffle="full", cache_bytes=16 << 20)
    kept = []
    for batch in batches:
        kept.append((int(batch.ids[-1]), batch["image"][-1], batch["mask"], batch[-1]["mask"]))
    del batch, batches
    ds.close()
    del ds
    gc.collect()
    junk = [bytes(1000) for _ in range(10000)]
    assert len(kept) == COUNT // 50 and junk
    for id, view, masks, mask in kept:
        assert view == image(id) and masks[-1, 0, 0] == id and mask[0, 0] == id


def test_a_view_of_a_single_sample_outlives_everything(volume_path, image):
    view = dlfs.mount(volume_path)[11]["image"]
    half = np.frombuffer(view, np.uint8)[100:]
    del view
    gc.collect()
    assert half.tobytes() == image(11)[100:]


def test_views_are_read_only(ds):
    view = ds[3]["image"]
    with pytest.raises(TypeError):
        view[0] = 1
    array = np.frombuffer(view, np.uint8)
    with pytest.raises(ValueError):
        array[0] = 1
    with pytest.raises(ValueError):
        ds[3]["mask"][0, 0] = 1


def test_views_do_not_copy(ds):
    batch = ds[[3, 4]]
    first, second = (np.frombuffer(batch["image"][0], np.uint8) for _ in range(2))
    assert np.shares_memory(first, second)


def test_no_object_a_sample_before_it_is_asked_for(ds):
    batches = ds.batches(1000)
    batch = next(batches)
    gc.collect()
    before = sys.getallocatedblocks()
    column, labels, ids, data = batch["image"], batch["label"], batch.ids, batch.gather("image")
    assert sys.getallocatedblocks() - before < 100
    assert len(column) == len(labels) == len(ids) == len(data[1]) - 1 == 1000


def test_a_released_batch_is_gone_at_once(ds):
    batch = ds[[1, 2, 3]]
    view = batch["image"][0]
    gone = weakref.ref(view)
    del view
    assert gone() is None


@pytest.mark.parametrize("mode", ["chunk", "full"])
def test_memory_is_flat_over_epochs(make, mode):
    ds = dlfs.mount(make(8000))

    def run(epochs):
        for epoch in range(epochs):
            with ds.batches(256, shuffle=mode, epoch=epoch, cache_bytes=32 << 20) as batches:
                for batch in batches:
                    batch["label"].sum()
                    for view in batch["image"]:
                        len(view)

    run(5)
    gc.collect()
    before = resident_kb()
    run(20)
    gc.collect()
    assert resident_kb() - before < 8 << 10


def test_memory_is_flat_over_random_access(ds):
    def run(count):
        for i in np.random.default_rng(0).integers(0, COUNT, count).tolist():
            ds[i]["image"][:1]
            ds.find("train/cat/00000.jpg")

    run(2000)
    before = resident_kb()
    run(8000)
    assert resident_kb() - before < 4 << 10


def test_a_consumer_that_keeps_all_batches_gets_an_answer(make):
    """Batches in use count against cache_bytes: where all of it is in use, either reading goes on or an error says so."""
    ds = dlfs.mount(make(8000))
    kept = []
    try:
        for batch in ds.batches(100, shuffle="full", cache_bytes=2 << 20):
            kept.append(batch)
    except dlfs.Error as error:
        assert error.code in ("out of memory", "invalid argument") and "cache_bytes" in str(error)
    else:
        assert sorted(i for batch in kept for i in batch.ids.tolist()) == list(range(8000))
