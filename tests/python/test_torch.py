"""dlfs.torch: items and batches as PyTorch users expect them, in workers, over epochs, ranks and restarts."""

from __future__ import annotations

import io
import json
import os
import pickle
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
dlfs = pytest.importorskip("dlfs")
from dlfs.torch import Dataset, Loader  # noqa: E402

COUNT = 2000


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork.*")
        yield


class LabelAndLength:
    """A transform that spawned workers can unpickle."""

    def __call__(self, sample):
        return torch.tensor(int(sample["label"])), len(io.BytesIO(sample["image"]).read())


def labels(batches):
    return [batch["label"].tolist() for batch in batches]


def test_items_are_collated_by_pytorch(volume_path, image):
    dataset = Dataset(volume_path)
    assert len(dataset) == COUNT and dataset.classes == ["cat", "dog", "owl"]
    item = dataset[5]
    assert item["image"] == image(5) and isinstance(item["image"], bytes) and item["mask"].flags.writeable
    assert [each["label"] for each in dataset.__getitems__([3, 1])] == [3, 1]
    batch = next(iter(torch.utils.data.DataLoader(dataset, batch_size=4)))
    assert batch["label"].dtype == torch.int64 and batch["label"].tolist() == [0, 1, 2, 3]
    assert batch["image"] == [image(i) for i in range(4)] and batch["mask"].shape == (4, 3, 2)
    assert batch["score"].dtype == torch.float32 and batch["caption"][1] == "Bild 1 — 図"
    with pytest.raises(IndexError):
        dataset[COUNT]


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.parametrize("transform", [None, LabelAndLength()])
def test_dataset_in_workers(volume_path, context, transform, image):
    dataset = Dataset(dlfs.mount(volume_path), transform)
    dataset[0]  # the parent has used it before
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=100, shuffle=True, num_workers=2, multiprocessing_context=context, persistent_workers=True
    )
    for _ in range(2):
        seen = []
        for batch in loader:
            if transform is None:
                assert batch["image"][0] == image(int(batch["label"][0]))
                seen += batch["label"].tolist()
            else:
                assert batch[1][0] == len(image(int(batch[0][0])))
                seen += batch[0].tolist()
        assert sorted(seen) == list(range(COUNT))
    assert dataset[1]["label"] == 1 if transform is None else dataset[1][0] == 1


def test_dataset_pickles_by_url(volume_path):
    again = pickle.loads(pickle.dumps(Dataset(volume_path, LabelAndLength())))
    assert again[3][0] == 3


def test_loader_gives_tensors_and_lists(volume_path, image):
    loader = Loader(volume_path, 128, seed=1)
    assert len(loader) == 16
    seen = []
    for batch in loader:
        assert batch["mask"].dtype == torch.uint16 and torch.equal(batch["mask"][:, 0, 0].long(), batch["label"])
        assert batch["image"] == [image(i) for i in batch["label"].tolist()]
        assert batch["score"].dtype == torch.float32 and isinstance(batch["caption"][0], str)
        batch["label"] += 1
        seen += batch["label"].tolist()
    assert sorted(seen) == list(range(1, COUNT + 1))


def test_epochs_advance_by_themselves(volume_path):
    ds = dlfs.mount(volume_path)
    loader = Loader(ds, 100, seed=4)
    got = []
    for expected in range(3):
        assert loader.epoch == expected
        got.append(labels(loader))
    assert got == [[ids.tolist() for ids in ds.order(100, seed=4, epoch=e)] for e in range(3)]
    loader.set_epoch(1)
    assert labels(loader) == got[1] and loader.epoch == 2
    for _ in loader:
        break
    assert loader.epoch == 2
    assert labels(loader) == [ids.tolist() for ids in ds.order(100, seed=4, epoch=3)]


@pytest.mark.parametrize("drop_last, ranks", [(False, 1), (True, 1), (False, 4), (True, 4)])
def test_lengths_are_what_comes_and_equal_on_every_rank(volume_path, drop_last, ranks):
    size = 300
    for rank in range(ranks):
        loader = Loader(volume_path, size, drop_last=drop_last, rank=rank, ranks=ranks)
        sizes = [len(batch["label"]) for batch in loader]
        assert len(sizes) == len(loader) == (6 if drop_last else 7)
        assert sizes[:6] == [size // ranks] * 6 and (drop_last or sizes[6] == (200 if ranks == 1 else size // ranks))


@pytest.mark.parametrize("stop", [0, 1, 7, 8, 9, 15, 16, 20])
@pytest.mark.parametrize("jump", [False, True])
def test_resume_goes_on_exactly(volume_path, stop, jump):
    """stop counts batches over two epochs of 8; the state is taken right after a batch was used."""

    def walk(loader, first_epoch, epochs, most=10**9):
        taken = []
        for epoch in range(first_epoch, epochs):
            if jump:
                loader.set_epoch(epoch)
            for batch in loader:
                taken.append((loader.epoch, batch["label"].tolist()))
                if len(taken) == most:
                    return taken
        return taken

    whole = walk(Loader(volume_path, 250, seed=6), 0, 3)
    assert len(whole) == 24
    interrupted = Loader(volume_path, 250, seed=6)
    first = walk(interrupted, 0, 3, stop) if stop else []
    state = json.loads(json.dumps(interrupted.state_dict()))
    resumed = Loader(volume_path, 250, seed=6)
    resumed.load_state_dict(state)
    rest = walk(resumed, state["epoch"], 3)
    assert first + rest == whole


def test_a_state_taken_between_epochs_begins_the_next(volume_path):
    loader = Loader(volume_path, 250, seed=6)
    labels(loader)
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 0)
    again = Loader(volume_path, 250, seed=6)
    again.load_state_dict(state)
    assert labels(again) == labels(loader)


def test_resume_with_other_ranks(volume_path):
    whole = [sorted(each) for each in labels(Loader(volume_path, 200, seed=2))]
    loader = Loader(volume_path, 200, seed=2, rank=1, ranks=4, tail="short")
    taken = iter(loader)
    for _ in range(3):
        next(taken)
    shares = []
    for rank in range(2):
        resumed = Loader(volume_path, 200, seed=2, rank=rank, ranks=2, tail="short")
        resumed.load_state_dict(loader.state_dict())
        shares.append(labels(resumed))
    assert [sorted(a + b) for a, b in zip(*shares)] == whole[3:]


@pytest.mark.parametrize("other", [{"seed": 1}, {"batch_size": 100}, {"shuffle": "full"}, {"drop_last": True}, {"lanes": 60}])
def test_a_state_of_another_order_is_refused(volume_path, other):
    state = Loader(volume_path, 250).state_dict()
    with pytest.raises(dlfs.InvalidArgumentError, match="the state was taken with"):
        Loader(volume_path, **{"batch_size": 250, **other}).load_state_dict(state)
    with pytest.raises(dlfs.InvalidArgumentError):
        Loader(volume_path, 250).load_state_dict({})


def test_a_new_iteration_ends_an_older_one(volume_path):
    loader = Loader(volume_path, 100)
    old = iter(loader)
    next(old)
    new = iter(loader)
    next(new)
    with pytest.raises(RuntimeError, match="newest"):
        next(old)
    assert len(list(new)) == 19


@pytest.mark.parametrize("threads", [0, 3])
def test_transform_and_collate(volume_path, image, threads):
    loader = Loader(volume_path, 100, seed=1, transform=LabelAndLength(), threads=threads)
    plain = labels(Loader(volume_path, 100, seed=1))
    got = list(loader)
    assert [batch[0].tolist() for batch in got] == plain
    assert all(n == len(image(i)) for batch in got for i, n in zip(batch[0].tolist(), batch[1].tolist()))
    loader = Loader(volume_path, 100, seed=1, collate_fn=lambda items: np.array([item["label"] for item in items]))
    assert [batch.tolist() for batch in loader] == plain
    loader = Loader(volume_path, 100, seed=1, transform=lambda sample: sample)
    assert next(iter(loader))["image"][0] == image(plain[0][0])


def test_a_transform_that_raises_ends_the_epoch_and_not_the_loader(volume_path):
    def transform(sample):
        raise RuntimeError("bad picture")

    loader = Loader(volume_path, 100, transform=transform, threads=2)
    with pytest.raises(RuntimeError, match="bad picture"):
        next(iter(loader))
    assert loader.state_dict()["batch"] == 0
    loader.transform = None
    assert len(list(loader)) == 20


def test_rank_comes_from_torch_distributed(volume_path, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        assert Loader(volume_path, 100)._order.ranks == 1
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(dlfs.InvalidArgumentError, match="both"):
        Loader(volume_path, 100, rank=1)


def test_a_loader_in_a_worker_is_refused(volume_path):
    class Wrapped(torch.utils.data.IterableDataset):
        def __init__(self, loader):
            self.loader = loader

        def __iter__(self):
            return iter(self.loader)

    loader = torch.utils.data.DataLoader(Wrapped(Loader(volume_path, 100)), batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="give DataLoader a dlfs Dataset"):
        next(iter(loader))


def test_a_loader_goes_on_in_a_forked_child(volume_path):
    loader = Loader(volume_path, 100, seed=1)
    expected = labels(loader)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            loader.set_epoch(0)
            status = 0 if labels(loader) == expected else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loader.set_epoch(0)
    assert labels(loader) == expected


def test_an_epoch_smaller_than_a_dropped_batch_is_empty(volume_path):
    loader = Loader(volume_path, COUNT + 1, drop_last=True)
    assert len(loader) == 0 and list(loader) == [] and list(loader) == []


def test_tensors_go_in_and_come_out(tmp_path):
    def tensors(i):
        return {
            "half": torch.full((2, 3), i / 4, dtype=torch.bfloat16),
            "one": torch.tensor(i, dtype=torch.bfloat16),
            "turned": torch.arange(6).reshape(2, 3).T + i,
            "grad": torch.ones(2, requires_grad=True),
            "label": torch.tensor(i),
            "big": np.uint64(2**64 - 1 - i),
        }

    path = tmp_path / "tensors.dlfs"
    dlfs.pack(map(tensors, range(4)), path)
    with dlfs.mount(path) as ds:
        assert str(ds.schema).startswith("half: bfloat16[2,3], one: bfloat16, turned: int64[3,2], grad: float32[2], label: int64")
    batches = [
        next(iter(Loader(path, 4, shuffle=False))),
        next(iter(Loader(path, 4, shuffle=False, transform=dict))),
        next(iter(torch.utils.data.DataLoader(Dataset(path), 4))),
        next(iter(torch.utils.data.DataLoader(Dataset(path, dict), 4))),
    ]
    for batch in batches:
        for name, value in batch.items():
            want = torch.stack([torch.as_tensor(tensors(i)[name]) for i in range(4)]) if name != "big" else batches[0]["big"]
            assert value.dtype == want.dtype and torch.equal(value, want), name
    assert batches[0]["big"].tolist() == [2**64 - 1 - i for i in range(4)]


@pytest.mark.parametrize(
    "schema, value",
    [
        ("x: uint16[2]", torch.ones(2, dtype=torch.bfloat16)),
        ("x: uint16", torch.tensor(1, dtype=torch.bfloat16)),
        ("x: float32[2]", torch.ones(2, dtype=torch.float64)),
        ("x: int64", torch.tensor([1])),
        ("x: bytes", torch.ones(2, dtype=torch.uint8)),
        (None, torch.ones(2).to(torch.float8_e4m3fn)),
        (None, torch.ones(2).to_sparse()),
    ],
)
def test_tensors_that_do_not_fit(tmp_path, schema, value):
    with pytest.raises(dlfs.SchemaError, match="sample 0: field 'x'"):
        dlfs.pack([{"x": value}], tmp_path / "v", schema)


def test_tensors_are_ids(ds):
    assert ds[torch.tensor([5, 3, 5])].ids.tolist() == [5, 3, 5] and ds[torch.tensor(4)]["label"] == 4
    with pytest.raises(dlfs.InvalidArgumentError, match=r"out\.numpy\(\)"):
        ds[:8].gather("label", torch.zeros(8, dtype=torch.int64))
    out = torch.zeros(8, dtype=torch.int64)
    ds[:8].gather("label", out.numpy())
    assert out.tolist() == list(range(8))


@pytest.mark.parametrize("before, after", [(1, 4), (4, 1), (2, 8)])
def test_defaults_resume_with_other_ranks(volume_path, before, after):
    def loaders(ranks):
        return [Loader(volume_path, 240, seed=4, rank=rank, ranks=ranks) for rank in range(ranks)]

    first = loaders(before)
    iterators = [iter(loader) for loader in first]
    for _ in range(3):
        for iterator in iterators:
            next(iterator)
    states = [loader.state_dict() for loader in first]
    assert all(state == states[0] for state in states)
    second = loaders(after)
    for loader in second:
        loader.load_state_dict(json.loads(json.dumps(states[0])))
    others = [iter(loader) for loader in second]
    for _ in range(4):
        want = sorted(label for iterator in iterators for label in next(iterator)["label"].tolist())
        assert sorted(label for iterator in others for label in next(iterator)["label"].tolist()) == want


def test_state_of_another_order_says_what_differs(volume_path):
    state = Loader(volume_path, 100).state_dict()
    with pytest.raises(dlfs.InvalidArgumentError, match="drop_last=False.*drop_last=True"):
        Loader(volume_path, 100, drop_last=True).load_state_dict(state)
    with pytest.raises(dlfs.InvalidArgumentError, match="shuffle='chunk'.*shuffle='full'"):
        Loader(volume_path, 100, shuffle="full").load_state_dict(state)
    for wrong in (None, "x", {}, {**state, "batch": 10**6}, {**state, "epoch": -1}, {**state, "epoch": None}):
        with pytest.raises(dlfs.InvalidArgumentError):
            Loader(volume_path, 100).load_state_dict(wrong)


def test_loader_inside_a_dataloader(volume_path):
    loader = torch.utils.data.DataLoader(Loader(volume_path, 250, seed=3), batch_size=None)
    assert len(loader) == 8 and labels(loader) == labels(Loader(volume_path, 250, seed=3))
    workers = torch.utils.data.DataLoader(Loader(volume_path, 250), batch_size=None, num_workers=1)
    with pytest.raises(RuntimeError, match="iterate it directly"):
        next(iter(workers))


def damaged(path, damage_ids):
    """A copy of the volume in which these samples' bytes are wrong."""
    whole = path.read_bytes()
    broken = bytearray(whole)
    with dlfs.mount(path) as ds:
        for id in damage_ids:
            broken[whole.index(bytes(ds[id]["image"])) + 1] ^= 1
    into = path.with_name("damaged.dlfs")
    into.write_bytes(broken)
    return into


@pytest.mark.parametrize("transform", [None, lambda sample: int(sample["label"])])
def test_a_batch_of_which_nothing_is_left(make, transform):
    path = damaged(make(40), [4, 5])
    loader = Loader(path, 2, shuffle=False, on_error="skip", transform=transform)
    batches = list(loader)
    assert len(batches) == 19 and loader.stat()["skipped"] >= 2 and loader.state_dict()["epoch"] == 1
    ranked = iter(Loader(path, 2, shuffle=False, on_error="skip", transform=transform, rank=0, ranks=2))
    assert len([next(ranked) for _ in range(2)]) == 2
    with pytest.raises(dlfs.CorruptError, match="batch 2 of epoch 0 .* rank 0"):
        next(ranked)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda path: Loader(path, 4, transform=5),
        lambda path: Loader(path, 4, collate_fn=5),
        lambda path: Dataset(path, 5),
        lambda path: Loader(path, 4, threads=-1),
        lambda path: Loader(path, 4).set_epoch(-1),
        lambda path: Loader(path, 4).set_epoch("a"),
    ],
)
def test_wrong_arguments_are_errors_at_once(volume_path, wrong):
    with pytest.raises(dlfs.InvalidArgumentError):
        wrong(volume_path)


def test_a_dataset_gives_items_one_by_one(volume_path):
    for wrong in (slice(0, 2), [1, 2]):
        with pytest.raises(TypeError, match="__getitems__"):
            Dataset(volume_path)[wrong]
