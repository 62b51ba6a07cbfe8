#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Breaks real processes, row by row, under traffic, and looks at what comes of it.

usage: suite.py BIN_FOLDER [--row START_OF_NAME]... [--list] [--json FILE] [--report FILE] [--keep FOLDER]
The last line is `N passed, M failed`.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
from processes import wait_for  # noqa: E402

import kills  # noqa: E402
import oracle  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import traffic  # noqa: E402
from fleet import ENGINES, FaultFleet  # noqa: E402

RETURN = 30.0  # seconds; what a row may take until the fleet is consistent again


class Run:
    """One row: what was measured, and what must hold."""

    def __init__(self, fleet, row, number):
        self.fleet = fleet
        self.row = row
        self.name = f"row-{number}"
        self.slot = fleet.least_restarted()
        self.incarnations = fleet.incarnations()
        self.commits = fleet.commits()
        self.began = time.time()
        self.pids = fleet.role_pids()
        self.result = {"row": row.name, "role": row.role, "phase": row.phase, "expected": row.code}

    def kill(self):
        fleet, row, code = self.fleet, self.row, rows.CODES[self.row.code]
        if code.replaced:
            fleet.charge(self.slot)
        with kills.in_phase(fleet, row, self.slot, self.name) as (client, pid):
            self.killed = fleet.kill(row.role, self.slot, pid)
        self.finish(client, code)
        if row.role in ("agent", "policy"):
            fleet.start_again(row.role, self.slot)
        self.await_return(code)
        self.result["return"] = round(time.time() - self.killed, 3)
        self.check(code)

    def finish(self, client, code):
        """What the sync that stood in the phase ended with."""
        if self.row.role == "controller":
            self.fleet.start_again("controller", self.slot)
        if client is None:
            self.committed = 0
            return
        status, report = self.fleet.finish(client)
        self.result["exit"] = status
        assert status in code.sync, f"exit code {status}: {report}"
        self.committed = int(status == 0 and "version" in report)
        if status != 0 and code.then == "paused":
            engine = self.fleet.engines()[self.slot]
            assert not engine["serving"] and "mixed" in engine["residue"], engine

    def await_return(self, code):
        if code.then == "launched":
            wait_for(self.launched, "the new engine launched", RETURN, pause=0.05)
        if code.then in ("launched", "paused") or self.result.get("exit") == 1:
            self.fleet.publish(f"{self.name}-again")
            self.committed += 1
        wait_for(self.fleet.consistent, "every engine serves what is committed", RETURN, pause=0.05)

    def launched(self):
        engine = (self.fleet.engines() or [None] * ENGINES)[self.slot]
        return engine is not None and engine["registered"] and engine["incarnation"] != self.incarnations[self.slot]

    def check(self, code):
        """Only what the row allows was replaced, nothing was lost or doubled."""
        changed = [before != after for before, after in zip(self.incarnations, self.fleet.incarnations())]
        if self.row.phase == "recover" or code.replaced:
            assert changed[self.slot], "the engine was not replaced"
        elif code.replaced is None:
            changed[self.slot] = False
        may = self.row.phase == "recover" or code.replaced is True
        allowed = [slot == self.slot and may for slot in range(ENGINES)]
        assert changed == allowed, f"engines replaced: {changed}"
        restarted = {name for name, pid in self.fleet.role_pids().items() if self.pids[name] != pid}
        assert len(restarted) <= 1, f"restarted: {restarted}"
        rebound = self.fleet.linked_since(self.began)
        assert rebound <= self.may_bind(), f"links made anew: engines {sorted(rebound)}"
        commits = self.fleet.commits()
        assert len(commits) == len(self.commits) + self.committed, f"commits {commits[len(self.commits):]}"
        assert commits == sorted(set(commits))

    def may_bind(self):
        """Engines whose links may be made anew: what was replaced has none, nor has anybody after `refit shutdown`."""
        if self.row.phase in ("bind", "shutdown"):
            return set(range(ENGINES))
        return {slot for slot in range(ENGINES) if slot == self.slot or self.row.role == "policy" and
                self.fleet.feeder(slot) == self.fleet.feeder(self.slot)}

    def prove(self):
        """The fleet works, every rank holds what was published, and nothing is left behind."""
        self.fleet.publish(f"{self.name}-after")
        code, verified = self.fleet.ask("verify")
        assert (code, verified.get("verified")) == (0, True), verified

    def detection(self):
        at = self.fleet.watch.when(rf"engine {self.slot} is (quarantined|empty)", self.killed)
        return None if at is None else round(at - self.killed, 3)


def run_row(fleet, row, number, before):
    began = time.monotonic()
    run = Run(fleet, row, number)
    result = run.result
    try:
        run.kill()
        result["detection"] = run.detection()
        result["launch"] = fleet.launch_seconds(run.slot, run.killed)
        run.prove()
        oracle.await_no_leak(fleet, before)
    except Exception as problem:  # whatever went wrong is that row's failure
        result["failed"] = f"{type(problem).__name__}: {problem}"
        traceback.print_exc()
    counts = fleet.traffic.settle()
    result["answers"] = {key: value for key, value in vars(counts).items() if key != "worst"}
    if (counts.stale or counts.mixed) and "failed" not in result:
        result["failed"] = counts.worst
    result["seconds"] = round(time.monotonic() - began, 3)
    say(result)
    return result


def say(result):
    answers = result["answers"]
    figures = " ".join(f"{key}={result[key]}" for key in ("exit", "detection", "return", "launch", "seconds")
                       if result.get(key) is not None)
    print(f"{'FAILED' if 'failed' in result else 'passed'} {result['row']:22} {result['expected']:8} {figures} "
          f"answers={answers['answers']} failed={answers['failed']} spanning={answers['spanning']} "
          f"stale={answers['stale']} mixed={answers['mixed']}", flush=True)
    if "failed" in result:
        print(f"       {result['failed']}", flush=True)


def heal(fleet):
    """After a row that failed: everybody is here, nothing is held, so that the next row stands for itself."""
    for slot in range(ENGINES):
        fleet.disarm(slot)
    for pid in fleet.role_pids().values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    if fleet.controller.process.poll() is not None:
        fleet.start_controller()
    for rank, policy in enumerate(fleet.policies):
        if policy.process.poll() is not None:
            fleet.policies[rank] = fleet.policy(rank)
    for slot, agent in enumerate(fleet.agents):
        if agent.process.poll() is not None:
            fleet.agents[slot] = fleet.agent(slot)
    deadline = time.monotonic() + 2 * RETURN
    while True:
        code, report = fleet.finish(fleet.start_sync(f"heal-{time.monotonic()}"))
        if code == 0 and fleet.consistent():
            return
        assert time.monotonic() < deadline, f"the fleet does not heal: {report}"


def keep_logs(fleet, folder):
    # By a process of its own: whoever closes a file gives up every lock that his process has on it, the journal's too.
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    subprocess.run(["cp", "-r", fleet.folder, folder], check=True)
    shutil.rmtree(os.path.join(folder, "cache"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--report", help="where the table goes, after a run of every row")
    parser.add_argument("--keep", help="folder for the logs, at the first failure")
    options = parser.parse_args()
    chosen = [row for row in rows.kill_rows() if not options.row or row.name.startswith(tuple(options.row))]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    if not chosen:
        parser.error(f"no such row: {', '.join(options.row)}; see --list")
    processes.BIN = os.path.abspath(options.bin)
    results = []
    total = traffic.Counts()
    with FaultFleet() as fleet:
        fleet.publish("begin")
        before = oracle.Holdings(fleet)
        for number, row in enumerate(chosen):
            results.append(run_row(fleet, row, number, before))
            if "failed" in results[-1]:
                if options.keep:
                    keep_logs(fleet, os.path.join(options.keep, row.name.replace("/", "-").replace(" ", "-")))
                heal(fleet)
    failed = sum("failed" in result for result in results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": results}, file, indent=1)
        if options.report and not options.row and not failed:
            report.write(options.json, options.report)
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
