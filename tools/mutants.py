#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the planted bugs: each must turn a test red (RC-TEST-01).

    mutants.py --check            only compares the tables with the code
    mutants.py --programs         prints the test programs that the tables name
    mutants.py BUILD_FOLDER       runs every mutant of a build with REFIT_MUTANTS=ON

The tables are tests/mutants/*.txt, a line each: `<id> <test-program> <gtest-filter>`, or `owed <id> <reason>` for a
mutation whose subject does not exist yet. Every REFIT_MUTANT("<id>", …) in the code stands in exactly one line, and no
line without one. A test that fails, crashes or is still running after its limit has noticed the bug.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 20  # of one mutant; tests that find theirs take milliseconds
PLANTED = re.compile(r'\bREFIT_MUTANT\(\s*"([^"]+)"')


def read_tables(root):
    """rows: [(id, program, filter)], owed: [(id, reason)], problems: [text]."""
    rows, owed, problems = [], [], []
    for file in sorted((root / "tests/mutants").glob("*.txt")):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if words[0] == "owed" and len(words) >= 3:
                owed.append((words[1], " ".join(words[2:])))
            elif words[0] != "owed" and len(words) == 3:
                rows.append(tuple(words))
            else:
                problems.append(f"{file.relative_to(root)}:{number}: cannot read '{line}' "
                                "(write '<id> <test-program> <gtest-filter>' or 'owed <id> <reason>')")
    return rows, owed, problems


def planted(root):
    """id -> the files that plant it. The macro's own header does not count."""
    found = {}
    for folder in ("src", "tests"):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in {".h", ".cc"} and file.name != "mutant.h":
                for match in PLANTED.finditer(file.read_text()):
                    found.setdefault(match.group(1), []).append(str(file.relative_to(root)))
    return found


def check(root):
    rows, owed, problems = read_tables(root)
    code = planted(root)
    listed = [row[0] for row in rows]
    everything = listed + [name for name, _ in owed]
    for name in sorted({n for n in everything if everything.count(n) > 1}):
        problems.append(f"{name}: listed {everything.count(name)} times in tests/mutants (keep one line)")
    for name in sorted(set(listed) - set(code)):
        problems.append(f"{name}: listed in tests/mutants, planted nowhere (plant it or delete the line)")
    for name in sorted(set(code) - set(listed)):
        problems.append(f"{name}: planted in {code[name][0]}, no test named (add a line to tests/mutants)")
    return rows, owed, problems


def run(build, program, test_filter, mutant):
    """'green', 'red', 'hung' or 'empty', and the output's end."""
    environment = dict(os.environ)
    environment.pop("REFIT_MUTANT", None)
    if mutant:
        environment["REFIT_MUTANT"] = mutant
    command = [str(build / "bin" / program), f"--gtest_filter={test_filter}", "--gtest_brief=1"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace",
                              timeout=LIMIT_S)
    except FileNotFoundError:
        return "missing", f"{command[0]} does not exist"
    except subprocess.TimeoutExpired:
        return "hung", ""
    output = (done.stdout + done.stderr)[-2000:]
    if done.returncode != 0:
        return "red", output
    return ("green" if re.search(r"PASSED\s+\] [1-9]", done.stdout) else "empty"), output


def run_all(build, rows, jobs):
    """Whether each mutant was noticed. Says so about each that was not."""
    killed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        tests = sorted({(program, test_filter) for _, program, test_filter in rows})
        plain = dict(zip(tests, pool.map(lambda t: run(build, t[0], t[1], None), tests)))
        for (program, test_filter), (verdict, output) in plain.items():
            if verdict != "green":
                print(f"{program} --gtest_filter={test_filter} is {verdict} without any mutant:\n{output}")

        def try_one(row):
            name, program, test_filter = row
            proves = plain[program, test_filter][0] == "green"
            return run(build, program, test_filter, name) if proves else ("unproven", "")

        results = pool.map(try_one, rows)
        for (name, program, test_filter), (verdict, _) in zip(rows, results):
            if verdict in ("red", "hung"):
                killed += 1
            else:
                print(f"SURVIVED {name} ({verdict}): {program} --gtest_filter={test_filter}")
    return killed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    rows, owed, problems = check(ROOT)
    if arguments.programs:
        print("\n".join(sorted({program for _, program, _ in rows})))
        return 0
    for problem in problems:
        print(problem)
    if arguments.check or arguments.build is None:
        print(f"mutants: {len(rows)} planted, {len(owed)} owed, {len(problems)} problems")
        return 1 if problems else 0
    killed = run_all(arguments.build, rows, arguments.jobs)
    for name, reason in owed:
        print(f"owed {name}: {reason}")
    print(f"{killed} of {len(rows)} killed, {len(owed)} owed")
    return 0 if killed == len(rows) and rows and not problems else 1


if __name__ == "__main__":
    sys.exit(main())
