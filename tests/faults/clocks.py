# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Wall clocks that jump and stand still, of every process of a kind. Nothing must come of it (RC-MON-09, RX-ASM-S2)."""

import contextlib
import os
import shutil
import struct
import subprocess
import time

import fleet as fleets
import traffic
from others import in_transfer
from rows import Row

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clock_shim.c")
KINDS = ("controller", "policy", "agent")  # engines have their agent's
HOUR, YEAR = 3600, 365 * 86400


def has_compiler():
    return shutil.which("cc") is not None


class ClockFleet(fleets.FaultFleet):
    def role(self, name, *arguments, **how):
        shim = os.path.join(self.folder, "clock_shim.so")
        if not os.path.exists(shim):
            subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", shim, SHIM, "-ldl"], check=True)
            for kind in KINDS:
                self.set_clock(kind)
        kind = name.split("-")[0]
        return super().role(name, *arguments, **how, prefix=[
            "env", f"LD_PRELOAD={shim}", f"REFIT_FAULTS_CLOCK={self.clock_file(kind)}"])

    def clock_file(self, kind):
        return os.path.join(self.folder, f"clock-{kind}")

    def set_clock(self, kind, ahead=0, stands_at=0):
        with open(self.clock_file(kind), "r+b" if os.path.exists(self.clock_file(kind)) else "wb") as file:
            file.write(struct.pack("<qq", int(ahead * 1e9), int(stands_at * 1e9)))

    @contextlib.contextmanager
    def clocks(self, clocks):
        """kind -> what set_clock gets; right again at the end."""
        for kind, clock in clocks.items():
            self.set_clock(kind, **clock)
        try:
            yield
        finally:
            for kind in clocks:
                self.set_clock(kind)

    def told_by_the_controllers_clock(self):
        """When it said what it said last."""
        with open(self.controller.log, encoding="utf-8") as log:
            return traffic.stamp_seconds(log.read().splitlines()[-1].split(" ", 1)[0])


def jump(**ahead):
    """In the midst of a transfer, and back while all serve."""
    def act(run):
        with contextlib.ExitStack() as stack:
            with in_transfer(run):
                run.broken = time.time()
                stack.enter_context(run.fleet.clocks({kind: {"ahead": seconds} for kind, seconds in ahead.items()}))
            run.end_sync()
            time.sleep(2 * fleets.PROBE["timeout"])  # the fault itself: probes, too, go on
            told = run.fleet.told_by_the_controllers_clock()
            assert abs(told - run.broken - ahead["controller"]) < 60, f"its clock did not jump: {told}"
    return act


def stand_still(run):
    now = time.time()
    with run.fleet.clocks({kind: {"stands_at": now} for kind in KINDS}):
        run.broken = now
        time.sleep(2 * fleets.PROBE["timeout"])  # the fault itself
        run.sync()
        run.end_sync()
        told = run.fleet.told_by_the_controllers_clock()
        assert abs(told - now) < 0.01, f"its clock goes: {told - now}"


FLEET = {"fleet": ClockFleet, "needs": ("compiler",)}
ROWS = [
    Row("transfer/clocks an hour on", "ok", jump(**dict.fromkeys(KINDS, HOUR)), "S71", **FLEET),
    Row("transfer/clocks ten years apart", "ok", jump(controller=10 * YEAR, agent=-10 * YEAR),
        "S71", **FLEET),
    Row("serving/clocks stand still", "ok", stand_still, "S71", **FLEET),
]
