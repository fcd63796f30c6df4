"""Trains one small CNN on CIFAR-10 from DLFS and from a folder of files, with the same seed, and compares the accuracies.

    python examples/train_cifar10.py --data FOLDER --epochs 6 --seeds 0 1 2 [--volume FILE|URL]

FOLDER holds train/<class>/*.jpg and test/<class>/*.jpg, as torchvision's ImageFolder expects. The training set is packed into a
volume in that order, sorted by class. Three arms then see the same images, model and number of steps, and differ only in
where the images come from and in what order:

    folder   the files, opened one by one in the order of a full random permutation, as ImageFolder and DataLoader do
    full     the volume, shuffle="full": a permutation of all samples
    chunk    the volume, shuffle="chunk": whole chunks in random order, mixed from many lanes
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import dlfs
from dlfs.torch import Loader

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]  # images: uint8, (n, 3, 32, 32); labels: int64, (n,)


# ---- the folder: what torchvision's ImageFolder does, in a few lines ----


def list_folder(folder: Path, limit: int | None) -> tuple[list[str], list[tuple[Path, int]]]:
    """The classes, and (file, label) sorted by class; at most `limit` files, equally many of each class."""
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    each = None if limit is None else max(limit // len(classes), 1)
    files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / name).iterdir())[:each]]
    return classes, files


def decode(jpeg: object) -> torch.Tensor:
    with Image.open(jpeg) as image:  # type: ignore[arg-type]
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


class ImageFolder(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, files: list[tuple[Path, int]]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        file, label = self.files[i]
        return decode(file), label


# ---- the arms: each gives epoch after epoch of batches ----


def folder_arm(files: list[tuple[Path, int]], batch_size: int, seed: int) -> Callable[[int], Batches]:
    generator = torch.Generator().manual_seed(seed)
    loader = torch.utils.data.DataLoader(ImageFolder(files), batch_size, shuffle=True, generator=generator)
    return lambda epoch: iter(loader)


def volume_arm(volume: dlfs.Volume, batch_size: int, seed: int, mode: str) -> Callable[[int], Batches]:
    loader = Loader(volume, batch_size, shuffle=mode, seed=seed, transform=decode_sample)  # type: ignore[arg-type]

    def epoch_of(epoch: int) -> Batches:
        loader.set_epoch(epoch)
        return iter(loader)

    return epoch_of


def decode_sample(sample: dlfs.Sample) -> tuple[torch.Tensor, int]:
    return decode(io.BytesIO(sample["image"])), int(sample["label"])


def pack(files: list[tuple[Path, int]], classes: list[str], folder: Path, volume: str) -> dlfs.Volume:
    start = time.perf_counter()
    with dlfs.Writer(volume, "image: bytes, label: int64", overwrite=True, attributes={"classes": classes}) as writer:
        for file, label in files:
            writer.write({"image": file.read_bytes(), "label": label}, str(file.relative_to(folder)))
    print(f"packed {len(files)} files into {volume} in {time.perf_counter() - start:.1f} s", flush=True)
    return dlfs.mount(volume)


# ---- the model ----


def make_model(classes: int) -> nn.Module:
    def block(into: int, out: int) -> list[nn.Module]:
        return [nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), nn.Flatten(), nn.Linear(64 * 16, classes))


def to_input(images: torch.Tensor) -> torch.Tensor:
    return (images.float() - 120.0) / 63.0


def train(batches: Callable[[int], Batches], classes: int, epochs: int, steps: int, seed: int, label: str) -> nn.Module:
    torch.manual_seed(seed)  # of the first weights: the same in every arm
    model = make_model(classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.03, total_steps=max(epochs * steps, 2))
    for epoch in range(epochs):
        start, total, count = time.perf_counter(), 0.0, 0
        for images, labels in batches(epoch):
            loss = nn.functional.cross_entropy(model(to_input(images)), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total, count = total + loss.item() * len(labels), count + len(labels)
        print(f"  {label} epoch {epoch}: loss {total / count:.3f}, {count} images, {time.perf_counter() - start:.1f} s", flush=True)
    return model


def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    right = 0
    with torch.no_grad():
        for first in range(0, len(labels), 500):
            part = slice(first, first + 500)
            right += int((model(to_input(images[part])).argmax(1) == labels[part]).sum())
    return right / len(labels)


# ---- the data and the run ----


def find_data(given: Path | None, work: Path) -> Path:
    """The folder with train/ and test/; unpacks cifar10-images.tar.xz where only that is at hand."""
    if given is not None:
        return given
    root = Path(__file__).resolve().parents[1]
    archive = Path(os.environ.get("DLFS_TEST_DATA", root.parent / "shared/data")) / "cifar10-images.tar.xz"
    folder = work / "cifar10"
    if not (folder / "test").is_dir():
        if not archive.exists():
            sys.exit(f"train_cifar10: there is no {archive}: name a folder with train/ and test/ by --data")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "xJf", archive, "-C", folder], check=True)
    return folder


def report(results: dict[str, list[float]]) -> None:
    print("\n| arm | test accuracy by seed | mean | standard deviation |\n| --- | --- | --- | --- |")
    for arm, values in results.items():
        deviation = f"{100 * statistics.stdev(values):.2f} %" if len(values) > 1 else "-"
        print(f"| {arm} | {', '.join(f'{100 * v:.2f} %' for v in values)} | {100 * statistics.mean(values):.2f} % | {deviation} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with train/<class>/ and test/<class>/")
    parser.add_argument("--work", type=Path, default=Path("build/train_cifar10"), help="for the volume (default: %(default)s)")
    parser.add_argument("--volume", help="where to pack: a file, a device or a device URL such as nvme-tcp://... (default: train.dlfs in --work)")
    parser.add_argument("--arms", nargs="+", default=["folder", "full", "chunk"], choices=["folder", "full", "chunk"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=240)
    parser.add_argument("--limit", type=int, help="use at most so many training and test images")
    options = parser.parse_args()

    options.work.mkdir(parents=True, exist_ok=True)
    data = find_data(options.data, options.work)
    classes, files = list_folder(data / "train", options.limit)
    test = ImageFolder(list_folder(data / "test", options.limit)[1])
    test_images = torch.stack([image for image, _ in test])  # type: ignore[attr-defined]
    test_labels = torch.tensor([label for _, label in test.files])
    volume = pack(files, classes, data / "train", options.volume or str(options.work / "train.dlfs"))
    steps = -(-len(files) // options.batch_size)

    results: dict[str, list[float]] = {}
    for seed in options.seeds:
        for arm in options.arms:
            if arm == "folder":
                batches = folder_arm(files, options.batch_size, seed)
            else:
                batches = volume_arm(volume, options.batch_size, seed, arm)
            model = train(batches, len(classes), options.epochs, steps, seed, f"{arm}, seed {seed},")
            results.setdefault(arm, []).append(accuracy(model, test_images, test_labels))
            print(f"{arm}, seed {seed}: test accuracy {100 * results[arm][-1]:.2f} %", flush=True)
    report(results)


if __name__ == "__main__":
    main()
