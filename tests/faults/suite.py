#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Breaks real processes, row by row, under traffic, and looks at what comes of it.

usage: suite.py BIN_FOLDER [--row NAME_OR_PATTERN]... [--list] [--json FILE] [--report FILE] [--keep FOLDER]
The last line is `N passed, M failed`.
"""

import argparse
import contextlib
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402

import callers  # noqa: E402
import calls  # noqa: E402
import clocks  # noqa: E402
import kills  # noqa: E402
import limits  # noqa: E402
import network  # noqa: E402
import oracle  # noqa: E402
import others  # noqa: E402
import registry  # noqa: E402
import report  # noqa: E402
import router_rows  # noqa: E402
from fleet import ENGINES, FaultFleet, children, own_temporary_folder  # noqa: E402
from processes import wait_for  # noqa: E402
from rows import Row  # noqa: E402
from run import RETURN, Run  # noqa: E402

END_OF_JOB = Row("shutdown/whole job ended, an engine killed", "ok", None, "S11")
ROWS = [*kills.ROWS, *calls.ROWS, *others.ROWS, *callers.ROWS, *limits.ROWS, *router_rows.ROWS, *network.ROWS,
        *registry.ROWS, *clocks.ROWS, END_OF_JOB]


def run_row(fleet, row, number, before):
    began = time.monotonic()
    run = Run(fleet, row, number)
    result = run.result
    try:
        run.perform(before)
    except Exception as problem:  # whatever went wrong is that row's failure
        result["failed"] = f"{type(problem).__name__}: {problem}"
        traceback.print_exc()
    return finished(result, fleet.traffic.settle(), began)


def finished(result, counts, began):
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


def folder_name(row):
    return row.replace("/", "-").replace(" ", "-")


def keep_logs(fleet, folder):
    # By a process of its own: whoever closes a file gives up every lock that his process has on it, the journal's too.
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    subprocess.run(["cp", "-r", fleet.folder, folder], check=True)
    shutil.rmtree(os.path.join(folder, "cache"))


def run_rows(chosen, keep=None, fleet_of=FaultFleet):
    results = []
    if not chosen:
        return results
    with own_temporary_folder(), fleet_of() as fleet:
        fleet.publish("begin")
        wait_for(fleet.consistent, "the fleet, and its router", RETURN)
        before = oracle.Holdings(fleet)
        for number, row in enumerate(row for row in chosen if row is not END_OF_JOB):
            results.append(run_row(fleet, row, number, before))
            if "failed" in results[-1]:
                if keep:
                    keep_logs(fleet, os.path.join(keep, folder_name(row.name)))
                heal(fleet)
        if END_OF_JOB in chosen:
            results.append(end_of_job(fleet))
    return results


def end_of_job(fleet):
    """Everybody is told to end, an engine dies meanwhile, and nothing is left."""
    result = {"row": END_OF_JOB.name, "expected": END_OF_JOB.code, "numbers": END_OF_JOB.numbers}
    began = time.monotonic()
    processes_of_the_job = [pid for role in fleet.role_pids().values() for pid in [role, *children(role)]]
    try:
        roles = [*fleet.agents, *fleet.policies, fleet.controller]
        fleet.kill("engine", 0)
        for role in roles:
            role.process.send_signal(signal.SIGTERM)
        codes = [role.process.wait(10) for role in roles]
        assert set(codes) == {0}, f"exit codes {codes}"
        wait_for(lambda: not any(processes.running(pid) for pid in processes_of_the_job), "everybody gone", 2)
        left = [name for pid, names in oracle.shared_memory().items() if pid in fleet.past_pids for name in names]
        assert not left, f"left in shared memory: {left}"
    except Exception as problem:
        result["failed"] = f"{type(problem).__name__}: {problem}"
    counts = fleet.traffic.settle()
    return finished(result, counts, began)


def may_separate():
    """Whether this process may make network and mount namespaces."""
    return (os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("unshare") is not None and
            subprocess.run([*OWN_HOST, "true"], check=False).returncode == 0)


# A network and a /dev/shm of the suite's own.
OWN_HOST = ["unshare", "--net", "--mount", "sh", "-c",
            'ip link set lo up && mount -t tmpfs -o size=1g refit-faults /dev/shm && exec "$@"', "sh"]

# What rows need -> whether it is to be had, and what that takes.
NEEDS = {
    "router": (lambda: bool(os.environ.get("REFIT_ROUTER_PYTHON")),
               "REFIT_ROUTER_PYTHON must name a Python with sglang-router"),
    "namespaces": (may_separate, "network and mount namespaces: root, unshare and ip"),
    "memory cgroups": (limits.may_limit_memory, f"a memory limit: {limits.CGROUPS}, writable"),
    "curl": (lambda: shutil.which("curl") is not None, "curl with HTTP/2"),
    "compiler": (clocks.has_compiler, "a C compiler under the name cc"),
}


def possible(chosen):
    """The rows that can be performed here; says which cannot, and why."""
    for need, (is_there, takes) in NEEDS.items():
        those = [row for row in chosen if need in row.needs]
        if those and not is_there():
            print(f"skipped {len(those)} rows: {takes}", flush=True)
            chosen = [row for row in chosen if row not in those]
    return chosen


def add_row_flags(parser):
    parser.add_argument("--row", action="append", default=[])
    parser.add_argument("--list", action="store_true")


def choose(parser, options, rows):
    """Those that the flags name. Ends the program where only their names are wanted, or where there are none."""
    chosen = [row for row in rows if any(fnmatch.fnmatchcase(row.name, one) for one in options.row or ["*"])]
    if options.list:
        print("\n".join(row.name for row in chosen))
        parser.exit()
    if not chosen:
        parser.error(f"no such row: {', '.join(options.row)}; see --list")
    return chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    add_row_flags(parser)
    parser.add_argument("--json")
    parser.add_argument("--report", help="where the table goes, after a run of every row")
    parser.add_argument("--keep", help="folder for the logs, at the first failure")
    options = parser.parse_args()
    chosen = choose(parser, options, ROWS)
    chosen = possible(chosen)
    if "REFIT_FAULTS_HOST" not in os.environ and any("namespaces" in row.needs for row in chosen):
        os.environ["REFIT_FAULTS_HOST"] = "own"
        os.execvp(OWN_HOST[0], [*OWN_HOST, sys.executable, *sys.argv])
    processes.BIN = os.path.abspath(options.bin)
    processes.unwind_on_sigterm()
    results = []
    for fleet in dict.fromkeys(row.fleet for row in chosen):
        results += run_rows([row for row in chosen if row.fleet is fleet], options.keep, fleet or FaultFleet)
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
