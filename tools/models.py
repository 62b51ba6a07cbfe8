#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of models/ with Spin, each variant against what models/expected.toml expects of it.

    models.py                     the full models, and what must be violated
    models.py --all               the exhaustive "no error" mutants too
    models.py --model NAME        one model only

A line each: model, flags, verdict, states, seconds. The last line is "N of N as expected"; exit 0 only then. Each run
has its own temporary folder and a deadline, and two run at a time.

"no error" counts only if the search was complete and found at least half of the recorded states: fewer, and the model
has become vacuous. "violated" counts only for an assertion or an acceptance cycle: what ran out of memory, depth or
time, or stopped where nothing could go on, proves nothing.
"""

import argparse
import concurrent.futures
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_S = 900  # of one variant; the longest takes two minutes on an idle machine
MEMORY_MIB = 8000  # of one variant
AT_A_TIME = 2
MODEL_KEYS = {"cc", "cc_violated", "pan", "variants"}
VARIANT_KEYS = {"flags", "verdict", "states", "claim", "by", "tier", "says", "cc"}


@dataclasses.dataclass
class Variant:
    model: str
    flags: str  # -D…, for spin
    verdict: str  # "no error" or "violated"
    says: str = ""  # what the flags leave out, or what the run shows
    states: int = 0  # recorded for "no error"
    claim: str = ""  # the ltl formula to check, under weak fairness; otherwise assertions and deadlock
    by: str = ""  # part of the assertion that must be the one violated
    tier: str = "ci"
    cc: str = ""
    pan: str = ""

    def name(self):
        return " ".join(part for part in (self.model, self.flags, self.claim) if part)


@dataclasses.dataclass
class Outcome:
    verdict: str  # "no error", "violated", or why the run proves nothing
    states: int = 0
    error: str = ""  # pan's own words for what was violated


def read_table(text):
    """The variants of models/expected.toml. An unknown key or value is an error: it would check nothing."""
    variants = []
    for model, row in tomllib.loads(text).items():
        unknown = set(row) - MODEL_KEYS
        for entry in row.get("variants", []):
            unknown |= set(entry) - VARIANT_KEYS
            variant = Variant(model=model, pan=row.get("pan", ""),
                              **{key: value for key, value in entry.items() if key in VARIANT_KEYS})
            for_all = row.get("cc", "") if variant.verdict == "no error" else row.get("cc_violated", row.get("cc", ""))
            variant.cc = f"{for_all} {variant.cc}".strip()
            if variant.verdict not in ("no error", "violated") or variant.tier not in ("ci", "all"):
                raise ValueError(f"{variant.name()}: verdict '{variant.verdict}', tier '{variant.tier}' "
                                 "(write 'no error' or 'violated', 'ci' or 'all')")
            if (variant.verdict == "no error") != (variant.states > 0):
                raise ValueError(f"{variant.name()}: states = {variant.states} (for 'no error' only)")
            variants.append(variant)
        if unknown:
            raise ValueError(f"{model}: unknown keys {', '.join(sorted(unknown))} (mend models/expected.toml)")
    names = [v.name() for v in variants]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name}: listed twice (keep one)")
    return variants


def read_pan(output):
    """What one run of pan found."""
    states = re.search(r"^ *(\d+) states, stored", output, re.M)
    errors = re.search(r"errors: (\d+)$", output, re.M)
    count = int(states.group(1)) if states else 0
    if re.search(r"out of memory|reached -DMEMLIM", output):
        return Outcome("out of memory", count)
    if "max search depth too small" in output:
        return Outcome("search cut short (raise -m)", count)
    if not states or not errors:
        return Outcome("no summary", count)
    found = re.search(r"^pan:\d+: (.*)$", output, re.M)
    if found:
        error = re.sub(r" \(at depth \d+\)$", "", found.group(1))
        if re.match(r"assertion violated|acceptance cycle|claim violated", error):
            return Outcome("violated", count, error)
        return Outcome(error, count, error)
    if errors.group(1) != "0" or "Search not completed" in output:
        return Outcome("search not completed", count)
    return Outcome("no error", count)


def judge(variant, outcome):
    """"" if this is what was expected, else what is wrong."""
    if outcome.verdict != variant.verdict:
        return f"expected {variant.verdict}"
    if variant.verdict == "no error" and outcome.states * 2 < variant.states:
        return f"vacuous: {variant.states} states recorded"
    if variant.by not in outcome.error:
        return f"expected '{variant.by}', violated is '{outcome.error}'"
    return ""


def commands(variant, source):
    """The three steps. What is outside any claim is searched for assertions, the cheaper way."""
    checks = ["-DNFAIR=3"] if variant.claim else ["-DSAFETY", "-DNOCLAIM"]
    claim = ["-a", "-f", "-N", variant.claim] if variant.claim else []
    return [["spin", "-a", *variant.flags.split(), str(source)],
            ["cc", "-w", "-O0", *variant.cc.split(), *checks, f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c"],
            ["./pan", *variant.pan.split(), *claim]]


def run(variant):
    """(outcome, seconds)"""
    begun = time.monotonic()
    outcome = Outcome("no summary")
    with tempfile.TemporaryDirectory(prefix="refit-model-") as folder:
        for command in commands(variant, ROOT / "models" / f"{variant.model}.pml"):
            left = DEADLINE_S - (time.monotonic() - begun)
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace",
                                      timeout=max(left, 0.1))
            except subprocess.TimeoutExpired:
                outcome = Outcome(f"{command[0]} still running after {DEADLINE_S} s")
                break
            except FileNotFoundError:
                outcome = Outcome(f"{command[0]} is missing (make deps)")
                break
            output = done.stdout + done.stderr
            if command[0] == "./pan":
                outcome = read_pan(output)
            elif done.returncode != 0 or "Error:" in output:
                lines = [line for line in output.splitlines() if "rror" in line] or ["failed"]
                outcome = Outcome(f"{command[0]}: {lines[0]}")
                break
    return outcome, time.monotonic() - begun


def run_all(variants):
    """How many were as expected. The longest begin first, so that none is left over at the end."""
    good = 0
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        running = {pool.submit(run, v): v for v in sorted(variants, key=lambda v: -v.states)}
        for future in concurrent.futures.as_completed(running):
            variant = running[future]
            outcome, seconds = future.result()
            wrong = judge(variant, outcome)
            good += not wrong
            print(f"{'WRONG ' if wrong else ''}{variant.name()}: {outcome.verdict}, {outcome.states} states, "
                  f"{seconds:.1f} s{f' ({wrong})' if wrong else ''}", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--model")
    arguments = parser.parse_args()
    variants = [v for v in read_table((ROOT / "models/expected.toml").read_text())
                if (arguments.all or v.tier == "ci") and arguments.model in (None, v.model)]
    good = run_all(variants)
    print(f"{good} of {len(variants)} as expected")
    return 0 if variants and good == len(variants) else 1


if __name__ == "__main__":
    sys.exit(main())
