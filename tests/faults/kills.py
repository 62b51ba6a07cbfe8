# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Brings the fleet into a phase and keeps it there while somebody is killed.

Nothing waits for a guessed time: an engine that is held within a call, an agent that is stopped, or a journal that is
locked keeps the phase until the kill has happened.
"""

import contextlib
import os
import time

import processes
from processes import wait_for

# Where an engine is held, so that the refit stands in that phase.
HELD_CALL = {"transfer": "update:2", "end": "end", "activate": "label"}
PAUSE_CALL = {"engine": "begin", "agent": "flush", "policy": "pause", "controller": "begin"}


@contextlib.contextmanager
def in_phase(fleet, row, slot, name):
    """Yields (sync or None, pid of the engine that stands in that phase); releases what was held."""
    if row.phase == "serving":
        yield None, None
    elif row.phase == "recover":
        yield from recovering(fleet, slot)
    elif row.phase == "bind":
        yield from binding(fleet, slot, name)
    elif row.phase == "decision":
        yield from deciding(fleet, slot, name)
    elif row.phase == "shutdown":
        other = (slot + 1) % len(fleet.agents)
        with fleet.frozen(fleet.agents[other].process.pid):
            client = fleet.start("shutdown")
            wait_for(lambda: not links_of(fleet, slot), "one agent's links closed", 5)
            yield client, None
    else:
        everybody = range(len(fleet.agents))  # no engine is to come to its first update
        slots = everybody if row.phase == "pause" else [slot]
        yield from held(fleet, slot, slots, HELD_CALL.get(row.phase) or PAUSE_CALL[row.role], name)


def links_of(fleet, slot):
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"refit-{fleet.agents[slot].process.pid}-")]


def binding(fleet, slot, name):
    """Every link is made anew, and this slot's agent does not come to it."""
    code, report = fleet.ask("shutdown")
    assert code == 0, report
    with contextlib.ExitStack() as stack:
        # Stopped only when nobody probes its engine any more: a policy worker keeps the sync in its lease meanwhile.
        with fleet.frozen(fleet.policies[0].process.pid):
            began = time.time()
            sync = fleet.start_sync(name)
            wait_for(lambda: fleet.watch.when(rf"INTENT request={name} ", began), "an intent", 10, pause=0.002)
            stack.enter_context(fleet.frozen(fleet.agents[slot].process.pid))
        for each in range(len(fleet.agents)):
            if each != slot:
                wait_for(lambda: fleet.watch.when(rf"BIND slot={each} ", began), f"links of engine {each}", 5)
        assert fleet.watch.when(rf"BIND slot={slot} ", began) is None
        yield sync, None


def held(fleet, slot, slots, call, name):
    for each in slots:
        fleet.arm(each, f"hold:{call}")
    try:
        sync = fleet.start_sync(name)
        pids = {each: fleet.await_hit(each, call) for each in slots}
        assert pids[slot] == fleet.engines()[slot]["pid"], "another life was held"
        yield sync, pids[slot]
    finally:
        for each in slots:
            fleet.disarm(each)


def recovering(fleet, slot):
    """A launch of `slot` that does not end, since its engine does not say what it is."""
    fleet.arm(slot, "hold:server_info")
    try:
        fleet.charge(slot)
        fleet.kill("engine", slot)
        pid = fleet.await_hit(slot, "its launch")
        assert processes.running(pid)
        yield None, pid
    finally:
        fleet.disarm(slot)


def deciding(fleet, slot, name):
    """A COMMIT that was said and cannot be written."""
    fleet.arm(slot, "hold:end")
    try:
        began = time.time()
        sync = fleet.start_sync(name)
        fleet.await_hit(slot, "end")
        with fleet.journal_locked():
            fleet.disarm(slot)
            wait_for(lambda: fleet.watch.when(rf"COMMIT request={name} ", began), "a decision", 5, pause=0.002)
            assert fleet.watch.when(rf"OUTCOME request={name} ", began) is None
            yield sync, None
    finally:
        fleet.disarm(slot)
