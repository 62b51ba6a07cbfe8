# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""One row: breaks something, and looks whether the fleet comes to what the row demands, and to nothing else."""

import re
import time

import oracle
import rows
from fleet import ENGINES
from processes import wait_for

RETURN = 30.0  # seconds; what a row may take until the fleet is consistent again
LATE = 2.0     # seconds after its deadline by which a sync has ended (G8: one, and one for its process on a busy host)


class Run:
    def __init__(self, fleet, row, number):
        self.fleet = fleet
        self.row = row
        self.code = rows.CODES[row.code]
        self.name = f"row-{number}"
        self.slot = fleet.least_restarted() if row.slot is None else row.slot
        self.victims = {self.slot}   # engines that the row breaks
        self.links = set(self.victims)  # engines whose links may be made anew
        self.restarted = set()       # roles that were started again
        self.client = None           # what asks for the sync
        self.committed = 0
        self.incarnations = fleet.incarnations()
        self.engine_pids = fleet.engine_pids()
        self.commits = fleet.commits()
        self.began = time.time()
        self.broken = None
        self.pids = fleet.role_pids()
        self.result = {"row": row.name, "expected": row.code, "numbers": row.numbers}

    # ---- for what the row does

    def sync(self, deadline=30.0):
        self.deadline = deadline
        self.asked = time.monotonic()
        self.client = self.fleet.start_sync(self.name, f"{deadline:.0f}s")
        return self.client

    def end_sync(self):
        """What the row's command ended with; without effect where there is none, or it was looked at."""
        if self.client is None:
            return None
        client, self.client = self.client, None
        status, report = self.fleet.finish(client)
        self.result["exit"] = status
        assert status in self.code.sync, f"exit code {status}: {report}"
        if hasattr(self, "asked"):
            took = time.monotonic() - self.asked
            self.result["sync_over_deadline"] = round(took - self.deadline, 3)
            assert took < self.deadline + LATE, f"the sync took {took:.1f} s, its deadline is {self.deadline} s"
        self.committed += int(status == 0 and "version" in report)
        if status != 0 and self.code.then in ("paused", "either"):
            engine = self.fleet.engines()[self.slot]
            assert not engine["serving"] and "mixed" in engine["residue"], engine
        if self.code.then == "as before":
            wait_for(self.all_serve_as_before, "every engine at V-1", 10)
        return report

    def start_again(self, role, slot=None, running=False, **how):
        slot = self.slot if slot is None else slot
        self.fleet.start_again(role, slot, running, **how)
        self.restarted.add(self.fleet.name_of(role, slot))

    def said(self, pattern):
        """The instant at which a controller said so in this row; {} is the row's request."""
        return self.fleet.watch.when(pattern.format(re.escape(self.name)), self.began)

    def await_said(self, pattern, deadline=10.0):
        wait_for(lambda: self.said(pattern), f"a controller says '{pattern}'", deadline, pause=0.002)
        return self.said(pattern)

    # ---- the row

    def perform(self, before):
        if self.code.replaced:
            self.fleet.charge(self.slot)
        self.row.act(self)
        assert self.broken is not None, "nothing was broken"
        self.end_sync()
        self.await_return()
        self.result["return"] = round(time.time() - self.broken, 3)
        self.check()
        self.result["detection"] = self.detection()
        self.result["launch"] = self.fleet.launch_seconds(self.slot, self.broken)
        self.prove()
        oracle.await_no_leak(self.fleet, before)

    def await_return(self):
        if self.code.then == "asked" or self.code.then != "consistent" and self.result.get("exit") != 0:
            self.fleet.publish(f"{self.name}-again")
            self.committed += 1
        wait_for(self.fleet.consistent, "every engine serves what is committed", RETURN, pause=0.05)

    def all_serve_as_before(self):
        engines = self.fleet.engines()
        return engines and all(engine["serving"] and engine["version"] == self.commits[-1] for engine in engines)

    def check(self):
        """Only what the row allows was replaced, nothing was lost or doubled."""
        changed = {slot for slot, (before, after) in enumerate(zip(self.incarnations, self.fleet.incarnations()))
                   if before != after}
        may = self.victims if self.code.replaced is not False or self.row.recovers else set()
        must = set() if self.code.replaced is None else may
        assert must <= changed <= may, f"engines replaced: {sorted(changed)}, not {sorted(must)}"
        restarted = {name for name, pid in self.fleet.role_pids().items() if self.pids[name] != pid}
        assert restarted == self.restarted, f"restarted: {restarted}"
        linked = self.fleet.linked_since(self.began)
        assert linked <= self.links | self.victims, f"links made anew: engines {sorted(linked)}"
        commits = self.fleet.commits()
        assert len(commits) == len(self.commits) + self.committed, f"commits {commits[len(self.commits):]}"
        assert commits == sorted(set(commits))

    def prove(self):
        """The fleet works, and every rank holds what was published."""
        self.fleet.publish(f"{self.name}-after")
        code, verified = self.fleet.ask("verify")
        assert (code, verified.get("verified")) == (0, True), verified

    def detection(self):
        at = self.fleet.watch.when(rf"engine {self.slot} is (quarantined|empty)", self.broken)
        return None if at is None else round(at - self.broken, 3)
