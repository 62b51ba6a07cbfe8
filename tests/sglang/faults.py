#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Some rows of tests/faults, against unmodified SGLang servers: two of them at TP 1 on the CPU, two policy workers, a
controller, steady traffic whose every answer is judged. The fleet stays up between rows.

usage: faults.py BIN_FOLDER --python PYTHON [--row NAME_OR_PATTERN]... [--list] [--json FILE] [--keep FOLDER]

The environment is one as tools/sglang/cpu_environment.sh sets it up, which also gives the servers' arguments, in
SGLANG_ARGUMENTS. Of a row that failed the end of every log is printed. The last line is `N passed, M failed`.
"""

import argparse
import contextlib
import glob
import json
import os
import sys
import tempfile
import time

for folder in ("support", "faults"):
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
import processes  # noqa: E402
from processes import wait_for  # noqa: E402

import fleet as fleets  # noqa: E402
import run as runs  # noqa: E402
import traffic  # noqa: E402

# What a real server on a small, busy machine wants instead.
fleets.ENGINES = runs.ENGINES = 2
fleets.PROBE = {"interval": 1.0, "timeout": 4.0}
fleets.CALL = 15.0
fleets.STALL = 30.0
fleets.LAUNCH = 150.0
fleets.RESTARTS_WINDOW = 2 * (fleets.LAUNCH + 1)
runs.RETURN = fleets.LAUNCH + 30
traffic.PAUSE = 0.2

import others  # noqa: E402
import suite  # noqa: E402
from rows import Row  # noqa: E402

LINES = 20  # of each log of a row that failed
TRIES = 5   # to stop a server within a transfer

# One request at a time, whose prompt is always read whole: what a server computes does not depend on what else it does.
ALONE = ["--max-running-requests", "1", "--disable-radix-cache"]


class ServerFleet(fleets.FaultFleet):
    PYTHON = ""
    REACHED = range(fleets.ENGINES)
    RESTARTS = 3  # none fails to launch

    def write_job(self, policies, engines):
        super().write_job(policies, engines)
        with processes.edited(self.job) as job:
            del job["transport"]  # a server that is held for a while is no slow one
            job["engines"] = [{"slot": slot, "kind": "sglang", "tp": 1, "load_bytes": "1KiB",  # a call for each tensor
                               "args": ["--model-path", self.model, *os.environ["SGLANG_ARGUMENTS"].split(), *ALONE]}
                              for slot in range(engines)]
        return self.job

    def agent(self, slot, engine_args=()):
        return self.role(f"agent-{slot}", "agent", "--slot", str(slot), "--config", self.job, "--python", self.PYTHON,
                         "--pause-mode", "retract", "--run-directory", os.path.join(self.folder, f"run-{slot}"),
                         deadline=fleets.LAUNCH)

    def true_answers(self, source):
        """What both servers say once they were refitted to `source`, and every hash was proved."""
        code, report = self.finish(self.start_sync(f"truth-{source}", source=["--source", source] if source else []))
        assert code == 0, report
        self.calls = report["engines"][0]["loads"]
        code, verified = self.ask("verify")
        assert (code, verified["differences"]) == (0, 0), verified
        first, second = (traffic.answers_at(engine["url"].removeprefix("http://")) for engine in self.engines())
        assert first == second, (first, second)
        return first

    def temporary_files(self):
        """Ours: a server that is killed leaves its sockets and more, which nobody but it knows."""
        return [name for name in super().temporary_files() if name.startswith("refit")]

    def updates(self, slot):
        """How many update calls the server of `slot` answered, as it says itself."""
        log = max(glob.glob(os.path.join(self.folder, f"run-{slot}", "engine-*.log")), key=os.path.getmtime)
        with open(log, encoding="utf-8", errors="replace") as lines:
            return sum('"POST /update_weights_from_tensor' in line for line in lines)


def scheduler_of(pid):
    """The process of a server that computes."""
    for child in fleets.children(pid):
        with open(f"/proc/{child}/cmdline", encoding="utf-8") as line:
            if "scheduler" in line.read():
                return child
    raise AssertionError(f"server {pid} has no scheduler")


def server_killed(run):
    run.broken = run.fleet.kill("engine", run.slot)
    await_noticed(run)


def scheduler_killed(run):
    run.broken = run.fleet.kill("engine", run.slot, scheduler_of(run.engine_pids[run.slot]))
    await_noticed(run)


def server_stopped(run):
    others.engine_stopped(run)
    await_noticed(run)


def await_noticed(run):
    """Before that, the fleet says that all is well."""
    run.await_said(f"engine {run.slot} is (quarantined|empty)", others.UNTIL_KILLED)


@contextlib.contextmanager
def in_transfer(run):
    """The slot's server got some tensors, and gets no more, since its scheduler is stopped."""
    fleet, slot = run.fleet, run.slot
    scheduler = scheduler_of(run.engine_pids[slot])
    for _ in range(TRIES):
        before = fleet.updates(slot)
        run.sync()
        wait_for(lambda: fleet.updates(slot) > before, "the first update", pause=0.002)
        with fleet.frozen(scheduler):
            if fleet.updates(slot) < before + fleet.calls - 1:  # one that it did may not be written down yet
                yield
                return
        code, report = fleet.finish(run.client)  # it was stopped too late
        assert code == 0, report
        run.committed += 1
        run.name += "+"
    raise AssertionError(f"{TRIES} transfers were over before their server was stopped")


def kill_in_transfer(role):
    def act(run):
        with in_transfer(run):
            run.broken = run.fleet.kill(role, run.slot, run.engine_pids[run.slot])
            if role == "controller":
                run.start_again(role)
            elif role == "agent":
                wait_for(lambda: not processes.running(run.engine_pids[run.slot]), "its server ended with it", 5)
        run.end_sync()
        if role in ("agent", "policy"):
            run.start_again(role)
    return act


def refits(run):
    run.broken = time.time()
    for n in range(5):
        code, report = run.fleet.finish(run.fleet.start_sync(f"{run.name}-{n}"))  # each to the other model
        assert code == 0, report
        run.committed += 1


ROWS = [
    Row("serving/five refits", "ok", refits, "S32"),
    Row("serving/server killed", "Q", server_killed, "S01 S33"),
    Row("transfer/controller killed", "REDO", kill_in_transfer("controller"), "S59"),
    Row("transfer/server killed", "Q", kill_in_transfer("engine"), "S20"),
    Row("transfer/policy killed", "FAIL", kill_in_transfer("policy")),
    Row("serving/scheduler killed", "Q", scheduler_killed, "S03"),
    Row("transfer/agent killed", "Q", kill_in_transfer("agent"), "S03 S20"),
    Row("serving/server stopped", "Q", server_stopped, "S04"),
]


def print_ends(folder, results):
    """Of the logs of every row that failed."""
    failed = {suite.folder_name(result["row"]) for result in results if "failed" in result}
    for log in sorted(glob.glob(os.path.join(folder, "*", "**", "*.log"), recursive=True)):
        name = os.path.relpath(log, folder)
        if name.split(os.sep)[0] in failed:
            with open(log, encoding="utf-8", errors="replace") as file:
                print(f"---- {name}", *file.read().splitlines()[-LINES:], sep="\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--python", required=True)
    suite.add_row_flags(parser)
    parser.add_argument("--json")
    parser.add_argument("--keep", help="folder for the logs of a row that failed")
    options = parser.parse_args()
    chosen = suite.choose(parser, options, ROWS)
    processes.BIN = os.path.abspath(options.bin)
    processes.unwind_on_sigterm()
    ServerFleet.PYTHON = options.python
    with tempfile.TemporaryDirectory(prefix="refit-logs-") as logs:
        results = suite.run_rows(chosen, options.keep or logs, ServerFleet)
        print_ends(options.keep or logs, results)
    failed = sum("failed" in result for result in results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": results, "passed": len(results) - failed, "failed": failed}, file, indent=1)
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
