#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the core with coverage and sanitizers, runs its own tests, prints the line coverage of each pure folder.

    coverage.py BUILD_FOLDER [--least PERCENT] [--lines]

Reads gcov's own JSON, so nothing has to be installed. Exits 1 when a test fails or the share of all pure folders
together is under PERCENT (default 95). --lines also prints the lines that no test reached.
"""

import argparse
import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def core_folders():
    with open(ROOT / "tools/layers.toml", "rb") as file:
        return tomllib.load(file)["core"]


def run_tests(build, folders):
    """Builds and runs the tests of the core; what an earlier run counted is forgotten first."""
    for old in build.rglob("*.gcda"):
        old.unlink()
    command = ["ninja", "-C", str(build), *(f"src/refit/{folder}/all" for folder in folders)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        print(done.stdout[-4000:])
        return folders
    failed = []
    for folder in folders:
        command = ["ctest", "--test-dir", str(build / "src/refit" / folder), "--output-on-failure", "--no-tests=ignore"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            failed.append(folder)
            print(done.stdout + done.stderr)
    return failed


def hits(build, folders):
    """source file -> line -> whether any test reached it."""
    found = collections.defaultdict(dict)
    counted = [str(p.resolve()) for f in folders for p in (build / "src/refit" / f).rglob("*.gcda")]
    if not counted:
        return found
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["gcov", "--json-format", "--preserve-paths", "--hash-filenames", *counted],
                       cwd=scratch, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for report in pathlib.Path(scratch).glob("*.gcov.json.gz"):
            with gzip.open(report, "rt") as file:
                for source in json.load(file)["files"]:
                    for line in source["lines"]:
                        lines = found[source["file"]]
                        lines[line["line_number"]] = lines.get(line["line_number"], False) or line["count"] > 0
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--least", type=float, default=95.0)
    parser.add_argument("--lines", action="store_true")
    arguments = parser.parse_args()
    folders = core_folders()
    failed = run_tests(arguments.build, folders)
    total = collections.Counter()
    by_folder = {folder: collections.Counter() for folder in folders}
    for file, lines in sorted(hits(arguments.build, folders).items()):
        path = pathlib.Path(file)
        if not path.is_relative_to(ROOT / "src/refit") or path.stem.endswith(("_test", "_fuzz")):
            continue
        folder = path.relative_to(ROOT / "src/refit").parts[0]
        if folder not in by_folder:
            continue
        for counter in (by_folder[folder], total):
            counter.update(reached=sum(lines.values()), lines=len(lines))
        missed = [str(number) for number, reached in sorted(lines.items()) if not reached]
        if arguments.lines and missed:
            print(f"{path.relative_to(ROOT)}: not reached: {', '.join(missed)}")
    for folder, counter in by_folder.items():
        if counter["lines"]:
            print(f"  {folder:10} {100 * counter['reached'] / counter['lines']:6.2f} %  of {counter['lines']} lines")
    share = 100 * total["reached"] / total["lines"] if total["lines"] else 0.0
    print(f"line coverage of the pure folders: {share:.2f} % of {total['lines']} lines"
          f" (at least {arguments.least:g} %)")
    if failed:
        print(f"coverage: failed in {', '.join(failed)} (see above)")
    return 1 if failed or share < arguments.least else 0


if __name__ == "__main__":
    sys.exit(main())
