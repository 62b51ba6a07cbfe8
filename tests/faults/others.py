# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Every other fault, in its one phase: processes that stop, launches that fail. Who asks, what runs out, clocks, the
router and the network have files of their own."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
import urllib.request

import fleet as fleets
import processes
from processes import wait_for
from rows import Row

# Three probes that fail, one after another. Where the agent is stopped too, nobody says so before twice the timeout.
UNTIL_KILLED = 3 * (fleets.PROBE["interval"] + fleets.PROBE["timeout"]) + 2
UNTIL_GIVEN_UP = 3 * (fleets.PROBE["interval"] + 2 * fleets.PROBE["timeout"]) + 2


@contextlib.contextmanager
def in_transfer(run, deadline=30.0):
    """The slot's engine is held in its second update; let go by hand, or at the end."""
    fleet = run.fleet
    fleet.arm(run.slot, "hold:update:2")
    try:
        run.sync(deadline)
        assert fleet.await_hit(run.slot, "update") == run.engine_pids[run.slot], "another life was held"
        yield
    finally:
        fleet.disarm(run.slot)


# ---- processes that stop, and go on or not

def engine_stopped(run):
    pid = run.engine_pids[run.slot]
    run.broken = time.time()
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: not processes.running(pid), "the stopped engine killed", UNTIL_KILLED)


def engine_stopped_in_transfer(run):
    with in_transfer(run):
        run.broken = time.time()
        os.kill(run.engine_pids[run.slot], signal.SIGSTOP)
    run.end_sync()


def agent_stopped(run):
    with run.fleet.frozen(run.fleet.agents[run.slot].process.pid):
        run.broken = time.time()
        run.await_said(f"engine {run.slot} is quarantined", UNTIL_GIVEN_UP)


def agent_stopped_in_transfer(run):
    with contextlib.ExitStack() as stack:
        with in_transfer(run, deadline=20.0):
            run.broken = time.time()
            stack.enter_context(run.fleet.frozen(run.fleet.agents[run.slot].process.pid))
        run.end_sync()


def policy_stopped_in_transfer(run):
    with contextlib.ExitStack() as stack:
        with in_transfer(run):
            run.broken = time.time()
            stack.enter_context(run.fleet.frozen(run.fleet.policies[run.fleet.feeder(run.slot)].process.pid))
        run.end_sync()
        took = time.time() - run.broken
        # Noticed after one stall deadline; then it is waited for, as long again, that it stops sending.
        assert took < 2 * fleets.STALL + 2, f"a source that does not move ended the sync after {took:.1f} s"


def engine_slow_in_transfer(run):
    """Every update takes it nearly its deadline, the others are done long before: it is named, and then given up."""
    run.fleet.arm(run.slot, f"slow:update:*:{fleets.CALL - 1}")
    try:
        run.sync()
        run.fleet.await_hit(run.slot, "update")
        run.broken = time.time()
        run.await_said(f"engine {run.slot} is quarantined: .*is slow: .* in the third window", 20)
    finally:
        run.fleet.disarm(run.slot)
    run.end_sync()


def policy_slow_in_transfer(run):
    with contextlib.ExitStack() as stack:
        with in_transfer(run):
            run.broken = time.time()
            stack.enter_context(run.fleet.frozen(run.fleet.policies[run.fleet.feeder(run.slot)].process.pid))
        time.sleep(fleets.STALL / 3)  # the fault itself
    run.end_sync()


def controller_stopped_in_transfer(run):
    with contextlib.ExitStack() as stack:
        with in_transfer(run):
            run.broken = time.time()
            stack.enter_context(run.fleet.frozen(run.fleet.controller.process.pid))
        time.sleep(3 * fleets.CALL)  # the fault itself
    run.end_sync()


def controller_stopped_and_succeeded(run):
    old = run.fleet.controller
    with in_transfer(run):
        run.broken = time.time()
        os.kill(old.process.pid, signal.SIGSTOP)
        run.start_again("controller", running=True)
        assert old.process.wait(processes.DEADLINE) == -signal.SIGKILL
    run.end_sync()


def short_stops(run):
    """Of everybody, at any moment of ten syncs; shorter than any deadline."""
    chance = random.Random(run.name)
    pids = [*run.fleet.role_pids().values(), *run.engine_pids]
    run.broken = time.time()
    for n in range(10):
        client = run.fleet.start_sync(f"{run.name}-{n}")
        while client.poll() is None:
            with run.fleet.frozen(chance.choice(pids)):
                time.sleep(chance.uniform(0.005, 0.15))  # the fault itself
        code, report = run.fleet.finish(client)
        assert code == 0, report
        run.committed += 1


def slow_probe(run):
    run.fleet.arm(run.slot, f"slow:health:1:{fleets.PROBE['timeout'] - 0.3}")  # on top of the 1.0 s that each one takes
    run.fleet.await_hit(run.slot, "a probe")
    run.broken = time.time()
    run.fleet.disarm(run.slot)


def probe_under_way(run):
    """It does not end before its timeout, and so long the refit does not pause its engine."""
    fleet = run.fleet
    fleet.arm(run.slot, "hold:health", "slow:pause:1:0.001")  # the latter only leaves a line
    try:
        fleet.await_hit(run.slot, "a probe")
        run.broken = time.time()
        run.sync()
        wait_for(lambda: len(fleet.hits(run.slot)) == 2, "the pause", 5, pause=0.002)
        waited = time.time() - run.broken
        assert waited > fleets.PROBE["timeout"] - 0.2, f"paused {waited:.2f} s after its probe began"
    finally:
        fleet.disarm(run.slot)
    run.end_sync()


def generations_fail(run):
    """It answers who it is, and generates for nobody: not for clients, and not for /health_generate."""
    fleet, pid = run.fleet, run.engine_pids[run.slot]
    url = fleet.engines()[run.slot]["url"]
    run.broken = time.time()
    fleet.arm(run.slot, "http500:generate:*", "http500:health:*")
    try:
        for _ in range(3):
            fleet.await_hit(run.slot, "a generation")
            with urllib.request.urlopen(f"{url}/model_info", timeout=2) as answer:
                assert answer.status == 200
        wait_for(lambda: not processes.running(pid), "the engine that generates nothing killed", UNTIL_KILLED)
        assert "health" in {hit[2] for hit in fleet.hits(run.slot)}
    finally:
        fleet.disarm(run.slot)


def killed_and_back_under_its_address(role):
    """A new process where the old one listened: nothing of the life before may be taken for its own."""
    def act(run):
        old = run.fleet.role_of(role, run.slot).address
        run.broken = run.fleet.kill(role, run.slot)
        run.start_again(role, listen=("--listen", old))
        assert run.fleet.role_of(role, run.slot).address == old
        if role == "policy":
            run.links |= {slot for slot in range(fleets.ENGINES)
                          if run.fleet.feeder(slot) == run.fleet.feeder(run.slot)}
        else:
            run.await_said(f"engine {run.slot} is serving")
        run.sync()
        run.end_sync()
    return act


# ---- lives that begin badly, or end together

def launch_that(fault):
    def act(run):
        fleet = run.fleet
        fleet.charge(run.slot)  # a launch that fails counts as well
        fleet.arm(run.slot, fault)
        try:
            run.broken = fleet.kill("engine", run.slot)
            pid = fleet.await_hit(run.slot, "its launch")
            assert pid not in run.engine_pids
        finally:
            fleet.disarm(run.slot)
        wait_for(lambda: not processes.running(pid), "the life that did not come up ended", 10)
    return act


def port_stolen(run):
    """Whatever port the agent takes for the next life, somebody listens there first."""
    path = f"{os.environ['TMPDIR']}/refit-ports-{os.getuid()}-{run.fleet.status()['run']}"
    stolen, over = [], threading.Event()

    def steal():
        known = os.path.getsize(path)
        while not over.wait(0.0005):
            if os.path.getsize(path) > known:
                with open(path, encoding="ascii") as ports, contextlib.suppress(OSError):
                    thief = socket.create_server(("127.0.0.1", int(ports.read().split()[-1])))
                    stolen.append(thief)
                    return
    thief = threading.Thread(target=steal)
    run.fleet.charge(run.slot)
    thief.start()
    try:
        run.broken = run.fleet.kill("engine", run.slot)
        wait_for(lambda: stolen, "a port stolen", 10)
        logs = os.path.join(run.fleet.folder, f"run-{run.slot}")
        wait_for(lambda: any("cannot listen" in open(os.path.join(logs, name), encoding="utf-8").read()
                             for name in os.listdir(logs) if name.endswith(".log")), "an engine without a port", 10)
    finally:
        over.set()
        thief.join()
        for listener in stolen:
            listener.close()


def two_engines_killed(run):
    other = (run.slot + 1) % fleets.ENGINES
    run.victims.add(other)
    run.fleet.charge(other)
    run.broken = run.fleet.kill("engine", run.slot)
    run.fleet.kill("engine", other, run.engine_pids[other])


def update_that_all_refuse(run):
    for slot in range(fleets.ENGINES):
        run.fleet.arm(slot, "refuse:update")
    run.sync()
    wait_for(lambda: any(run.fleet.hits(slot) for slot in range(fleets.ENGINES)), "an update refused", 15)
    run.broken = time.time()  # two refusals alike end it, perhaps before the third engine was asked
    run.end_sync()
    for slot in range(fleets.ENGINES):
        run.fleet.disarm(slot)


def update_that_kills_two(run):
    other = (run.slot + 1) % fleets.ENGINES
    run.victims.add(other)
    run.fleet.charge(other)
    third = ({0, 1, 2} - {run.slot, other}).pop()
    for slot in (run.slot, other):
        run.fleet.arm(slot, "exit:update:2")
    run.fleet.arm(third, "hold:update:2")  # so that it cannot have its whole set before anybody died
    try:
        run.sync()
        for slot in (run.slot, other):
            run.fleet.await_hit(slot, "update")
            run.fleet.disarm(slot)
        run.broken = time.time()
        run.fleet.await_hit(third, "update")
        run.await_said(f"engine {other} is quarantined")
        run.await_said(f"engine {run.slot} is quarantined")
    finally:
        run.fleet.disarm(third)
    run.end_sync()
    if run.result["exit"] == 0:  # the third one has it; who was launched again may only have what was before
        for slot in (run.slot, other):
            run.await_said(f"engine {slot} is stale")
        time.sleep(0.5)  # in which a catch-up would have ended
        assert not any(run.fleet.engines()[slot]["serving"] for slot in (run.slot, other)), "given the update again"


def agent_ended_and_late(run):
    """Ended by hand, absent in a refit, and back."""
    fleet = run.fleet
    run.broken = time.time()
    assert fleet.agents[run.slot].stop() == 0
    run.sync()
    report = run.end_sync()
    serving = {engine["slot"] for engine in report["engines"] if engine["serving"]}
    assert serving == set(range(fleets.ENGINES)) - {run.slot}, report
    run.start_again("agent")


def ended_in_transfer(role):
    def act(run):
        with in_transfer(run):
            run.broken = time.time()
            run.fleet.role_of(role, run.slot).process.send_signal(signal.SIGTERM)
            if role == "controller":
                run.start_again(role)
        run.end_sync()
        if role != "controller":
            run.start_again(role)
        if role == "policy":
            run.links |= {slot for slot in range(fleets.ENGINES)
                          if run.fleet.feeder(slot) == run.fleet.feeder(run.slot)}
    return act


def rolling_restart(run):
    run.broken = time.time()
    for slot in range(fleets.ENGINES):
        run.victims.add(slot)
        if slot != run.slot:
            run.fleet.charge(slot)
        assert run.fleet.agents[slot].stop() == 0
        wait_for(lambda: sum(engine["serving"] for engine in run.fleet.engines()) == fleets.ENGINES - 1,
                 "the others serve, and it does not", 2)
        run.start_again("agent", slot)
        wait_for(run.fleet.consistent, f"engine {slot} back", 10, pause=0.05)


ROWS = [
    Row("serving/engine stopped", "Q", engine_stopped, "S04"),
    Row("serving/agent stopped", "Q", agent_stopped, "S05 S49"),
    Row("serving/probe too slow once", "ok", slow_probe, "S07"),
    Row("serving/generations fail", "Q", generations_fail, "S08"),
    Row("serving/agent back under its address", "Q", killed_and_back_under_its_address("agent"), "S69 S70"),
    Row("serving/policy back under its address", "ok", killed_and_back_under_its_address("policy"), "S69 S70"),
    Row("serving/two engines killed", "Q", two_engines_killed, "S16"),
    Row("serving/agent ended, late for a refit", "Q", agent_ended_and_late, "S46 S77"),
    Row("serving/agents restarted one by one", "Q", rolling_restart, "S89"),
    Row("recover/launch exits", "Q", launch_that("exit:server_info"), "S13"),
    Row("recover/launch never answers", "Q", launch_that("hang:server_info"), "S13"),
    Row("recover/launch answers half", "Q", launch_that("broken-json:server_info"), "S13"),
    Row("recover/port stolen", "Q", port_stolen, "S68"),
    Row("pause/probe under way", "ok", probe_under_way, "S09"),
    Row("transfer/engine stopped", "Q", engine_stopped_in_transfer, "S36"),
    Row("transfer/agent stopped", "Q", agent_stopped_in_transfer, "S49"),
    Row("transfer/policy stopped", "FAIL", policy_stopped_in_transfer, "S21"),
    Row("transfer/engine slow", "Q", engine_slow_in_transfer, "S27"),
    Row("transfer/policy slow", "ok", policy_slow_in_transfer, "S28"),
    Row("transfer/controller stopped for a while", "ok", controller_stopped_in_transfer, "S72"),
    Row("transfer/controller stopped, succeeded", "REDO", controller_stopped_and_succeeded, "S60"),
    Row("transfer/all refuse the update", "SYSTEMIC", update_that_all_refuse, "S31"),
    Row("transfer/update kills two", "DEATHS", update_that_kills_two),
    Row("transfer/agent ended", "Q", ended_in_transfer("agent"), "S74"),
    Row("transfer/policy ended", "FAIL", ended_in_transfer("policy"), "S74"),
    Row("transfer/controller ended", "REDO", ended_in_transfer("controller"), "S74"),
    Row("transfer/everybody stops for moments", "ok", short_stops, "S72"),
]
