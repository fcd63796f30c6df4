#!/usr/bin/env python3
"""Compares DLFS with what a user could pick instead, on the same bytes, in one run, and writes a report.

`./dev bench` installs what this needs and runs it; see --help for the options.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from comparison import engine, environment, measure, plan as plans, report, targets  # noqa: E402
from comparison.dataset import SetSpec  # noqa: E402
from comparison.rounds import run_set, say  # noqa: E402
from peers import all_peers  # noqa: E402

EXAMPLE = """examples:
  bench/compare.py --quick                                   about five minutes, small sets
  bench/compare.py --sets 512B,4KiB --rounds 5               two data sets, more rounds
  bench/compare.py --peers dlfs-chunk,files,lmdb --sets jpeg
  bench/compare.py --report build/bench/compare.json         writes the report anew from figures taken before

The page cache is dropped before every cold measurement when run as root; otherwise the files' pages are.
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sets, one round: a report in about five minutes, with figures to match")
    parser.add_argument("--sets", help=f"data sets, from {', '.join(plans.known_sets(1 << 30, False))} (default: all; --quick: {', '.join(plans.QUICK_SETS)})")
    parser.add_argument("--peers", help=f"peers, from {', '.join(all_peers())} (default: all)")
    parser.add_argument("--parts", help="what to measure, from peers, device, ranks, open, engine (default: all)")
    parser.add_argument("--rounds", type=int, help="interleaved repetitions (default: 3; --quick: 1)")
    parser.add_argument("--seconds", type=float, help="the most that one measurement takes; slower peers draw part of an epoch (default: 2; --quick: 0.5)")
    parser.add_argument("--set-mib", type=int, help="the most that one data set takes, in MiB (default: 1024; --quick: 128)")
    parser.add_argument("--most-samples", type=int, help="the most samples of a data set (default: 1048576; --quick: 100000)")
    parser.add_argument("--opening-samples", type=int, help="samples of the set that is only opened (default: 1000000; --quick: 50000)")
    parser.add_argument("--work", type=Path, default=plans.ROOT / "build/bench/work", help="where the data sets lie: on the device to measure (default: build/bench/work)")
    parser.add_argument("--out", type=Path, default=plans.ROOT / "build/bench", help="where compare.json and report.html go (default: build/bench)")
    parser.add_argument("--dlfs", type=Path, default=plans.ROOT / "build/release/bin/dlfs", help="the dlfs command (default: build/release/bin/dlfs)")
    parser.add_argument("--keep", action="store_true", help="keep the data sets and layouts, and use those that are there")
    parser.add_argument("--keep-cache", action="store_true", help="do not drop the page cache: the cold figures are not cold then")
    parser.add_argument("--report", type=Path, metavar="JSON", help="measure nothing: write the report from this file")
    return parser.parse_args()


def choose(text: str | None, known: list[str], default: list[str], what: str) -> list[str]:
    if text is None:
        return default
    chosen = [each.strip() for each in text.split(",") if each.strip()]
    for each in chosen:
        if each not in known:
            sys.exit(f"compare: there is no {what} '{each}': choose from {', '.join(known)}")
    return chosen


def make_plan(arguments: argparse.Namespace) -> plans.Plan:
    quick = arguments.quick
    set_bytes = arguments.set_mib * (1 << 20) if arguments.set_mib else plans.QUICK_BYTES if quick else plans.FULL_BYTES
    sets = plans.known_sets(set_bytes, quick, arguments.most_samples)
    names = choose(arguments.sets, list(sets), list(plans.QUICK_SETS) if quick else list(sets), "data set")
    every = list(all_peers())
    usual = [key for key in every if not (quick and key in plans.QUICK_LEAVES_OUT)]
    parts = plans.Plan.parts
    plan = plans.Plan(
        work=arguments.work.resolve(),
        out=arguments.out.resolve(),
        dlfs=arguments.dlfs.resolve(),
        sets=[sets[name] for name in names],
        peers=choose(arguments.peers, every, usual, "peer"),
        rounds=arguments.rounds or (1 if quick else 3),
        seconds=arguments.seconds or (0.5 if quick else 2.0),
        opening_samples=arguments.opening_samples or (50_000 if quick else 1_000_000),
        quick=quick,
        archive=plans.find_archive(),
        keep=arguments.keep,
        keep_cache=arguments.keep_cache,
        parts=tuple(choose(arguments.parts, list(parts), list(parts), "part")),
    )
    if plan.archive is None and "jpeg" in names:
        plan.sets = [each for each in plan.sets if each.name != "jpeg"]
        plan.skipped.append("the real JPEG files are SKIPPED: cifar10-images.tar.xz is neither in DLFS_TEST_DATA nor in ../shared/data")
        say(f"compare: {plan.skipped[-1]}")
    return plan


def check_space(plan: plans.Plan) -> None:
    plan.work.mkdir(parents=True, exist_ok=True)
    largest = max((spec.count * max(spec.size_bytes, 110 << 10 if spec.size_bytes == 0 else 921) for spec in plan.sets), default=0)
    needed, free = 14 * largest + (1 << 30), shutil.disk_usage(plan.work).free
    if free < needed:
        sys.exit(f"compare: {plan.work} has {free >> 30} GiB free, and about {needed >> 30} GiB are needed: make room, or give --work or a smaller --set-mib")
    if not plan.dlfs.is_file():
        sys.exit(f"compare: {plan.dlfs} is not there: run ./dev build, or give --dlfs")


def describe_peers(plan: plans.Plan) -> list[dict[str, Any]]:
    """Who takes part, and who cannot. A package that is there and does not import is found out later, by no_figures()."""
    rows = []
    for key in plan.peers:
        peer = all_peers()[key]
        absent = [name for name in (module.partition(".")[0] for module in peer.modules) if importlib.util.find_spec(name) is None]
        why = f"the Python package {absent[0]} is not installed" if absent else None
        rows.append({
            "key": key, "name": peer.name, "shuffle": peer.shuffle, "mixing": peer.mixing, "bound": peer.bound, "measured": why is None,
            "why_not": why, "versions": ", ".join(peer.requirements) if why else peer.versions(), "most_samples": peer.most_samples,
        })  # fmt: skip
        if why:
            say(f"compare: {peer.name} is not measured: {why}")
    return rows


def no_figures(results: dict[str, Any]) -> None:
    """Peers of which nothing could be measured are listed with the first reason."""
    for peer in results["peers"]:
        failures = [each["why"] for each in results["failures"] if each["peer"] == peer["key"]]
        if failures and not any(run["peer"] == peer["key"] for run in results["runs"] + results["opening"]):
            peer["measured"], peer["why_not"] = False, failures[0]


def run(plan: plans.Plan) -> dict[str, Any]:
    begin = time.time()
    results: dict[str, Any] = {
        "version": 1, "started": time.strftime("%Y-%m-%d %H:%M:%S %Z"), "quick": plan.quick, "command": " ".join(["bench/compare.py", *sys.argv[1:]]),
        "batch": plan.batch, "rounds": plan.rounds, "seconds": plan.seconds, "cache": "not dropped: these figures are not cold" if plan.keep_cache else measure.cache_method(),
        "environment": environment.describe(plan.work, plan.dlfs, plans.ROOT), "peers": describe_peers(plan),
        "sets": [], "runs": [], "checks": [], "device": [], "native": [], "ranks": [], "opening": [], "engine": [],
        "failures": [], "notes": list(plan.skipped),
    }  # fmt: skip
    plan.peers = [peer["key"] for peer in results["peers"] if peer["measured"]]
    for spec in plan.sets:
        run_set(plan, spec, results)
        save(plan, results)
    if "open" in plan.parts:
        opening = SetSpec("opening", f"opening {plan.opening_samples:,} samples of 128 B", 128, plan.opening_samples)
        sets = len(results["sets"])
        run_set(plan, opening, results, opening=True)
        del results["sets"][sets:]
    if "engine" in plan.parts:
        say("== DLFS by itself: a fast device, verification, pacing, stacking, mounting")
        results["engine"] = engine.Probes(plan, results["notes"]).rows()
    results["took_s"] = time.time() - begin
    return results


def save(plan: plans.Plan, results: dict[str, Any]) -> None:
    plan.out.mkdir(parents=True, exist_ok=True)
    (plan.out / "compare.json").write_text(json.dumps(results, indent=1) + "\n")


def finish(results: dict[str, Any], out: Path) -> int:
    """Targets, report, and the exit code: 1 when a peer did not deliver the same bytes."""
    guest = out / "guest.json"
    results["guest"] = json.loads(guest.read_text()) if guest.exists() else results.get("guest")
    no_figures(results)
    results["targets"] = targets.evaluate(results)
    (out / "compare.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "report.html").write_text(report.page(results), encoding="utf-8")
    for row in results["targets"]:
        verdict = {True: "reached", False: "NOT REACHED", None: "not measured"}[row["reached"]]
        say(f"{verdict:>12}  {row['what']}: {row['measured']} (wanted: {row['wanted']})")
    say(f"report: {out / 'report.html'}, figures: {out / 'compare.json'}")
    wrong = [check for check in results["checks"] if not check["ok"]]
    for check in wrong:
        say(f"compare: {check['peer']} on {check['set']} delivered {check['samples']} samples, {check['distinct']} distinct, "
            f"checksum {check['checksum']}; expected {check['expected_samples']}, {check['expected_distinct']}, {check['expected_checksum']}")  # fmt: skip
    return 1 if wrong else 0


def main() -> int:
    arguments = parse()
    if arguments.report:
        return finish(json.loads(arguments.report.read_text()), arguments.report.resolve().parent)
    plan = make_plan(arguments)
    check_space(plan)
    results = run(plan)
    save(plan, results)
    return finish(results, plan.out)


if __name__ == "__main__":
    sys.exit(main())
