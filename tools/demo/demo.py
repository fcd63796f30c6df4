"""The demo behind `./dev demo`: a real data set, from a folder of files to a trained classifier.

Steps: get images as files in class folders, pack them, list and verify the volume, draw two shuffled epochs, train a small
classifier from the batches, and compare samples/s with reading the same files one by one in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import dlfs

FASHION = Path("/usr/share/datasets/fashion-mnist")
FASHION_CLASSES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot"]
BATCH = 256
SIDE = 28          # images are scaled to SIDE x SIDE grey values for the classifier
HOLD_OUT = 7       # every 7th sample is kept for the test
COMPARE_LIMIT = 70_000
TRAIN_LIMIT = 70_000  # samples a training epoch, so that a huge folder does not make the demo long


class Progress:
    """A bar on a terminal; elsewhere one plain line when done."""

    def __init__(self, label: str, total: int):
        self.label, self.total, self.start, self.drawn = label, max(total, 1), time.monotonic(), 0.0
        self.terminal = sys.stderr.isatty()

    def update(self, done: int) -> None:
        now = time.monotonic()
        if self.terminal and (now - self.drawn > 0.1 or done == self.total):
            filled = 30 * done // self.total
            sys.stderr.write(f"\r  {self.label} [{'#' * filled}{'.' * (30 - filled)}] {done:,}/{self.total:,} ")
            sys.stderr.flush()
            self.drawn = now

    def close(self, note: str = "") -> None:
        elapsed = time.monotonic() - self.start
        if self.terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        print(f"  {self.label}: {elapsed:.1f} s{'; ' + note if note else ''}", flush=True)


def heading(text: str) -> None:
    print(f"\n{text}", flush=True)


# ---- the data ----
def fashion_images() -> Iterator[tuple[str, np.ndarray]]:
    for part in ("train", "t10k"):
        labels = gzip.decompress((FASHION / f"{part}-labels-idx1-ubyte.gz").read_bytes())[8:]
        raw = gzip.decompress((FASHION / f"{part}-images-idx3-ubyte.gz").read_bytes())
        count, rows, columns = struct.unpack(">III", raw[4:16])
        images = np.frombuffer(raw, np.uint8, offset=16).reshape(count, rows, columns)
        for label, image in zip(labels, images):
            yield FASHION_CLASSES[label], image


def digit_images() -> Iterator[tuple[str, np.ndarray]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    for label, image in zip(digits.target, digits.images):
        yield str(label), (image * (255 / 16)).astype(np.uint8)


def write_png_folders(folder: Path) -> Path:
    """Writes the packaged data set as PNG files in class folders, once; returns the folder."""
    if (FASHION / "train-images-idx3-ubyte.gz").exists():
        target, images, total, name = folder / "fashion-mnist", fashion_images(), 70_000, "dataset-fashion-mnist"
    else:
        target, images, total, name = folder / "digits", digit_images(), 1_797, "scikit-learn's handwritten digits"
    if target.is_dir():
        print(f"  {name}: already written to {target}")
        return target
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    bar = Progress(f"{name}, {total:,} PNG files", total)
    for number, (label, image) in enumerate(images):
        path = partial / label / f"{number:05d}.png"
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
        Image.fromarray(image).save(path, compress_level=1)
        bar.update(number + 1)
    partial.rename(target)
    bar.close(str(target))
    return target


# ---- the classifier: one hidden layer, plain NumPy ----
def decode(image: np.ndarray) -> np.ndarray:
    picture = Image.open(io.BytesIO(image)).convert("L")  # a view of DLFS's cache: no copy until Pillow decodes it
    if picture.size != (SIDE, SIDE):
        picture = picture.resize((SIDE, SIDE))
    return np.asarray(picture, np.float32).reshape(-1) / 255.0 - 0.5


class Classifier:
    def __init__(self, classes: int, seed: int, hidden: int = 128):
        rng = np.random.default_rng(seed)
        self.weights = [
            (rng.standard_normal((n, m)) * np.sqrt(2 / n)).astype(np.float32) for n, m in ((SIDE * SIDE, hidden), (hidden, classes))
        ]
        self.biases = [np.zeros(hidden, np.float32), np.zeros(classes, np.float32)]
        self.velocity = [np.zeros_like(p) for p in self.weights + self.biases]

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(x @ self.weights[0] + self.biases[0], 0)
        return hidden, hidden @ self.weights[1] + self.biases[1]

    def step(self, x: np.ndarray, labels: np.ndarray, rate: float) -> None:
        hidden, logits = self.forward(x)
        logits -= logits.max(axis=1, keepdims=True)
        probability = np.exp(logits)
        probability /= probability.sum(axis=1, keepdims=True)
        probability[np.arange(len(labels)), labels] -= 1
        probability /= len(labels)
        back = (probability @ self.weights[1].T) * (hidden > 0)
        gradients = [x.T @ back, hidden.T @ probability, back.sum(axis=0), probability.sum(axis=0)]
        for parameter, velocity, gradient in zip(self.weights + self.biases, self.velocity, gradients):
            velocity *= 0.9
            velocity -= rate * gradient
            parameter += velocity

    def accuracy(self, x: np.ndarray, labels: np.ndarray) -> float:
        return float((self.forward(x)[1].argmax(axis=1) == labels).mean())


def train(volume: dlfs.Volume, epochs: int) -> None:
    model = Classifier(len(volume.classes), seed=1)
    batches = -(-min(len(volume), TRAIN_LIMIT) // BATCH)
    test_ids = np.arange(0, len(volume), HOLD_OUT)[:10_000]
    bar = Progress(f"training, {epochs} epochs of up to {batches * BATCH:,} samples", epochs * batches)
    for epoch in range(epochs):
        for number, batch in enumerate(volume.batches(BATCH, shuffle="chunk", seed=1, epoch=epoch)):
            if number == batches:
                break
            chosen = np.flatnonzero(batch.ids % HOLD_OUT)
            images, labels = batch["image"], batch["label"]
            x = np.stack([decode(images[int(i)]) for i in chosen])
            model.step(x, labels[chosen], rate=0.05 * 0.5**epoch)
            bar.update(epoch * batches + number + 1)
    bar.close()
    right, seen = 0.0, 0
    for start in range(0, len(test_ids), 1000):
        batch = volume.read(test_ids[start : start + 1000])
        x = np.stack([decode(image) for image in batch["image"]])
        right += model.accuracy(x, batch["label"]) * len(batch)
        seen += len(batch)
    print(f"  test accuracy on {seen:,} held-out samples of {len(volume.classes)} classes: {100 * right / seen:.1f} %")


# ---- the checks and the comparison ----
def draw_two_epochs(volume: dlfs.Volume) -> None:
    orders = []
    for epoch in (0, 1):
        bar = Progress(f"epoch {epoch}", len(volume))
        ids, payload = [], 0
        for batch in volume.batches(BATCH, shuffle="chunk", seed=1, epoch=epoch):
            ids.append(np.array(batch.ids))
            payload += sum(len(image) for image in batch["image"])
            bar.update(min(len(ids) * BATCH, len(volume)))
        order = np.concatenate(ids)
        once = len(order) == len(volume) and bool((np.bincount(order, minlength=len(volume)) == 1).all())
        bar.close(f"{len(order):,} samples, {payload:,} bytes, each sample exactly once: {'yes' if once else 'NO'}")
        if not once:
            sys.exit("demo: an epoch did not hold every sample once; please report this")
        orders.append(order)
    same = float((orders[0] == orders[1]).mean())
    print(f"  first ids of epoch 0: {orders[0][:6].tolist()}, of epoch 1: {orders[1][:6].tolist()}; {100 * same:.2f} % in the same place")
    if same > 0.5 and len(volume) > 10:
        sys.exit("demo: the two epochs have the same order; please report this")


def forget(paths: list[bytes]) -> None:
    """Asks the kernel to drop these files from its page cache (works without root for clean pages)."""
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_files(paths: list[bytes], label: str) -> float:
    bar = Progress(label, len(paths))
    start, total = time.perf_counter(), 0
    for number, path in enumerate(paths):
        with open(path, "rb") as file:
            total += len(file.read())
        if number % 512 == 0:
            bar.update(number)
    elapsed = time.perf_counter() - start
    bar.close(f"{total:,} bytes")
    return len(paths) / elapsed


def read_batches(volume: dlfs.Volume, limit: int, label: str) -> tuple[float, float]:
    bar = Progress(label, limit)
    start, total, count = time.perf_counter(), 0, 0
    batches = volume.batches(BATCH, shuffle="chunk", seed=1, epoch=2)
    for batch in batches:
        total += sum(len(image) for image in batch["image"])
        count += len(batch)
        bar.update(min(count, limit))
        if count >= limit:
            break
    elapsed = time.perf_counter() - start
    bar.close(f"{total:,} bytes")
    amplification = batches.stat()["amplification"]
    batches.close()
    return count / elapsed, amplification


def compare(volume: dlfs.Volume, folder: Path) -> None:
    limit = min(len(volume), COMPARE_LIMIT)
    order: list[int] = []
    for batch_ids in volume.order(BATCH, shuffle="chunk", seed=1, epoch=2):
        order += batch_ids.tolist()
        if len(order) >= limit:
            break
    # Names come back as str with undecodable bytes escaped, as os.fsdecode does.
    names = volume.names()
    paths = [os.fsencode(folder) + b"/" + os.fsencode(names[i]) for i in order[:limit]]
    forget(paths)
    cold = read_files(paths, "files one by one, page cache dropped")
    warm = read_files(paths, "files one by one again, from the page cache")
    speed, amplification = read_batches(volume, limit, "DLFS, batches of 256, straight from the device")
    print(f"  files, cold:  {cold:12,.0f} samples/s   (open, read, close of each file in the same order)")
    print(f"  files, warm:  {warm:12,.0f} samples/s   (the same again: the kernel serves them from memory)")
    print(f"  DLFS:         {speed:12,.0f} samples/s   (checksums verified; {amplification:.2f} device bytes a sample byte)")
    print(f"  DLFS is {speed / cold:.1f} times the cold files and {speed / warm:.1f} times the warm ones")


def run(command: list[str], lines: int | None = None) -> None:
    print(f"  $ {' '.join(command)}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"demo: the command failed with exit code {done.returncode}")
    text = done.stdout.decode(errors="replace").splitlines()
    for line in text[:lines]:
        print(f"    {line}")
    if lines is not None and len(text) > lines:
        print(f"    ... {len(text) - lines:,} lines more")


@contextlib.contextmanager
def served(command: str, space: Path) -> Iterator[str]:
    """`dlfs serve` on a free port of loopback, exporting a file; the namespace's URL."""
    with open(space, "wb") as file:
        file.truncate(512 << 20)
    server = subprocess.Popen([command, "serve", "--listen", "127.0.0.1:0", str(space)], stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        if server.stdout.readline().strip() != "ready":
            sys.exit(f"demo: {command} serve did not start (see its message above)")
        print(f"  $ dlfs serve --listen 127.0.0.1:0 {space}\n  {url}", flush=True)
        yield url
    finally:
        server.terminate()
        server.wait()


def over_the_network(command: str, folder: Path, work: Path, epochs: int) -> None:
    """The same job over NVMe/TCP: another process exports a file, this one packs onto it and trains from it."""
    with served(command, work / "served.img") as url:
        run([command, "identify", url], lines=4)
        run([command, "pack", str(folder), url, "--force"])
        run([command, "verify", url])
        volume = dlfs.mount(url)
        rate, _ = read_batches(volume, len(volume), "DLFS over NVMe/TCP")
        print(f"  {rate:,.0f} samples/s over NVMe/TCP on loopback")
        train(volume, epochs)
        del volume


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for the images and the volume")
    parser.add_argument("--dlfs", required=True, help="the dlfs command")
    parser.add_argument("--epochs", type=int, default=2, help="training epochs")
    parser.add_argument("folder", type=Path, nargs="?", help="class folders of images")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    heading("1. The data: images as files in class folders")
    folder = arguments.folder or write_png_folders(arguments.work)
    if not folder.is_dir():
        sys.exit(f"demo: {folder} is not a folder; name one that holds class folders of images")
    print(f"  {folder}")
    path = arguments.work / "demo.dlfs"

    heading("2. Pack them into one volume")
    run([arguments.dlfs, "pack", str(folder), str(path), "--force"])
    heading("3. List and verify it")
    run([arguments.dlfs, "stat", str(path)])
    run([arguments.dlfs, "ls", "-l", str(path)], lines=3)
    run([arguments.dlfs, "verify", str(path)])

    volume = dlfs.mount(str(path))
    heading("4. Two shuffled epochs")
    draw_two_epochs(volume)
    heading("5. Train a classifier from the batches (one hidden layer, NumPy)")
    train(volume, arguments.epochs)
    heading("6. Compare with reading the same files one by one, in the same order")
    compare(volume, folder)
    heading("7. The same job over NVMe/TCP: pack onto a served namespace, verify, read, train")
    over_the_network(arguments.dlfs, folder, arguments.work, 1)
    print(f"\nThe volume stays in {path}: try `{arguments.dlfs} bench {path}`.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except dlfs.Error as error:
        sys.exit(f"demo: {error}")
