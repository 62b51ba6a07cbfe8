#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one fleet for long, breaks it now and then, and looks for what grows, gets lost or is done twice.

usage: soak.py BIN_FOLDER [--refits N] [--kills N] [--deaths N] [--rollbacks N] [--answered N] [--seed N]
               [--json FOLDER]

REFIT_ROUTER_PYTHON: a Python that has sglang-router; without one there is no router.

Five parts over one fleet, under traffic: refits of which one in a hundred has a role killed at a random moment;
controllers killed at random moments; engines killed in the middle of a transfer; launches that fail; such refits under
as much traffic as there can be. 0 leaves a part out. Prints each part's figures with their sample sizes, and writes
them to FOLDER/PART.json; the last line is `N passed, M failed`.
"""

import argparse
import collections
import itertools
import json
import os
import random
import statistics
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
from processes import wait_for  # noqa: E402

import fleet as fleets  # noqa: E402
import oracle  # noqa: E402
import traffic  # noqa: E402
from fleet import FaultFleet, own_temporary_folder  # noqa: E402

FAULTS = 0.01      # of the refits (S80)
WARM_UP = 15       # samples of a process in which it fills its pools, and does not grow
SAMPLES = 15       # that a slope needs: a page more or less counts for little
GROWTH = 1024      # bytes per refit that count as none (goal G15)
EVERY = 10         # refits between two samples


def count_of(broken):
    return {role: times for role, times in broken.items() if role}


def held_by(pid):
    """Resident bytes, descriptors, mappings."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return resident, oracle.descriptors(pid), sum(1 for _ in maps)


class SoakFleet(FaultFleet):
    # Each probe takes the server a second, and a refit waits for its end: one that is probed all the time waits always.
    probe = {**fleets.PROBE, "interval": 2.0}


class Growth:
    """What each process of the fleet held, by how many refits there had been."""

    KINDS = ("resident bytes", "descriptors", "mappings")

    def __init__(self):
        self.of = {}  # (role, pid) -> [(refits, resident, descriptors, mappings)]

    def sample(self, fleet, refits):
        pids = {**fleet.role_pids(), **{f"engine-{slot}": engine["pid"] for slot, engine in enumerate(fleet.engines())}}
        for name, pid in pids.items():
            try:
                self.of.setdefault((name, pid), []).append((refits, *held_by(pid)))
            except FileNotFoundError:
                pass

    def slopes(self):
        """By kind of role: the worst growth per refit of a life that was seen often enough, and its refits."""
        worst = {}
        for (name, _), samples in self.of.items():
            steady = samples[WARM_UP:]
            if len(steady) < SAMPLES:
                continue
            role = name.split("-")[0]
            refits = [sample[0] for sample in steady]
            for at, kind in enumerate(self.KINDS, 1):
                slope = statistics.linear_regression(refits, [sample[at] for sample in steady]).slope
                known = worst.get((role, kind), (float("-inf"), 0))
                worst[role, kind] = max(known, (slope, refits[-1] - refits[0]))
        return worst


class Soak:
    KILLED = {"consistent": "every member known and settled", "sync": "the sync that was cut off answered",
              "whole": "all serve its version, also through the router,"}

    def __init__(self, fleet, chance):
        self.fleet = fleet
        self.chance = chance
        self.answers = traffic.Counts()
        self.published = 0
        self.figures = {}  # of the part that ran last
        began = time.monotonic()
        self.publish("usual")
        self.usual = time.monotonic() - began
        self.await_consistent("the fleet with its router")
        self.holdings = oracle.Holdings(fleet)  # and no more after any part

    def publish(self, name):
        version = self.fleet.publish(name)
        self.published += 1
        return version

    def settle(self):
        self.answers.add(self.fleet.traffic.settle())
        assert not self.answers.stale and not self.answers.mixed, self.answers.worst

    def await_consistent(self, what):
        wait_for(self.fleet.consistent, what, 60, pause=0.05)

    def refit(self, name):
        """Now and then one during which a role is killed: which."""
        if self.chance.random() < FAULTS:
            return self.break_one(name)
        self.publish(name)
        return None

    def break_one(self, name):
        """A sync during which some role is killed; whoever is not launched by the fleet itself is started again."""
        fleet, slot = self.fleet, self.fleet.least_restarted()
        role = self.chance.choice(("engine", "agent", "policy", "controller"))
        if role in ("engine", "agent"):
            fleet.charge(slot)
        client = fleet.start_sync(name)
        time.sleep(self.chance.uniform(0, self.usual))  # the moment of the kill, not a wait for anything
        fleet.kill(role, slot)
        if role == "controller":
            fleet.start_again(role, slot)
        code, report = fleet.finish(client)
        if role in ("agent", "policy"):
            fleet.start_again(role, slot)
        assert code == 0 or role == "policy", f"{role} killed: {report}"
        if code == 0:
            self.published += 1
        else:
            self.publish(f"{name}-again")
        self.await_consistent(f"the fleet after {role} {slot} was killed in {name}")
        return role

    # ---- the parts

    def refits(self, count):
        growth, broken = Growth(), collections.Counter()
        for n in range(count):
            broken[self.refit(f"refit-{n}")] += 1
            if n % EVERY == 0:
                growth.sample(self.fleet, n)
                self.settle()
        slopes = growth.slopes()
        self.figures = {
            "refits": count, "faults": count_of(broken),
            "growth": [{"role": role, "kind": kind, "per_refit": slope, "refits": over}
                       for (role, kind), (slope, over) in sorted(slopes.items())]}
        for (role, kind), (slope, over) in sorted(slopes.items()):
            print(f"  {role}: {kind} {slope:+.2f} per refit over {over} refits")
        for (role, kind), (slope, _) in slopes.items():
            bound = GROWTH if kind == "resident bytes" else 0.05
            assert slope <= bound or count < 500, f"{role}: {kind} grow by {slope:.2f} a refit"

    def kills(self, count):
        fleet, pids = self.fleet, self.fleet.engine_pids()
        times = {"consistent": [], "sync": [], "whole": []}
        for n in range(count):
            client = fleet.start_sync(f"kill-{n}")
            time.sleep(self.chance.uniform(0, 1.2 * self.usual))  # the moment of the kill, not a wait for anything
            ended = fleet.kill_and_start()
            wait_for(fleet.taken_over, f"the successor after kill {n}", 60)
            times["consistent"].append(time.monotonic() - ended)
            code, report = fleet.finish(client)
            times["sync"].append(time.monotonic() - ended)
            assert code == 0, report
            self.published += 1
            if n % EVERY == 0:  # else the next controller is killed while its router comes up
                self.await_consistent(f"the fleet after kill {n}")
                times["whole"].append(time.monotonic() - ended)
                self.settle()
        assert fleet.engine_pids() == pids, "an engine was restarted"
        self.figures = {"kills": count, **{f"{what}_seconds": values for what, values in times.items()}}
        for what, values in times.items():
            print(f"  {len(values)} kills: {self.KILLED[what]} after {statistics.median(values):.2f} s, "
                  f"worst {max(values):.2f} s")

    def deaths(self, count):
        fleet, usual, times = self.fleet, [], []
        for n in range(count):
            began = time.monotonic()
            self.publish(f"whole-{n}")
            usual.append(time.monotonic() - began)
            slot = fleet.least_restarted()
            fleet.charge(slot)
            fleet.arm(slot, "die:update:2")
            began = time.monotonic()
            code, report = fleet.finish(fleet.start_sync(f"death-{n}"))
            times.append(time.monotonic() - began)
            fleet.disarm(slot)
            assert code == 0 and fleet.hits(slot), report
            assert [engine["serving"] for engine in report["engines"]].count(False) == 1, report
            self.published += 1
            self.await_consistent(f"the fleet after death {n}")
            self.settle()
        self.figures = {"deaths": count, "sync_seconds": times, "usual_seconds": usual}
        print(f"  {count} deaths in a transfer: sync {statistics.median(times):.2f} s, worst {max(times):.2f} s; "
              f"usual {statistics.median(usual):.2f} s")

    def rollbacks(self, count):
        """A launch that fails at one of its steps leaves nothing, and the next one succeeds."""
        fleet, steps = self.fleet, ("exit:server_info", "http500:server_info", "broken-json:server_info")
        for n in range(count):
            slot = fleet.least_restarted()
            wait_for(lambda slot=slot: not fleet.recent_restarts(slot), "a whole restart budget", 60)
            fleet.charge(slot)  # the death
            fleet.charge(slot)  # and the launch that fails
            before = oracle.Holdings(fleet)
            fleet.arm(slot, steps[n % len(steps)])
            fleet.kill("engine", slot)
            wait_for(lambda slot=slot: fleet.hits(slot), f"the launch of engine {slot} fails", 30)
            fleet.disarm(slot)
            self.await_consistent(f"the fleet after rollback {n}")
            oracle.await_no_leak(fleet, before)
            self.settle()
        self.figures = {"rollbacks": count, "steps": list(steps)}
        print(f"  {count} failed launches: nothing left behind")

    def answered(self, count):
        """Refits, with their faults, until clients that do not rest between questions have so many answers."""
        self.fleet.traffic.pause = 0
        broken = collections.Counter()
        for n in itertools.count():
            if self.answers.answers >= count:
                break
            broken[self.refit(f"answers-{n}")] += 1
            self.settle()
        self.figures = {"refits": n, "faults": count_of(broken)}

    def account(self, before):
        """Since there were `before` versions: each of them once, one for each request that was answered with one."""
        commits = self.fleet.commits()
        assert commits == sorted(set(commits)), "a version was published twice"
        assert len(commits) == self.published, f"{len(commits)} versions, {self.published} requests"
        self.settle()
        answers = {key: value for key, value in vars(self.answers).items() if key != "worst"}
        print(f"  {len(commits) - before} versions, none lost or doubled; {answers}")
        return {"versions": len(commits) - before, "answers": answers}

    def run(self, part, count):
        """Its figures."""
        before = self.published
        self.answers = traffic.Counts()
        getattr(self, part)(count)
        oracle.await_no_leak(self.fleet, self.holdings)
        return {**self.figures, **self.account(before)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parts = {"refits": 2000, "kills": 1000, "deaths": 20, "rollbacks": 30, "answered": 1_000_000}
    for part, count in parts.items():
        parser.add_argument(f"--{part}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="FOLDER")
    options = parser.parse_args()
    processes.BIN = os.path.abspath(options.bin)
    processes.unwind_on_sigterm()
    passed = failed = 0
    with own_temporary_folder(), SoakFleet() as fleet:
        soak = Soak(fleet, random.Random(options.seed))
        for part in parts:
            began, count = time.monotonic(), getattr(options, part)
            if count == 0:
                continue
            print(f"{part}: {count}", flush=True)
            try:
                figures = soak.run(part, count)
                passed += 1
            except Exception as problem:  # whatever went wrong is that part's failure
                failed += 1
                traceback.print_exc()
                print(f"FAILED {part}: {problem}", flush=True)
                break
            print(f"passed {part}: {time.monotonic() - began:.0f} s", flush=True)
            if options.json:
                os.makedirs(options.json, exist_ok=True)
                with open(os.path.join(options.json, f"{part}.json"), "w", encoding="utf-8") as file:
                    json.dump(figures, file, indent=1)
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
