#!/usr/bin/env python3
"""Counts the instructions of fixed small workloads (build/release/bin/guard, under callgrind) and compares them with
bench/guard.json: more than 5 % over is a failure. The clock has no say. `./dev bench --guard` runs this.

    bench/guard.py [--update] [--binary build/release/bin/guard] [--counts bench/guard.json]

Counts hold for one compiler; where none are on record for the compiler at hand it says so and passes. After a change
that is worth its instructions, or that saves some: --update, and commit the file.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 1.05


def output_of(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def count(binary: pathlib.Path, workload: str) -> int:
    """Instructions inside the workload's counted_ function, those of the libraries it calls included."""
    with tempfile.TemporaryDirectory() as scratch:
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={scratch}/out", "--collect-atstart=no",
                               "--toggle-collect=counted_*", binary, workload], capture_output=True, text=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None or int(found.group(1)) == 0:
        sys.exit(f"guard: {binary} {workload} could not be counted:\n{done.stdout}{done.stderr}")
    return int(found.group(1))


def compare(now: dict, before: dict) -> list[str]:
    """Prints a line a workload; returns those that are over the limit, or that no count is on record for."""
    over = []
    for name, instructions in now.items():
        if name not in before:
            print(f"{name:12} {instructions:>12,} instructions, none on record")
            over.append(name)
            continue
        ratio = instructions / before[name]
        print(f"{name:12} {instructions:>12,} instructions, {ratio:.3f} of the {before[name]:,} on record")
        if ratio > LIMIT:
            over.append(name)
    return over


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, default=HERE.parent / "build/release/bin/guard")
    parser.add_argument("--counts", type=pathlib.Path, default=HERE / "guard.json")
    parser.add_argument("--update", action="store_true", help="put today's counts on record")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("guard: SKIPPED, valgrind is not installed (apt-get install valgrind)", file=sys.stderr)
        return 0
    compiler = output_of(arguments.binary, "--compiler").strip()
    records = json.loads(arguments.counts.read_text()) if arguments.counts.exists() else {}
    if compiler not in records and not arguments.update:
        print(f"guard: SKIPPED, no counts for {compiler} are on record (bench/guard.py --update makes them)", file=sys.stderr)
        return 0
    now = {name: count(arguments.binary, name) for name in output_of(arguments.binary).split()}
    over = compare(now, records.get(compiler, {}))
    if arguments.update:
        arguments.counts.write_text(json.dumps({**records, compiler: now}, indent=2) + "\n")
        return 0
    if over:
        print(f"guard: {', '.join(over)}: more than {LIMIT - 1:.0%} over the record. If the change is worth it: bench/guard.py --update",
              file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
