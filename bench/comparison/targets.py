"""The table of what must be reached: ratios within one round, and their medians over the rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
Row = dict[str, Any]


def row(what: str, wanted: str, values: list[float], reached: Callable[[float], bool], text: str = "{:.2f} times", detail: str = "") -> Row:
    """A line of the table; not measured where there are no values."""
    if not values:
        return {"what": what, "wanted": wanted, "measured": "not measured", "ratio": None, "reached": None, "detail": detail}
    middle = median(values)
    spread = f" ({text.format(min(values))} to {text.format(max(values))})" if len(values) > 1 else ""
    return {"what": what, "wanted": wanted, "measured": text.format(middle) + spread, "ratio": middle, "reached": bool(reached(middle)), "detail": detail}


class Figures:
    """Look-ups in a run's results."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results
        self.sets = {each["name"]: each for each in results["sets"]}
        self.peers = {each["key"]: each for each in results["peers"]}
        self.rounds = range(results["rounds"])

    def value(self, set_name: str, peer: str, state: str, number: int, field: str = "samples_per_s") -> float | None:
        """The median of a round's measurements of one peer."""
        found = [
            run[field] for run in self.results["runs"]
            if (run["set"], run["peer"], run["state"], run["round"]) == (set_name, peer, state, number)
        ]  # fmt: skip
        return median(found) if found else None

    def middle(self, set_name: str, peer: str, state: str, field: str = "samples_per_s") -> list[float]:
        """One value a round."""
        values = [self.value(set_name, peer, state, number, field) for number in self.rounds]
        return [value for value in values if value is not None]

    def native(self, set_name: str, mode: str, number: int, field: str) -> float | None:
        found = [each[field] for each in self.results["native"] if (each["set"], each["mode"], each["round"]) == (set_name, mode, number)]
        return median(found) if found else None

    def raw_bytes_per_s(self, set_name: str, number: int) -> float | None:
        """The device's bandwidth for random 256 KiB reads in a round: the better tool at the depth that every round has."""
        found = [
            each["bytes_per_s"] for each in self.results["device"]
            if (each["set"], each["round"], each["size_bytes"], each["depth"]) == (set_name, number, 256 * KIB, 32)
        ]  # fmt: skip
        return max(found) if found else None

    def best_other(self, set_name: str, state: str, number: int, bounds: bool) -> str | None:
        """The fastest peer that is not DLFS in one round."""
        rates = {
            key: self.value(set_name, key, state, number) or 0.0 for key, peer in self.peers.items()
            if not key.startswith("dlfs") and (bounds or not peer["bound"])
        }  # fmt: skip
        best = max(rates, key=lambda key: rates[key], default=None)
        return best if best is not None and rates[best] > 0 else None

    def ours(self, set_name: str, mode: str, state: str) -> str:
        """The variant of DLFS that a user has: where the data set fits in memory (warm), with that much cache_bytes."""
        resident = f"dlfs-{mode}-resident"
        return resident if state == "warm" and self.middle(set_name, resident, state) else f"dlfs-{mode}"

    def between(self, least: float, most: float) -> list[str]:
        return [name for name, each in self.sets.items() if least <= each["mean_bytes"] <= most]


def ratios(figures: Figures, above: Callable[[int], float | None], below: Callable[[int], float | None]) -> list[float]:
    """above / below of every round that has both."""
    pairs = [(above(number), below(number)) for number in figures.rounds]
    return [a / b for a, b in pairs if a is not None and b]


def evaluate(results: dict[str, Any]) -> list[Row]:
    """All lines, in the order of the list that was set."""
    figures = Figures(results)
    table: list[Row] = []
    for name in figures.between(0, KIB):
        table += _of_the_device(figures, name, "chunk", 0.85)
    for name in figures.between(0, KIB):
        table += _against_peers(figures, name) + _against_files(figures, name)
    table += _guest(results.get("guest"))
    for name in figures.between(100 * KIB, MIB):
        table += _of_the_device(figures, name, "chunk", 0.95) + _of_the_device(figures, name, "full", 0.95)
        table += _no_peer_ahead(figures, name)
    for name in figures.between(0, 4 * KIB):
        table += _python(figures, name)
    table += _memory(figures)
    return table + results["engine"]


def _title(figures: Figures, name: str) -> str:
    return figures.sets[name]["title"]


def _of_the_device(figures: Figures, name: str, mode: str, least: float) -> list[Row]:
    values = ratios(figures, lambda n: figures.native(name, mode, n, "bytes_per_s"), lambda n: figures.raw_bytes_per_s(name, n))
    detail = "`dlfs bench`, cold, over the better of fio and `dlfs bench device`: 256 KiB random reads of the same file at depth 32"
    what = f"{_title(figures, name)}, {mode}: payload bytes/s of the raw device"
    return [row(what, f"at least {least:.0%}", values, lambda ratio: ratio >= least, "{:.0%}", detail)]


def _against_peers(figures: Figures, name: str) -> list[Row]:
    rows = []
    for state in ("warm", "cold"):
        ours = figures.ours(name, "chunk", state)
        for bounds in (False, True):
            others = {number: figures.best_other(name, state, number, bounds) for number in figures.rounds}
            if bounds and not any(other and figures.peers[other]["bound"] for other in others.values()):
                continue  # the bound is not there, or is not ahead of the others

            def theirs(number: int, field: str, others: dict[int, str | None] = others, state: str = state) -> float | None:
                other = others[number]
                return figures.value(name, other, state, number, field) if other else None

            def of_us(number: int, field: str, ours: str = ours, state: str = state) -> float | None:
                return figures.value(name, ours, state, number, field)

            rate = ratios(figures, lambda n: of_us(n, "samples_per_s"), lambda n: theirs(n, "samples_per_s"))
            cpu = ratios(figures, lambda n: of_us(n, "cpu_s_per_million"), lambda n: theirs(n, "cpu_s_per_million"))
            who = ", ".join(sorted({figures.peers[other]["name"] for other in others.values() if other}))
            against = f"the upper bound ({who})" if bounds else f"the best peer ({who})"
            detail = f"{figures.peers[ours]['name']} in Python" if ours in figures.peers else ""
            what = f"{_title(figures, name)}, {state}: samples/s against {against}"
            lines = [
                row(what, "at least 3 times", rate, lambda ratio: ratio >= 3, detail=detail),
                row(what.replace("samples/s", "CPU per sample"), "at most a third", cpu, lambda ratio: ratio <= 1 / 3, detail=detail),
            ]
            if bounds:  # for information: an upper bound is not something to train from
                for line in lines:
                    line["wanted"], line["reached"] = "for information", None
            rows += lines
    return rows


def _against_files(figures: Figures, name: str) -> list[Row]:
    rows = []
    for state, least in (("cold", 40), ("warm", 8)):
        ours = figures.ours(name, "chunk", state)
        values = ratios(
            figures, lambda n, o=ours, s=state: figures.value(name, o, s, n), lambda n, s=state: figures.value(name, "files", s, n)
        )
        what = f"{_title(figures, name)}, {state}: samples/s against one file a sample, plain loop"
        rows.append(row(what, f"at least {least} times", values, lambda ratio, least=least: ratio >= least, "{:.1f} times"))
    return rows


def _no_peer_ahead(figures: Figures, name: str) -> list[Row]:
    rows = []
    for state in ("cold", "warm"):
        ours = [figures.ours(name, mode, state) for mode in ("chunk", "full")]

        def best_of_us(number: int, ours: list[str] = ours, state: str = state) -> float | None:
            return max((value for key in ours if (value := figures.value(name, key, state, number))), default=None)

        def best_other(number: int, state: str = state) -> float | None:
            other = figures.best_other(name, state, number, bounds=False)
            return figures.value(name, other, state, number) if other else None

        names = {o for n in figures.rounds if (o := figures.best_other(name, state, n, False))}
        who = ", ".join(sorted(figures.peers[o]["name"] for o in names))
        what = f"{_title(figures, name)}, {state}: samples/s against the best peer ({who})"
        rows.append(row(what, "no peer ahead", ratios(figures, best_of_us, best_other), lambda ratio: ratio >= 1))
    return rows


def _python(figures: Figures, name: str) -> list[Row]:
    values = ratios(figures, lambda n: figures.value(name, "dlfs-chunk", "cold", n), lambda n: figures.native(name, "chunk", n, "samples_per_s"))
    what = f"{_title(figures, name)}, chunk, cold: Python batches (a view a sample) over C++"
    return [row(what, "at least 90%", values, lambda ratio: ratio >= 0.9, "{:.0%}", "`dlfs bench` in the same round")]


def _memory(figures: Figures) -> list[Row]:
    """What a run of DLFS with the default cache took more than it had before it opened, less cache and directory."""
    extra = [
        (run["peak_memory_bytes"] - run["memory_before_bytes"] - 256 * MIB - 16 * figures.sets[run["set"]]["samples"]) / MIB
        for run in figures.results["runs"]
        # Only where the data set is far larger than the cache, which is all in use then.
        if run["peer"] in ("dlfs-chunk", "dlfs-full") and run["state"] == "cold" and figures.sets[run["set"]]["bytes"] >= 768 * MIB
        and figures.sets[run["set"]]["mean_bytes"] <= 30 * KIB  # with larger samples the default is more than 256 MiB
    ]  # fmt: skip
    return [row("memory beyond cache_bytes and directory, Python process", "under 32 MiB", [max(extra)] if extra else [], lambda mib: mib < 32, "{:.0f} MiB")]


def _guest(guest: dict[str, Any] | None) -> list[Row]:
    """Ext4 over kernel NVMe/TCP in a virtual machine against DLFS in the same one; its rows hold a list of repetitions."""
    rows = []
    for mode, least in (("chunk", 20), ("full", 3)):
        values: list[float] = []
        for size in sorted({each["sample_bytes"] for each in _rows_of(guest, f"dlfs {mode}")}):
            ours, theirs = _best_of(guest, f"dlfs {mode}", size), _best_of(guest, "ext4 files", size)
            if ours and theirs and 512 <= size <= 4 * KIB:
                values += [a / b for a, b in zip(ours["samples_per_s"], theirs["samples_per_s"]) if b]
        what = f"512 B to 4 KiB, {mode}: samples/s against Ext4 over kernel NVMe/TCP in the guest, one file a sample"
        rows.append(row(what, f"at least {least} times", values, lambda ratio, least=least: ratio >= least, "{:.1f} times"))
    return rows


def _best_of(guest: dict[str, Any] | None, reader: str, size: int) -> Row | None:
    """The reader's best number of queues for samples of a size."""
    rows = [each for each in _rows_of(guest, reader) if each["sample_bytes"] == size]
    return max(rows, key=lambda each: median(each["samples_per_s"]), default=None)


def _rows_of(guest: dict[str, Any] | None, reader: str) -> Iterable[Row]:
    return [each for each in (guest or {}).get("rows", []) if each["reader"] == reader and each["samples_per_s"]]
