# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Brings the fleet into a phase and keeps it there while somebody is killed.

Nothing waits for a guessed time: an engine that is held within a call, an agent that is stopped, or a journal that is
locked keeps the phase until the kill has happened.
"""

import contextlib
import os

import processes
import rows
from processes import wait_for

# Where an engine is held, so that the refit stands in that phase.
HELD_CALL = {"transfer": "update:2", "end": "end", "activate": "label"}
GIVEN_UP = ("fencing", "undoing", "finished", "idle")
PAUSE_CALL = {"router": "flush", "engine": "begin", "agent": "flush", "policy": "pause", "controller": "begin"}


def kill(role, phase):
    def act(run):
        fleet = run.fleet
        with in_phase(run, role, phase) as pid:
            run.broken = fleet.kill(role, run.slot, pid)
            if role == "policy" and phase in ("bind", "pause"):  # G6: told to all within a second, before they go on
                wait_for(lambda: (fleet.status() or {}).get("phase") in GIVEN_UP, "the attempt given up", 1)
        if role == "controller":
            run.start_again("controller")
        run.end_sync()
        if role in ("agent", "policy"):
            run.start_again(role)
        if phase in ("bind", "shutdown"):
            run.links = set(range(len(fleet.agents)))
        elif role == "policy":
            run.links |= {slot for slot in range(len(fleet.agents)) if fleet.feeder(slot) == fleet.feeder(run.slot)}
    return act


@contextlib.contextmanager
def in_phase(run, role, phase):
    """Yields the pid of the engine that stands in that phase, where it is not the slot's usual one."""
    fleet, slot = run.fleet, run.slot
    if phase == "serving":
        yield None
    elif phase == "recover":
        yield from recovering(run)
    elif phase == "bind":
        yield from binding(run)
    elif phase == "decision":
        yield from deciding(run)
    elif phase == "shutdown":
        other = (slot + 1) % len(fleet.agents)
        with fleet.frozen(fleet.agents[other].process.pid):
            run.client = fleet.start("shutdown")
            wait_for(lambda: not links_of(fleet, slot), "one agent's links closed", 5)
            yield None
    else:
        everybody = range(len(fleet.agents))  # no engine is to come to its first update
        slots = everybody if phase == "pause" else [slot]
        yield from held(run, slots, HELD_CALL.get(phase) or PAUSE_CALL[role])


def links_of(fleet, slot):
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"refit-{fleet.agents[slot].process.pid}-")]


def binding(run):
    """Every link is made anew, and this slot's agent does not come to it."""
    fleet = run.fleet
    code, report = fleet.ask("shutdown")
    assert code == 0, report
    with contextlib.ExitStack() as stack:
        # Stopped only when nobody probes its engine any more: a policy worker keeps the sync in its lease meanwhile.
        with fleet.frozen(fleet.policies[0].process.pid):
            run.sync()
            run.await_said("INTENT request={} ")
            stack.enter_context(fleet.frozen(fleet.agents[run.slot].process.pid))
        for each in range(len(fleet.agents)):
            if each != run.slot:
                run.await_said(f"BIND slot={each} ")
        assert not run.said(f"BIND slot={run.slot} ")
        yield None


def held(run, slots, call):
    fleet = run.fleet
    for each in slots:
        fleet.arm(each, f"hold:{call}")
    try:
        run.sync()
        pids = {each: fleet.await_hit(each, call) for each in slots}
        assert pids[run.slot] == fleet.engines()[run.slot]["pid"], "another life was held"
        yield pids[run.slot]
    finally:
        for each in slots:
            fleet.disarm(each)


def recovering(run):
    """A launch of the slot that does not end, since its engine does not say what it is."""
    fleet = run.fleet
    fleet.arm(run.slot, "hold:server_info")
    try:
        fleet.charge(run.slot)
        fleet.kill("engine", run.slot)
        pid = fleet.await_hit(run.slot, "its launch")
        assert processes.running(pid)
        yield pid
    finally:
        fleet.disarm(run.slot)


def deciding(run):
    """A COMMIT that was said and cannot be written."""
    fleet = run.fleet
    fleet.arm(run.slot, "hold:end")
    try:
        run.sync()
        fleet.await_hit(run.slot, "end")
        with fleet.journal_locked():
            fleet.disarm(run.slot)
            run.await_said("COMMIT request={} ")
            assert not run.said("OUTCOME request={} ")
            yield None
    finally:
        fleet.disarm(run.slot)


# Scenarios of docs/spec/scenarios.md. Who is paused is not probed: the refit itself finds the death (S02). A version
# that an engine says before it dies is not asked for (S35).
NUMBERS = {"engine": {"serving": "S01", "pause": "S02", "recover": "S13", "transfer": "S02 S20 S35"},
           "agent": {"serving": "S03", "transfer": "S20"}}
EVERY_PHASE = {"controller": "S59", "router": "S47"}

ROWS = [rows.Row(f"{phase}/{role}", codes[index], kill(role, phase),
                 NUMBERS.get(role, {}).get(phase) or EVERY_PHASE.get(role, ""), recovers=phase == "recover",
                 needs=("router",) if role == "router" else ())
        for index, phase in enumerate(rows.PHASES) for role, codes in rows.KILLS.items()]
