#!/usr/bin/env python3
"""How well orders mix: prints the tables of docs/shuffling.md and draws docs/images/shuffle_quality.png.

Needs numpy and matplotlib. The orders come from tests/order/order_reference.py, which the golden vectors tie to DLFS.
    python3 bench/shuffle_quality.py                          # tables and plot for 60,000 samples
    python3 bench/shuffle_quality.py --samples 600000 --no-plot
"""

import argparse
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "order"))
import order_reference as reference

CLASSES, BATCH, CHUNK, STRETCH = 10, 256, 280, 50  # a chunk of 256 KiB holds about 280 records of 921 bytes


def mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class TabledPermutation(reference.Permutation):
    """The reference's permutation, evaluated by numpy once for all indexes."""

    def __init__(self, n, k):
        super().__init__(n, k)
        if self.table is not None:
            return
        probe = [super(TabledPermutation, self).__call__(x) for x in range(0, n, max(1, n // 3))]
        x = np.arange(n, dtype=np.uint64)
        todo = np.arange(n)
        a, b, half = np.uint64(self.a), np.uint64(self.b), np.uint64(32)
        while todo.size:
            u, v = np.divmod(x[todo], b)
            for even, odd in zip(self.keys[0::2], self.keys[1::2]):
                u = (u + ((mix(v ^ np.uint64(even)) >> half) * a >> half)) % a
                v = (v + ((mix(u ^ np.uint64(odd)) >> half) * b >> half)) % b
            x[todo] = u * b + v
            todo = todo[x[todo] >= n]
        self.table = x.tolist()
        assert self.table[:: max(1, n // 3)] == probe


def shuffle_buffer(stream, size, rng):
    """What a buffer of `size` samples makes of a stream: each arrival replaces a random one, which leaves."""
    buffer, out = list(stream[:size]), []
    choices = rng.integers(0, size, len(stream))
    for arrival, at in zip(stream[size:], choices):
        out.append(buffer[at])
        buffer[at] = arrival
    return np.array(out + list(rng.permutation(buffer)))


def shards(n, count, rng):
    return np.concatenate([np.array_split(np.arange(n), count)[s] for s in rng.permutation(count)])


def chunked(n, epoch, window, placed):
    sizes = [CHUNK] * (n // CHUNK) + ([n % CHUNK] if n % CHUNK else [])
    p = {"mode": "chunk", "seed": 1, "epoch": epoch, "lanes": 240, "window": window, "sizes": sizes}
    return placed[[draw[0] for draw in reference.global_order(p)]]


def full(n, epoch):
    p = {"mode": "full", "seed": 1, "epoch": epoch, "sizes": [n]}
    return np.array([draw[0] for draw in reference.global_order(p)])


def orders(n):
    """Name -> (function of the epoch that gives sample ids, the placement: slot -> id)."""
    sorted_placement = np.arange(n)
    shuffled = np.random.default_rng(1).permutation(n)
    table = {"sequential": (lambda e: np.arange(n), sorted_placement), "full": (lambda e: full(n, e), shuffled)}
    for window in (1, 2, 4, 8):
        table[f"chunk, window {window}"] = (lambda e, w=window: chunked(n, e, w, shuffled), shuffled)
    for window in (1, 2, 4, 8):
        name = f"chunk, window {window}, class-sorted media"
        table[name] = (lambda e, w=window: chunked(n, e, w, sorted_placement), sorted_placement)
    for size in (1000, 10000):
        table[f"buffer of {size:,}"] = (
            lambda e, s=size: shuffle_buffer(np.arange(n), s, np.random.default_rng(e)), sorted_placement)
    for size in (1000, 10000):
        def shard_and_buffer(e, s=size):
            rng = np.random.default_rng(e)
            return shuffle_buffer(shards(n, 100, rng), s, rng)
        table[f"100 shards shuffled, buffer of {size:,}"] = (shard_and_buffer, sorted_placement)
    return table


def class_runs(labels):
    edges = np.flatnonzero(np.diff(labels)) + 1
    return np.diff(np.concatenate([[0], edges, [len(labels)]]))


def mix_chi_square(labels, group):
    """Chi-square a degree of freedom of the class counts of every whole group of `group` labels: 1 is a random draw."""
    whole = labels[: len(labels) // group * group].reshape(-1, group)
    counts = np.stack([(whole == c).sum(axis=1) for c in range(CLASSES)], axis=1)
    expected = group / CLASSES
    return ((counts - expected) ** 2 / expected).sum(axis=1) / (CLASSES - 1)


def measure(order, placement):
    n = len(order)
    labels = order * CLASSES // n
    runs = class_runs(labels)
    distance = np.abs(np.diff(order)) / n
    position = np.empty(n, dtype=np.int64)
    position[order] = np.arange(n)
    apart = np.abs(np.diff(position[placement])) / n  # of samples that are neighbours on the media
    batches = mix_chi_square(labels, BATCH)
    return {
        "run_mean": runs.mean(), "run_max": runs.max(), "distance": np.median(distance), "near": (distance < 0.01).mean(),
        "batch": batches.mean(), "batch_p99": np.quantile(batches, 0.99),
        "stretch": mix_chi_square(labels, BATCH * min(STRETCH, n // BATCH // 4)).mean(), "apart": np.median(apart),
    }


def report(n, epochs, out=sys.stdout):
    print("| order | mean run | longest run | neighbour distance | near | batch mix | p99 | stretch mix | media neighbours apart |",
          file=out)
    print("| --- " * 9 + "|", file=out)
    samples = {}
    for name, (make, placement) in orders(n).items():
        drawn = [make(e) for e in range(epochs)]
        m = [measure(order, placement) for order in drawn]
        v = {key: np.mean([x[key] for x in m]) for key in m[0]}
        v["run_max"] = max(x["run_max"] for x in m)
        print(f"| {name} | {v['run_mean']:.2f} | {v['run_max']:,} | {v['distance']:.4f} | {v['near']:.1%} | {v['batch']:.2f} | "
              f"{v['batch_p99']:.2f} | {v['stretch']:.2f} | {v['apart']:.4f} |", file=out, flush=True)
        samples[name] = (drawn[0], v)
    return samples


def plot(samples, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shown = ["sequential", "buffer of 1,000", "buffer of 10,000", "100 shards shuffled, buffer of 1,000",
             "chunk, window 1, class-sorted media", "chunk, window 1", "full"]
    figure = plt.figure(figsize=(15, 8.5), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=[1, 1.3])
    for axes, name in zip(grid[0].subgridspec(1, len(shown)).subplots(sharey=True), shown):
        order = samples[name][0]
        picked = np.random.default_rng(2).integers(0, len(order), 4000)
        axes.scatter(picked / len(order), order[picked] / len(order), s=1, c=order[picked] * CLASSES // len(order), cmap="tab10")
        axes.set(title=name.replace(", ", ",\n"), xlabel="position in the epoch", xlim=(0, 1), ylim=(0, 1))
        axes.title.set_fontsize(9)
    figure.axes[0].set_ylabel("place in the source (colour: class)")
    left, right = grid[1].subgridspec(1, 2).subplots()
    styles = ["-", "-", "-", "-", "--", ":", "-."]
    for name, style in zip(shown, styles):
        distance = np.sort(np.abs(np.diff(samples[name][0])) / len(samples[name][0]))
        left.plot(np.maximum(distance, 1e-5), np.arange(1, len(distance) + 1) / len(distance), style, label=name)
    left.set(xscale="log", xlabel="distance of neighbours, in the source (share of the data set)", ylabel="share of neighbours",
             title="Neighbour distance (cumulative)")
    left.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.02, 0.98))
    names = list(samples)
    width = 0.4
    rows = np.arange(len(names))
    right.barh(rows - width / 2, [samples[name][1]["batch"] for name in names], width, label="one batch of 256")
    right.barh(rows + width / 2, [samples[name][1]["stretch"] for name in names], width, label=f"{STRETCH} consecutive batches")
    right.set_yticks(rows, names, fontsize=8)
    right.invert_yaxis()
    right.axvline(1, color="black", linewidth=0.8)
    right.set(xscale="log", xlabel="chi-square of the class mix a degree of freedom (1: as a random draw)", title="Class mix")
    right.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=60000, help="class-sorted samples, 10 classes (default 60000)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs that the figures are means of (default 3)")
    parser.add_argument("--no-plot", action="store_true")
    parser.add_argument("--plot", type=pathlib.Path, default=ROOT / "docs" / "images" / "shuffle_quality.png")
    arguments = parser.parse_args()
    reference.Permutation = TabledPermutation
    samples = report(arguments.samples, arguments.epochs)
    if not arguments.no_plot:
        plot(samples, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
