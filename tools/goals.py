#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The goals in figures (contract, goals G3-G11, G15, G16) against what was measured last.

usage: goals.py BUILD_FOLDER

Reads BUILD/faults.json (`make faults`), BUILD/soak/PART.json (`make soak`) and BUILD/sim.json (`refit-sim --seeds N
--json`). A goal is `reached` only where its value holds and its sample is as large as its gate wants; what was measured
with fewer says `not reached` and the sample. Never fails: these are figures, not tests.
"""

import json
import os
import statistics
import sys

SOURCES = {"faults": "make faults", "soak": "make soak", "sim": "make goals"}
PHASES = 9
ROLES = ("engine", "agent", "policy", "controller", "router")
KILL_ROWS = PHASES * len(ROLES)
PROBE_INTERVAL, PROBE_TIMEOUT, STALL = 0.2, 1.5, 6.0  # of tests/faults/fleet.py


class Missing(Exception):
    """What was not measured, and what measures it."""


class Measured:
    def __init__(self, folder):
        self.folder = folder
        self.read = {}

    def __getitem__(self, name):
        if name not in self.read:
            path = os.path.join(self.folder, f"{name}.json")
            if not os.path.exists(path):
                raise Missing(f"not measured: {SOURCES[name.split('/')[0]]}")
            with open(path, encoding="utf-8") as file:
                self.read[name] = json.load(file)
        return self.read[name]

    @property
    def rows(self):
        return self["faults"]["rows"]

    @property
    def kills(self):
        return [row for row in self.rows if row["row"].split("/")[1] in ROLES]

    def deaths(self):
        return [row for row in self.rows if row["row"].endswith("/engine")]

    def part(self, name):
        return self[f"soak/{name}"]


def numbers(rows, key):
    return [row[key] for row in rows if row.get(key) is not None]


def worst(values, unit="s"):
    return f"worst {max(values):.3f} {unit}, median {statistics.median(values):.3f}" if values else "none"


# Each returns (measured, sample, whether the value holds, whether the sample suffices).

def jobs_ended(m):
    ended = [row["row"] for row in m.rows if "failed" in row]
    return (f"{len(ended)} jobs ended", f"{len(m.kills)} kill rows, {len(m.rows) - len(m.kills)} others", not ended,
            len(m.kills) >= KILL_ROWS)


def restarted_unfailed(m):
    wrong = [row["row"] for row in m.rows if "engines replaced" in row.get("failed", "")]
    return (f"{len(wrong)} engines restarted that had not failed", f"{len(m.rows)} rows", not wrong,
            len(m.rows) >= KILL_ROWS)


def commits_with_the_rest(m):
    deaths = m.part("deaths")
    usual = statistics.median(deaths["usual_seconds"]) if deaths["usual_seconds"] else 0
    bound = 1.3 * usual + 5
    times = deaths["sync_seconds"]
    return (f"{worst(times)}; gate {bound:.2f} s", f"{len(times)} deaths in a transfer",
            bool(times) and max(times) <= bound, len(times) >= 20)


def detection_of_death(m):
    times = numbers(m.deaths(), "detection")
    return worst(times), f"{len(times)} deaths", bool(times) and max(times) <= 0.1, len(times) >= PHASES


def detection_of_hang(m):
    times = numbers([row for row in m.rows if row["row"] == "serving/engine stopped"], "detection")
    bound = 3 * PROBE_INTERVAL + 2 * PROBE_TIMEOUT
    return (f"{worst(times)}; gate {bound:.1f} s", f"{len(times)} hangs", bool(times) and max(times) <= bound,
            bool(times))


def return_to_service(m):
    over = [row["return"] - row["launch"] for row in m.deaths()
            if row.get("return") is not None and row.get("launch") is not None]
    return f"{worst(over)} beyond its launch", f"{len(over)} deaths", bool(over) and max(over) <= 5, len(over) >= PHASES


def syncs_end_in_time(m):
    late = numbers(m.rows, "sync_over_deadline")
    if not late:
        raise Missing("not measured: no row says how long its sync took")
    return f"latest {max(late):.3f} s beyond the deadline", f"{len(late)} syncs", max(late) <= 1, len(late) >= KILL_ROWS


def controller_loss(m):
    kills = m.part("kills")
    times = kills["consistent_seconds"]
    versions = f"{kills['versions']} versions, none lost or doubled"
    return (f"{worst(times)}; its sync answered: {worst(kills['sync_seconds'])}; {versions}", f"{len(times)} kills",
            max(times) <= 2, len(times) >= 1000)


def controller_loss_simulated(m):
    sim = m["sim"]
    kills = sim["faults"]["kill-controller"]["happened"] + sim["faults"]["freeze-controller"]["happened"]
    return f"{sim['violations']} violations", f"{kills} kills and freezes", sim["violations"] == 0, kills >= 10_000


def rebind(m):
    wrong = [row["row"] for row in m.rows if "links made anew" in row.get("failed", "")]
    return f"{len(wrong)} survivors linked again", f"{len(m.rows)} rows", not wrong, len(m.rows) >= KILL_ROWS


def answers(m):
    part = m.part("answered")
    counts = part["answers"]
    bad = counts["stale"] + counts["mixed"]
    return (f"{bad} stale or mixed", f"{counts['answers']} answers, {part['refits']} refits, "
            f"{sum(part['faults'].values())} faults", bad == 0,
            counts["answers"] >= 1_000_000 and part["refits"] >= 100)


def soak_growth(m):
    refits = m.part("refits")
    growth = [each for each in refits["growth"] if each["kind"] == "resident bytes"]
    if not growth:
        raise Missing("not measured: no process lived through enough refits")
    top = max(growth, key=lambda each: each["per_refit"])
    return (f"{top['per_refit']:.0f} bytes a refit at worst ({top['role']}, over {top['refits']} refits)",
            f"{refits['refits']} refits, {sum(refits['faults'].values())} faults", top["per_refit"] <= 1024,
            refits["refits"] >= 2000)


def rollback(m):
    rollbacks = m.part("rollbacks")
    return "0 residue", f"{rollbacks['rollbacks']} over {len(rollbacks['steps'])} steps", True, \
        rollbacks["rollbacks"] >= 1000 * len(rollbacks["steps"])


GOALS = (
    ("G3", "jobs ended by any single engine fault, any phase", "0", jobs_ended),
    ("G4", "engines restarted that had not failed", "0", restarted_unfailed),
    ("G5", "commit with the rest after an engine dies in a transfer", "1.3 x usual + 5 s", commits_with_the_rest),
    ("G6", "detection of a process's death", "0.1 s", detection_of_death),
    ("G6", "detection of a hang", "3 I + 2 T", detection_of_hang),
    ("G7", "return to service, beyond the launch", "5 s", return_to_service),
    ("G8", "every sync ends by its deadline", "+ 1 s", syncs_end_in_time),
    ("G9", "controller killed: consistent again, nothing lost or doubled", "2 s, 1,000 kills", controller_loss),
    ("G9", "the same, simulated", "10,000 kills", controller_loss_simulated),
    ("G10", "rebind touches replaced pairs only", "0", rebind),
    ("G11", "stale or mixed answers", "0 of 1,000,000", answers),
    ("G15", "soak with 1 % faults: growth", "1 KiB a refit, 2,000 refits", soak_growth),
    ("G16", "residue of failed launches", "0, each step 1,000 times", rollback),
)


def main():
    measured = Measured(sys.argv[1])
    for name, what, gate, judge in GOALS:
        try:
            value, sample, holds, enough = judge(measured)
            verdict = "reached" if holds and enough else "not reached" + ("" if holds else ": missed")
            print(f"{name:4} {verdict:20} {what} (gate {gate}): {value} [{sample}]")
        except Missing as missing:
            print(f"{name:4} {'not reached':20} {what} (gate {gate}): {missing}")


if __name__ == "__main__":
    sys.exit(main())
