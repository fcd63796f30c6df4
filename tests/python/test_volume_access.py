"""A volume as a sequence by id, a mapping by name, and a source of files."""

from __future__ import annotations

import io
import os
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

dlfs = pytest.importorskip("dlfs")
COUNT = 2000

slow_fixture = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def same(got, expected):
    assert list(got) == list(expected)
    assert got["image"] == expected["image"] and isinstance(got["image"], memoryview) and got["image"].readonly
    assert got["label"] == expected["label"] and got["label"].dtype == np.int64
    assert got["score"] == expected["score"] and got["score"].dtype == np.float32
    assert got["mask"].dtype == np.uint16 and np.array_equal(got["mask"], expected["mask"])
    assert not got["mask"].flags.writeable
    assert got["caption"] == expected["caption"] and isinstance(got["caption"], str)


def test_length_schema_and_attributes(ds):
    assert len(ds) == COUNT
    assert str(ds.schema) == "image: bytes, label: int64, score: float32, mask: uint16[3,2], caption: text"
    assert list(ds.schema) == ["image", "label", "score", "mask", "caption"]
    assert ds.schema["mask"].shape == (3, 2) and ds.schema["mask"].dtype == "uint16" and ds.schema["label"].kind == "tensor"
    assert ds.classes == ["cat", "dog", "owl"] and ds.attributes["origin"] == "made up"
    assert dlfs.Schema.parse(str(ds.schema)).fields == ds.schema.fields
    with pytest.raises(KeyError, match="the fields are image"):
        ds.schema["nothing"]


def test_a_sample_by_id_from_both_ends(ds, sample):
    for i in (0, 1, 7, 11, 1234, COUNT - 1):
        same(ds[i], sample(i))
        same(ds[i - COUNT], sample(i))
        same(ds[np.int64(i)], sample(i))


def test_ids_out_of_range_end_the_sequence_protocol(ds):
    for i in (COUNT, -COUNT - 1, 2**31, 2**70):
        with pytest.raises(IndexError):
            ds[i]


def test_a_sample_by_name(ds, sample, name):
    for i in (0, 7, 11, 1999):
        same(ds[name(i)], sample(i))
        same(ds[name(i).encode()], sample(i))
        assert ds.find(name(i)) == i and ds.name(i) == name(i) and name(i) in ds
    assert ds.name(-1) == name(COUNT - 1)


@pytest.mark.parametrize("absent", ["", "train", "train/cat/00000.jp", "train/cat/00000.jpg/", "\udcff", "x" * 5000])
def test_an_absent_name_is_a_key_error_and_a_dlfs_error(ds, absent):
    assert absent not in ds
    with pytest.raises(dlfs.Error):
        ds[absent]
    if len(absent) < 4096:
        with pytest.raises(KeyError) as caught:
            ds[absent]
        assert isinstance(caught.value, dlfs.NotFoundError) and caught.value.code == "not found"


def test_contains_ids(ds):
    assert 0 in ds and COUNT - 1 in ds and COUNT not in ds and -1 not in ds and 1.5 not in ds and None not in ds


def test_names_are_a_lazy_sequence(ds, name):
    names = ds.names()
    assert len(names) == COUNT
    assert list(names) == [name(i) for i in range(COUNT)]
    assert names[3] == name(3) and names[-1] == name(COUNT - 1) and names[5:8] == [name(5), name(6), name(7)]
    assert name(9) in names and "x" not in names and 9 not in names


def test_iteration_gives_every_sample_in_id_order(ds, sample):
    seen = 0
    for i, got in enumerate(ds):
        assert got["label"] == i and got["image"] == sample(i)["image"]
        seen += 1
    assert seen == COUNT


@slow_fixture
@given(ids=st.lists(st.integers(-COUNT, COUNT - 1), max_size=40))
def test_lists_of_ids_come_in_the_order_asked(ds, sample, ids):
    batch = ds[ids]
    assert len(batch) == len(ids)
    assert batch.ids.tolist() == [i % COUNT for i in ids]
    assert batch["image"].tolist() == [sample(i % COUNT)["image"] for i in ids]
    assert batch["label"].tolist() == [i % COUNT for i in ids]


@slow_fixture
@given(piece=st.slices(COUNT))
def test_slices_are_those_of_a_list(ds, piece):
    assert ds[piece].ids.tolist() == list(range(COUNT))[piece]


@pytest.mark.parametrize("ids", [np.array([3, 1]), np.array([3, 1], np.uint8), np.array([3, 1 - COUNT], np.int16), range(3, 0, -2), (3, 1)])
def test_ids_of_any_integer_kind(ds, ids):
    assert ds[ids].ids.tolist() == [3, 1]


@pytest.mark.parametrize(
    "ids, error",
    [
        ([0, COUNT], IndexError),
        ([-COUNT - 1], IndexError),
        (np.array([0.5]), TypeError),
        (np.ones((2, 2), int), TypeError),
        (np.ones(COUNT, bool), TypeError),
        (["a"], TypeError),
        (None, TypeError),
        (1.5, TypeError),
    ],
)
def test_ids_that_make_no_sense_are_refused(ds, ids, error):
    with pytest.raises(error):
        ds[ids]


def test_open_reads_in_parts(ds, sample, name):
    for i in (7, 11, 500):
        content = sample(i)["image"]
        with ds.open(name(i)) as file:
            assert isinstance(file, io.RawIOBase) and file.id == i and file.size == len(content)
            assert file.readable() and file.seekable() and not file.writable()
            assert file.read() == content and file.tell() == len(content) and file.read(10) == b""
            assert file.seek(-3, os.SEEK_END) == max(len(content) - 3, 0) if len(content) > 3 else True
            file.seek(5)
            assert file.read(7) == content[5:12]
            file.seek(10**12)
            assert file.read(4) == b""
            with pytest.raises(ValueError):
                file.seek(-1)
        with pytest.raises(ValueError):
            file.read()
        assert io.BufferedReader(ds.open(i)).read() == content
    assert ds.open(3, "caption").read() == sample(3)["caption"].encode()
    assert ds.open(3, "label").read() == (3).to_bytes(8, "little")
    into = np.zeros(10, np.uint16)
    assert ds.open(500).readinto(into) == 20 and into.tobytes() == sample(500)["image"][:20]
    with pytest.raises(KeyError):
        ds.open(3, "nothing")


def test_stat_and_verify(ds):
    stat = ds.stat()
    assert stat["samples"] == COUNT and stat["chunk_bytes"] == 64 << 10 and stat["payload_bytes"] > 10**6
    assert stat["directory_bytes"] <= 16 * COUNT + 4096 * 4 and stat["engine"]
    seen = []
    report = ds.verify(lambda done, total: seen.append((done, total)))
    assert report.ok and report.samples == COUNT and report.findings == [] and seen and seen[-1][0] <= seen[-1][1]


def test_what_progress_raises_ends_verify(ds):
    def progress(done, total):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        ds.verify(progress)


def test_a_flipped_byte_is_named_and_never_delivered(make, image):
    path = make(300)
    content = bytearray(path.read_bytes())
    at = content.find(image(42))
    content[at + 5] ^= 1
    path.write_bytes(content)
    ds = dlfs.mount(path)
    with pytest.raises(dlfs.CorruptError) as caught:
        ds[42]
    assert caught.value.code == "corrupt" and "42" in str(caught.value) and str(path) in str(caught.value)
    with pytest.raises(dlfs.CorruptError):
        ds[[1, 42, 2]]
    assert ds.read([1, 42, 2], on_error="skip").ids.tolist() == [1, 2]
    report = ds.verify()
    assert not report.ok and report.bad_samples == 1 and any(f.id == 42 for f in report.findings)
    with pytest.raises(dlfs.CorruptError):
        for _ in ds.batches(32, shuffle="full"):
            pass
    with ds.batches(32, shuffle="full", on_error="skip") as batches:
        ids = sorted(i for batch in batches for i in batch.ids)
        assert ids == [i for i in range(300) if i != 42] and batches.stat()["skipped"] == 1


def test_mount_refuses_what_is_no_volume(tmp_path):
    with pytest.raises(dlfs.NotFoundError) as caught:
        dlfs.mount(tmp_path / "absent.dlfs")
    assert isinstance(caught.value, FileNotFoundError) and isinstance(caught.value, OSError)
    foreign = tmp_path / "foreign"
    foreign.write_bytes(os.urandom(1 << 20))
    with pytest.raises(dlfs.Error) as foreign_error:
        dlfs.mount(foreign)
    assert foreign_error.value.code == "foreign"
    for bad in (0, -1, float("nan")):
        with pytest.raises(dlfs.InvalidArgumentError):
            dlfs.mount(foreign, timeout=bad)
    with pytest.raises(ValueError):
        dlfs.mount(17)


def test_errors_survive_pickling(ds):
    with pytest.raises(dlfs.NotFoundError) as caught:
        ds["absent"]
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is dlfs.NotFoundError and str(again) == str(caught.value) and again.code == "not found"


def test_pickling_is_by_url(ds, sample, volume_path, monkeypatch, tmp_path):
    data = pickle.dumps(ds)
    assert len(data) < 1000
    monkeypatch.chdir(tmp_path)
    same(pickle.loads(data)[5], sample(5))
    monkeypatch.chdir(volume_path.parent)
    relative = pickle.dumps(dlfs.mount(volume_path.name))
    monkeypatch.chdir("/")
    same(pickle.loads(relative)[5], sample(5))


def test_a_pickle_refuses_another_volume(make):
    path = make(10)
    data = pickle.dumps(dlfs.mount(path))
    with dlfs.Writer(path, "x: int64", overwrite=True) as writer:
        writer.write({"x": 1})
    with pytest.raises(dlfs.Error, match="another volume"):
        pickle.loads(data)


def test_a_closed_volume_says_so_and_what_came_from_it_goes_on(volume_path, image):
    ds = dlfs.mount(volume_path)
    batch, batches, file = ds[[1, 2]], ds.batches(100), ds.open(11)
    ds.close()
    ds.close()
    for use in (lambda: ds[0], lambda: len(ds), lambda: ds.find("x"), lambda: ds.batches(1), lambda: ds.verify()):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert batch["image"][0] == image(1) and file.read() == image(11)
    assert sum(len(each) for each in batches) == COUNT
    assert "closed" in repr(ds)


def test_many_threads_read_at_once(ds, sample):
    faults = []

    def read(seed):
        for i in np.random.default_rng(seed).integers(0, COUNT, 200).tolist():
            if ds[i]["image"] != sample(i)["image"]:
                faults.append(i)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_a_large_sample_is_read_in_one_go_or_in_crumbs(tmp_path):
    content = np.random.default_rng(1).integers(0, 256, 40_000_000, np.uint8).tobytes()
    path = tmp_path / "large.dlfs"
    dlfs.pack([{"blob": content, "id": 1}], path, chunk_bytes=16 << 20)
    with dlfs.mount(path) as ds:
        reads = []
        file = ds.open(0)
        plain = file.readinto
        file.readinto = lambda into: reads.append(len(into)) or plain(into)
        assert file.read() == content and len(reads) <= 3  # RawIOBase would ask 8 KiB at a time
        assert file.read() == b"" and file.seek(-5, 2) == len(content) - 5 and file.read() == content[-5:]
        file.seek(len(content) + 10)
        assert file.read() == b""
        began = time.perf_counter()
        with io.BufferedReader(ds.open(0)) as buffered:
            assert b"".join(iter(lambda: buffered.read(3000), b"")) == content
        assert time.perf_counter() - began < 20  # minutes where each read takes and verifies a chunk of 16 MiB


def test_ids_and_names_of_any_kind(ds):
    assert ds[np.array(3)]["label"] == 3
    with pytest.raises(TypeError, match="flatnonzero"):
        ds[np.zeros(len(ds), bool)]
    with pytest.raises(TypeError, match="find"):
        ds[["train/cat/00000.jpg"]]
    assert "\ud800" not in ds
    with pytest.raises(dlfs.NotFoundError, match="surrogate"):
        ds["\ud800"]
    for wrong in (lambda: ds.name("x"), lambda: ds[:3][0:2], lambda: ds.names()["x"]):
        with pytest.raises(TypeError, match="must be an integer"):
            wrong()


def test_gather_says_what_out_must_be(ds):
    batch = ds[:8]
    for wrong in ([0] * 8, bytes(64), bytearray(64)):
        with pytest.raises(dlfs.InvalidArgumentError, match="writable numpy.ndarray"):
            batch.gather("label", wrong)
        with pytest.raises(dlfs.InvalidArgumentError, match="writable numpy.ndarray"):
            batch["image"].gather(wrong)


def test_a_file_cut_short_under_a_mount_is_named(make):
    path = make(300)
    with dlfs.mount(path) as ds:
        os.truncate(path, 128 << 10)
        for read in (lambda: ds[0], lambda: list(ds.batches(50)), lambda: ds.name(0)):
            with pytest.raises(dlfs.Error, match="cut short|ends at 131072 bytes") as raised:
                read()
            assert raised.value.code == "io" and str(path) in str(raised.value)
        skipping = ds.batches(50, on_error="skip")
        assert sum(map(len, skipping)) == 0 and skipping.stat()["skipped"] == 300
