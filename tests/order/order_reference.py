#!/usr/bin/env python3
"""Epoch orders computed a second time, from docs/shuffling.md alone and without any DLFS code.

`order_reference.py --write` regenerates tests/golden/order_vectors.txt; without arguments it compares.
"""

import argparse
import itertools
import math
import pathlib
import sys

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
KEY_DOMAIN = int.from_bytes(b"DLFS-ord", "big")
PERMUTATION_DOMAIN = int.from_bytes(b"permutat", "big")
SAMPLES, UNITS, WINDOW, LANES = 1, 2, 3, 4
VECTORS = pathlib.Path(__file__).resolve().parent.parent / "golden" / "order_vectors.txt"


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key(seed, epoch, purpose, lane=0, window=0):
    state = KEY_DOMAIN
    for word in (seed, epoch, purpose, lane, window):
        state = mix(((state ^ word) + GOLDEN) & MASK)
    return state


class Permutation:
    def __init__(self, n, k):
        self.n = n
        state = mix(k ^ PERMUTATION_DOMAIN)
        if n <= 16:
            self.table = list(range(n))
            for i in range(n - 1, 0, -1):
                j = mix((state + i * GOLDEN) & MASK) * (i + 1) >> 64
                self.table[i], self.table[j] = self.table[j], self.table[i]
            return
        self.table = None
        self.a = math.isqrt(n - 1) + 1
        self.a += self.a & 1
        self.b = -(-n // self.a)
        self.keys = [mix((state + (i + 1) * GOLDEN) & MASK) for i in range(12)]

    def __call__(self, x):
        if self.table is not None:
            return self.table[x]
        while True:
            u, v = divmod(x, self.b)
            for even, odd in zip(self.keys[0::2], self.keys[1::2]):
                u = (u + ((mix(v ^ even) >> 32) * self.a >> 32)) % self.a
                v = (v + ((mix(u ^ odd) >> 32) * self.b >> 32)) % self.b
            x = u * self.b + v
            if x < self.n:
                return x


def lane_bounds(n, lanes, seed, epoch):
    """For every lane the part of the sequence that it draws, as (begin, end)."""
    part_of = Permutation(lanes, key(seed, epoch, LANES))
    bounds, begin = [None] * lanes, 0
    for lane in sorted(range(lanes), key=part_of):
        end = begin + n // lanes + (1 if lane < n % lanes else 0)
        bounds[lane] = (begin, end)
        begin = end
    return bounds


def lane_orders(sizes, seed, epoch, lanes, window):
    """For every lane its draws in order, each (slot, piece_begin, piece_end, unit)."""
    n = sum(sizes)
    first_slot = list(itertools.accumulate(sizes, initial=0))
    permuted = Permutation(len(sizes), key(seed, epoch, UNITS))
    sequence = [permuted(ordinal) for ordinal in range(len(sizes))]
    before = list(itertools.accumulate((sizes[unit] for unit in sequence), initial=0))
    orders = []
    for lane, (begin, end) in enumerate(lane_bounds(n, lanes, seed, epoch)):
        held = [o for o in range(len(sizes)) if before[o] < end and before[o + 1] > begin]
        draws = []
        if begin < end:
            # From the first to the last ordinal that holds samples of the lane; units without samples between them count.
            ordinals = list(range(held[0], held[-1] + 1))
            fraction = lane * 0x9E3779B9 % 2**32
            cuts = [0, 1 + (fraction * window >> 32)]
            while cuts[-1] < len(ordinals):
                cuts.append(cuts[-1] + window)
            for number, (lo, hi) in enumerate(zip(cuts, cuts[1:])):
                slots = []
                for o in ordinals[lo:hi]:
                    base = first_slot[sequence[o]] - before[o]
                    piece = (base + max(begin, before[o]), base + min(end, before[o + 1]), sequence[o])
                    slots += [(slot, *piece) for slot in range(piece[0], piece[1])]
                if slots:
                    shuffle = Permutation(len(slots), key(seed, epoch, WINDOW, lane, number))
                    draws += [slots[shuffle(i)] for i in range(len(slots))]
        orders.append(draws)
    return orders


def global_order(p):
    """Positions 0 to n - 1, each (index, piece_begin, piece_end, unit)."""
    n = sum(p["sizes"])
    if p["mode"] == "sequential":
        return [(i, 0, 0, 0) for i in range(n)]
    if p["mode"] == "full":
        permutation = Permutation(n, key(p["seed"], p["epoch"], SAMPLES))
        return [(permutation(i), 0, 0, 0) for i in range(n)]
    lanes = lane_orders(p["sizes"], p["seed"], p["epoch"], p["lanes"], p["window"])
    return [lanes[position % p["lanes"]][position // p["lanes"]] for position in range(n)]


def shares(p, rank, ranks):
    """The batches of one rank."""
    order = global_order(p)
    n, size = len(order), p["batch"]
    total = {"drop": n // size * size, "short": n, "pad": -(-n // size) * size}[p["tail"]]
    batches = []
    for begin in range(0, total, size):
        draws = []
        for position in range(begin, min(begin + size, total)):
            if position % ranks != rank:
                continue
            index, piece_begin, piece_end, unit = order[position % n]
            if position >= n and p["mode"] == "chunk":
                piece_begin, piece_end = index, index + 1
            draws.append((index, piece_begin, piece_end, unit))
        batches.append(draws)
    return batches


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def saved_position(volume, p, next_batch):
    fields = [(b"DLFP"), (1).to_bytes(2, "little")]
    fields += [bytes([["sequential", "full", "chunk"].index(p["mode"]), ["drop", "short", "pad"].index(p["tail"])])]
    fields += [value.to_bytes(8, "little") for value in (volume, p["seed"], p["epoch"], next_batch)]
    fields += [p[name].to_bytes(4, "little") for name in ("batch", "lanes", "window")]
    fields += [bytes(8)]
    body = b"".join(fields)
    return body + crc32c(body).to_bytes(4, "little")


def key_lines():
    top = 2**64 - 1
    for words in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (1, 1, 2), (1, 1, 3, 2, 5), (top, top, 3, 65535, top), (2**63, 7, 2)]:
        words = words + (0,) * (5 - len(words))
        yield f"key {' '.join(map(str, words))} : {key(*words)}"


def permutation_lines():
    for n in (1, 2, 3, 5, 8, 15, 16, 17, 18, 25, 36, 63, 100):
        for k in (0, 1, 2**64 - 1):
            permutation = Permutation(n, k)
            yield f"permutation {n} {k} 0 1 : {' '.join(str(permutation(i)) for i in range(n))}"
    for n in (280, 65535, 65536, 65537, 1000003, 999999999, 2**32 - 1, 2**32):
        k = key(n, 3, SAMPLES)
        permutation = Permutation(n, k)
        for first, stride in ((0, 1), (0, n // 12), (n - 12, 1)):
            yield f"permutation {n} {k} {first} {stride} : {' '.join(str(permutation(first + i * stride)) for i in range(12))}"


def epochs():
    uneven = [(u * 7919 + 13) % 9 for u in range(90)]  # from 0 to 8 samples
    base = {"seed": 1, "epoch": 0, "lanes": 6, "window": 1, "batch": 12, "tail": "short", "sizes": uneven}
    yield base | {"mode": "sequential"}
    yield base | {"mode": "full", "tail": "drop"}
    yield base | {"mode": "full", "tail": "pad", "epoch": 1}
    for window, tail in ((1, "short"), (2, "drop"), (4, "pad"), (1000, "short")):
        yield base | {"mode": "chunk", "window": window, "tail": tail, "epoch": window}
    yield base | {"mode": "chunk", "seed": 2**64 - 1, "epoch": 2**64 - 1, "window": 3, "lanes": 24}
    yield base | {"mode": "chunk", "sizes": [5, 1, 40, 1, 1], "lanes": 24, "window": 2, "tail": "pad"}
    yield base | {"mode": "chunk", "sizes": [1], "lanes": 240, "tail": "pad"}
    yield base | {"mode": "chunk", "sizes": [25] * 80, "lanes": 12, "window": 4, "batch": 60}


def epoch_lines():
    for p in epochs():
        ranks_drawn = [(0, 1), (0, 2), (1, 2), (2, 3)] if p["mode"] == "chunk" and sum(p["sizes"]) < 500 else [(0, 1)]
        for rank, ranks in ranks_drawn:
            words = [p["mode"], p["tail"], p["seed"], p["epoch"], p["batch"], rank, ranks, p["lanes"], p["window"]]
            yield f"epoch {' '.join(map(str, words))} sizes {' '.join(map(str, p['sizes']))}"
            for draws in shares(p, rank, ranks):
                yield "batch " + " ".join(f"{i}" if p["mode"] != "chunk" else f"{i}/{b}-{e}@{u}" for i, b, e, u in draws)
        yield f"position 81985529216486895 3 : {saved_position(81985529216486895, p, 3).hex()}"


def text():
    header = [
        "# Golden vectors of epoch orders. Computed by tests/order/order_reference.py --write, which follows docs/shuffling.md",
        "# and shares no code with DLFS; read by tests/unit/order/golden_test.cc. A change here is a change of every order.",
        "# key SEED EPOCH PURPOSE LANE WINDOW : KEY",
        "# permutation N KEY FIRST STRIDE : VALUES",
        "# epoch MODE TAIL SEED EPOCH BATCH RANK RANKS LANES WINDOW sizes UNIT_SIZES, then a line a batch of the rank's share:",
        "# batch INDEX, in chunk mode SLOT/PIECE_BEGIN-PIECE_END@UNIT",
        "# position VOLUME NEXT_BATCH : the saved form, in hexadecimal, of the epoch above",
    ]
    return "\n".join(itertools.chain(header, key_lines(), permutation_lines(), epoch_lines())) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the vectors instead of comparing them")
    parser.add_argument("--file", type=pathlib.Path, default=VECTORS)
    arguments = parser.parse_args()
    if arguments.write:
        arguments.file.write_text(text())
        return 0
    same = arguments.file.read_text() == text()
    print(f"{arguments.file}: {'as computed' if same else 'DIFFERS from what the specification gives'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
