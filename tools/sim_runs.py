#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps account of the simulator's runs: each batch a row of docs/simulator-runs.csv, docs/testing.md has their sum.

    sim_runs.py                    prints the sum
    sim_runs.py --add < FILE       adds what `refit-sim --seeds N --json` printed; prints the sum
    sim_runs.py --run SEEDS        runs so many seeds that no batch had yet, adds them; prints the sum

A batch with violations is added as well: they are found bugs, each kept as a scenario. A tree with changes in what the
simulator is made of is no commit, and its batch is refused.
"""

import argparse
import csv
import datetime
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = "docs/simulator-runs.csv"
PAGE = "docs/testing.md"  # has their sum
COLUMNS = ("date", "commit", "from", "runs", "requests", "commits", "steps", "violations", "liveness_failures", "died",
           "unequal", "hash")
SOURCES = ("src/refit", "sim")  # what a trace depends on


def read(root):
    path = root / TABLE
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def row_of(batch, commit, date):
    row = {column: batch[column] for column in COLUMNS if column in batch}
    return {**row, "commit": commit, "date": date}


def append(root, row):
    path = root / TABLE
    new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def sums(rows):
    return {column: sum(int(row[column]) for row in rows) for column in COLUMNS[3:-1]}


def next_seed(rows):
    return max((int(row["from"]) + int(row["runs"]) for row in rows), default=0)


def text_of(rows):
    total = sums(rows)
    failed = ", ".join(f"{total[c]:,} {c.replace('_', ' ')}" for c in COLUMNS[7:-1])
    return (f"{total['runs']:,} runs in {len(rows)} batches: {total['requests']:,} requests, "
            f"{total['commits']:,} commits, {total['steps']:,} steps; {failed}")


def update_page(root, rows):
    page = root / PAGE
    page.write_text(re.sub(r"^(\*\*Runs so far:\*\*).*$", rf"\1 {text_of(rows)}.", page.read_text(), flags=re.M))


def commit_of(root):
    def git(*words):
        return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", *SOURCES)
    if changed:
        sys.exit(f"a batch belongs to a commit, but these files are changed (commit them first):\n{changed}")
    return git("log", "-1", "--format=%h", "--abbrev=12", "--", *SOURCES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--run", type=int, metavar="SEEDS")
    parser.add_argument("--program", default=str(ROOT / "build/bin/refit-sim"))
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    failed = False
    if arguments.add or arguments.run:
        commit = commit_of(ROOT)
        if arguments.run:
            words = [arguments.program, "--json", "--seeds", str(arguments.run), "--from", str(next_seed(read(ROOT)))]
            words += ["--jobs", str(arguments.jobs)] if arguments.jobs else []
            output = subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout
        else:
            output = sys.stdin.read()
        batch = json.loads(output)
        append(ROOT, row_of(batch, commit, date))
        update_page(ROOT, read(ROOT))
        failed = any(batch[column] for column in COLUMNS[7:-1])
        for failure in batch["failures"]:
            print(f"seed {failure['seed']}: {failure['checker']}: {failure['what']}")
    print(text_of(read(ROOT)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
