"""Mini-batches: columns, orders, ranks, tails, resuming."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

dlfs = pytest.importorskip("dlfs")
COUNT = 2000
MODES = ["chunk", "full", "sequential"]

few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def ids_of(batches):
    return [batch.ids.tolist() for batch in batches]


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_holds_every_sample_once_with_its_own_bytes(ds, image, mode):
    seen = []
    with ds.batches(128, shuffle=mode, seed=3) as batches:
        assert len(batches) == 16
        for number, batch in enumerate(batches):
            assert batch.number == number and batch.epoch == 0 and batch.padding == 0
            assert batch.keys() == list(ds.schema) and "image" in batch and "nothing" not in batch
            assert batch.ids.dtype == np.int64 and batch["label"].dtype == np.int64
            assert np.array_equal(batch["label"], batch.ids)
            assert batch["mask"].shape == (len(batch), 3, 2) and np.array_equal(batch["mask"][:, 0, 0], batch.ids)
            assert all(view == image(i) for view, i in zip(batch["image"], batch.ids))
            assert batch["caption"].tolist() == [f"Bild {i} — 図" for i in batch.ids]
            seen += batch.ids.tolist()
    assert sorted(seen) == list(range(COUNT))
    assert (seen == list(range(COUNT))) == (mode == "sequential")


@pytest.mark.parametrize("mode", MODES)
def test_the_order_is_what_order_says_and_depends_on_seed_and_epoch_only(ds, mode):
    first = ids_of(ds.batches(100, shuffle=mode, seed=5, epoch=2))
    assert first == ids_of(ds.batches(100, shuffle=mode, seed=5, epoch=2, cache_bytes=16 << 20, depth=3))
    assert first == [ids.tolist() for ids in ds.order(100, shuffle=mode, seed=5, epoch=2)]
    if mode != "sequential":
        assert first != ids_of(ds.batches(100, shuffle=mode, seed=6, epoch=2))
        assert first != ids_of(ds.batches(100, shuffle=mode, seed=5, epoch=3))


def test_shuffle_has_short_words(ds):
    def first(shuffle):
        return next(ds.batches(50, shuffle=shuffle)).ids.tolist()

    assert first(True) == first("chunk")
    assert first(False) == first(None) == first("sequential") == list(range(50))


def test_order_walks_over_many_pieces(ds):
    assert [ids.tolist() for ids in ds.order(1, shuffle="full")] == ids_of(ds.batches(1, shuffle="full"))
    assert len(list(ds.order(1, start_batch=COUNT))) == 0


@pytest.mark.parametrize("mode", ["chunk", "full"])
@pytest.mark.parametrize("ranks", [2, 5, 10])
def test_ranks_share_the_same_global_batches(ds, mode, ranks):
    alone = [sorted(ids) for ids in ids_of(ds.batches(100, shuffle=mode, seed=1))]
    shares = [ids_of(ds.batches(100, shuffle=mode, seed=1, rank=r, ranks=ranks)) for r in range(ranks)]
    assert all(len(ids) == 100 // ranks for share in shares for ids in share)
    assert [sorted(sum(parts, [])) for parts in zip(*shares)] == alone


def test_tails(ds):
    sizes = {tail: [len(b) for b in ds.batches(300, tail=tail)] for tail in ("short", "drop", "pad")}
    assert sizes == {"short": [300] * 6 + [200], "drop": [300] * 6, "pad": [300] * 7}
    last = list(ds.batches(300, tail="pad"))[-1]
    assert last.padding == 100
    assert [len(ds.batches(300, tail=tail)) for tail in ("short", "drop", "pad")] == [7, 6, 7]


def test_epochs_follow_each_other(ds):
    single = [ids_of(ds.batches(250, seed=9, epoch=e)) for e in (4, 5, 6)]
    batches = ds.batches(250, seed=9, epoch=4, epochs=3)
    assert len(batches) == 24 and batches.batches_per_epoch == 8
    got = [(batch.epoch, batch.number, batch.ids.tolist()) for batch in batches]
    assert [each[:2] for each in got] == [(e, b) for e in (4, 5, 6) for b in range(8)]
    assert [each[2] for each in got] == sum(single, [])
    with pytest.raises(StopIteration):
        next(batches)


def test_endless_batches_have_no_length(ds):
    with ds.batches(1000, epochs=None) as batches:
        assert [next(batches).epoch for _ in range(7)] == [0, 0, 1, 1, 2, 2, 3]
        with pytest.raises(TypeError):
            len(batches)


@few
@given(mode=st.sampled_from(MODES), stop=st.integers(0, 23), seed=st.integers(0, 2**64 - 1), ranks=st.sampled_from([1, 2, 4]))
def test_interrupted_and_resumed_equals_uninterrupted(ds, mode, stop, seed, ranks):
    arguments = {"shuffle": mode, "seed": seed, "epoch": 7, "epochs": 3, "rank": ranks - 1, "ranks": ranks}
    whole = ids_of(ds.batches(250 + 2, **arguments))
    interrupted = ds.batches(252, **arguments)
    first = [next(interrupted).ids.tolist() for _ in range(stop)]
    state = interrupted.state()
    assert len(state) <= 64
    saved = json.loads(json.dumps(interrupted.state_dict()))
    interrupted.close()
    for given_state in (state, saved):
        resumed = ds.batches(252, **arguments, state=given_state)
        assert len(resumed) == len(whole) - stop
        assert first + ids_of(resumed) == whole


def test_resuming_with_other_ranks_gives_the_same_global_batches(ds):
    whole = [sorted(ids) for ids in ids_of(ds.batches(200, seed=2))]
    batches = ds.batches(200, seed=2, rank=1, ranks=4)
    for _ in range(3):
        next(batches)
    state = batches.state()
    shares = [ids_of(ds.batches(200, state=state, rank=r, ranks=2)) for r in range(2)]
    assert [sorted(a + b) for a, b in zip(*shares)] == whole[3:]


def test_start_batch_skips(ds):
    whole = ids_of(ds.batches(128, seed=8))
    assert ids_of(ds.batches(128, seed=8, start_batch=5)) == whole[5:]
    assert len(ds.batches(128, seed=8, start_batch=5)) == 11


@pytest.mark.parametrize("state", [b"", b"x" * 64, b"\0" * 40, {"dlfs": 1, "state": "zz"}, {"dlfs": 2, "state": ""}, {}])
def test_a_foreign_state_is_refused(ds, state):
    with pytest.raises(dlfs.Error):
        ds.batches(10, state=state)


def test_the_state_of_another_volume_is_refused(ds, make):
    other = dlfs.mount(make(100))
    with pytest.raises(dlfs.Error, match="another volume"):
        ds.batches(10, state=other.batches(10).state())


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": 2**32},
        {"batch_size": 1.5},
        {"seed": -1},
        {"seed": 2**64},
        {"rank": 1},
        {"rank": 0, "ranks": 0},
        {"ranks": 7},
        {"shuffle": "random"},
        {"shuffle": ["chunk"]},
        {"tail": "long"},
        {"on_error": "ignore"},
        {"epochs": 0},
        {"lanes": 0},
        {"window": 0},
        {"cache_bytes": 1},
        {"start_batch": 10**9},
    ],
)
def test_arguments_that_make_no_sense_are_refused_in_a_sentence(ds, wrong):
    with pytest.raises(dlfs.Error) as caught:
        ds.batches(**{"batch_size": 64, **wrong})
    assert len(str(caught.value)) > 15


def test_statistics_add_up(ds):
    with ds.batches(100, seed=4) as batches:
        for _ in batches:
            pass
        stat = batches.stat()
    assert stat["samples"] == COUNT and stat["batches"] == 20
    assert stat["payload_bytes"] == ds.stat()["payload_bytes"]
    assert stat["device_bytes"] >= stat["payload_bytes"] and 1 <= stat["amplification"] < 3
    assert stat["memory_peak_bytes"] <= 256 << 20
    assert set(stat["wait"]) == {"p50_us", "p95_us", "p99_us", "total_s"}


def test_columns_gather_into_one_piece(ds, image):
    batch = ds[[5, 7, 9]]
    column = batch["image"]
    expected = [image(i) for i in (5, 7, 9)]
    data, offsets = column.gather()
    assert data.tobytes() == b"".join(expected) and offsets.dtype == np.int64
    assert [data[a:b].tobytes() for a, b in zip(offsets, offsets[1:])] == expected
    assert column.nbytes == len(data) and column.lengths.tolist() == [len(each) for each in expected]
    out = np.zeros(column.nbytes + 10, np.uint8)
    filled, _ = column.gather(out)
    assert np.shares_memory(filled, out) and filled.tobytes() == data.tobytes() and not out[-10:].any()
    assert column.tolist() == expected == [bytes(view) for view in column] == [bytes(v) for v in column[:]]
    assert column[-1] == expected[-1]
    with pytest.raises(IndexError):
        column[3]
    with pytest.raises(dlfs.InvalidArgumentError):
        column.gather(np.zeros(3, np.uint8))


def test_tensors_gather_into_a_given_array(ds):
    batch = ds[[1, 2]]
    out = np.zeros((2, 3, 2), np.uint16)
    assert batch.gather("mask", out=out) is out and np.array_equal(out, batch["mask"])
    assert batch["mask"] is batch["mask"] and batch["mask"].flags.writeable
    for wrong in (np.zeros((3, 3, 2), np.uint16), np.zeros((2, 3, 2), np.int16), np.zeros((2, 2, 3), np.uint16).T.swapaxes(0, 2)):
        with pytest.raises(dlfs.InvalidArgumentError):
            batch.gather("mask", out=wrong)
    frozen = np.zeros((2, 3, 2), np.uint16)
    frozen.flags.writeable = False
    with pytest.raises(dlfs.InvalidArgumentError):
        batch.gather("mask", out=frozen)
    with pytest.raises(KeyError):
        batch["nothing"]


def test_a_batch_gives_samples_too(ds, sample):
    batch = ds[[4, 8]]
    assert [each["image"] for each in batch] == [sample(4)["image"], sample(8)["image"]]
    assert batch[-1]["label"] == 8 and dict(batch)["label"].tolist() == [4, 8]
    with pytest.raises(IndexError):
        batch[2]
    assert [key for key, _ in batch.items()] == batch.keys() and len(list(batch.values())) == 5
    assert "2 samples" in repr(batch) and "2" in repr(batch["image"])


def test_an_empty_list_is_an_empty_batch(ds):
    batch = ds[[]]
    assert len(batch) == 0 and batch["mask"].shape == (0, 3, 2) and batch["image"].tolist() == [] and batch.ids.shape == (0,)
    data, offsets = batch["image"].gather()
    assert data.size == 0 and offsets.tolist() == [0]


def test_an_empty_volume_has_no_batches(tmp_path):
    with dlfs.Writer(tmp_path / "empty.dlfs", "x: bytes"):
        pass
    ds = dlfs.mount(tmp_path / "empty.dlfs")
    assert len(ds) == 0 and list(ds) == [] and list(ds.names()) == [] and ds.verify().ok
    with pytest.raises(dlfs.InvalidArgumentError, match="no samples"):
        ds.batches(10)


def test_batches_cannot_be_pickled_but_say_what_can(ds):
    import pickle

    with pytest.raises(TypeError, match="state"):
        pickle.dumps(ds.batches(10))


def test_closed_batches_say_so(ds):
    batches = ds.batches(10)
    next(batches)
    batches.close()
    batches.close()
    with pytest.raises(dlfs.Error, match="closed"):
        next(batches)
