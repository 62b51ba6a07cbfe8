# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The fleet that the rows break: three engines, two policy workers, a controller with a state directory, traffic."""

import array
import collections
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
import urllib.request

import processes
import traffic
from processes import SurvivingFleet, edited, refit, wait_for

ENGINES = 3
POLICIES = 2
TP = 3
PROBE = {"interval": 0.2, "timeout": 1.5}
CALL = 3.0    # seconds, deadlines.call and .update
STALL = 6.0   # deadlines.stall
LAUNCH = 6.0  # deadlines.launch
RESTARTS_WINDOW = 2 * (LAUNCH + 1)  # of runtime/controller_host.cc: three restarts within it retire a slot


def reverse_weights(model, reversed_model):
    """Another model of the same shape: every tensor's elements in reverse order."""
    shutil.copytree(model, reversed_model)
    for name in os.listdir(model):
        if name.endswith(".safetensors"):
            path = os.path.join(reversed_model, name)
            with open(path, "rb") as file:
                content = bytearray(file.read())
            start = 8 + struct.unpack_from("<Q", content)[0]
            for key, tensor in json.loads(content[8:start]).items():
                if key != "__metadata__":
                    begin, end = (start + offset for offset in tensor["data_offsets"])
                    elements = array.array("H", content[begin:end])
                    elements.reverse()
                    content[begin:end] = elements.tobytes()
            with open(path, "wb") as file:
                file.write(content)


def children(pid):
    """Every process below `pid`."""
    below, wave = [], [pid]
    while wave:
        wave = [child for parent in wave for child in children_of(parent)]
        below += wave
    return below


def children_of(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    return found


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"


@contextlib.contextmanager
def own_temporary_folder():
    """Of this program and all that it starts, so that whatever is left behind is seen."""
    with tempfile.TemporaryDirectory(prefix="refit-faults-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None
            del os.environ["TMPDIR"]


class FaultFleet(SurvivingFleet):
    """REFIT_ROUTER_PYTHON: a Python that has sglang-router; without one there is no router, and nobody breaks it."""

    REACHED = range(ENGINES)  # engines that clients can ask
    RESTARTS = 2              # of a slot within the window, so that it has one more than a row plans
    probe = PROBE

    def __init__(self, with_router=True):
        self.router = None  # where it listens
        if with_router and os.environ.get("REFIT_ROUTER_PYTHON"):
            self.router = f"127.0.0.1:{processes.free_port()}"
        self.restarts = collections.defaultdict(list)  # slot -> when a life of it was ended
        self.asked = 0
        self.past_pids = set()
        super().__init__(takeover_after="300ms", engines=ENGINES, policies=POLICIES)
        reverse_weights(self.model, self.reversed_model)
        journal = sqlite3.connect(os.path.join(self.state, "controller.db"), timeout=5, check_same_thread=False)
        self.callback(journal.close)
        self.watch = traffic.Watch(self.folder, lambda sql: journal.execute(sql).fetchall())
        self.callback(self.watch.stop)
        truths = {source: self.true_answers(source) for source in ("", self.reversed_model)}
        assert truths[""] != truths[self.reversed_model]
        if self.router:
            self.watch.serving["router"] = self.router
        self.traffic = traffic.Traffic(self.watch, [*self.REACHED, "router"], truths)
        self.callback(self.traffic.stop)

    def true_answers(self, source):
        return traffic.true_answers(source or self.model, TP)

    def write_job(self, policies, engines):
        super().write_job(policies, engines)
        self.reversed_model = os.path.join(self.folder, "cache", "random", "reversed")
        with edited(self.job) as job:
            job["generation"] = {"use_fault_tolerance": True, "rollout_health_check_interval": self.probe["interval"],
                                 "rollout_health_check_timeout": self.probe["timeout"],
                                 "rollout_health_check_first_wait": 0.0}
            if self.router:
                job["generation"]["sglang_router_config"] = {
                    "sglang_router_port": int(self.router.split(":")[1]), "router_policy": "round_robin",
                    "python": os.environ["REFIT_ROUTER_PYTHON"]}
            job["transport"] = {"min_rate": "256KiB"}  # three windows of 5 s below it are slow
            job["deadlines"] = {"update": f"{CALL:.0f}s", "call": f"{CALL:.0f}s", "stall": f"{STALL:.0f}s",
                                "launch": f"{LAUNCH:.0f}s"}
            for engine in job["engines"]:
                engine["load_bytes"] = "16KiB"
                engine["args"] = ["--model", self.model, "--family", "c", "--load-format", "dummy",
                                  "--fault-file", self.fault_file(engine["slot"])]
        return self.job

    def agent(self, slot, engine_args=(), listen=()):
        return self.role(f"agent-{slot}", "agent", "--slot", str(slot), "--config", self.job,
                         "--run-directory", os.path.join(self.folder, f"run-{slot}"), *listen)

    def policy(self, rank, listen=()):
        return self.role(f"policy-{rank}", "policy", "--rank", str(rank), *self.where(), "--source", self.model,
                         *listen)

    def role(self, name, *arguments, **how):
        role = super().role(name, *arguments, **how)
        self.past_pids.add(role.process.pid)
        return role

    # ---- faults of an engine

    def fault_file(self, slot):
        return os.path.join(self.folder, f"faults-{slot}")

    def arm(self, slot, *faults):
        """From now on, of this life and the next ones; the hits before are forgotten."""
        file = self.fault_file(slot)
        with contextlib.suppress(FileNotFoundError):
            os.remove(file + ".hits")
        with open(file + ".new", "w", encoding="utf-8") as new:
            new.write("".join(fault + "\n" for fault in faults))
        os.replace(file + ".new", file)

    def disarm(self, slot):
        """Lets go of what is held. The hits stay."""
        with open(self.fault_file(slot) + ".new", "w", encoding="utf-8"):
            pass
        os.replace(self.fault_file(slot) + ".new", self.fault_file(slot))

    def hits(self, slot):
        """(pid, action, route, call) of each fault that happened."""
        try:
            with open(self.fault_file(slot) + ".hits", encoding="ascii") as file:
                return [tuple(line.split()) for line in file]
        except FileNotFoundError:
            return []

    def await_hit(self, slot, what, deadline=15.0):
        wait_for(lambda: self.hits(slot), f"engine {slot}: {what}", deadline, pause=0.002)
        return int(self.hits(slot)[0][0])

    # ---- what is there

    def temporary_files(self):
        """That somebody may leave behind."""
        return os.listdir(os.environ["TMPDIR"])

    def status(self):
        done = refit("status", *self.where(), "--json")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def engines(self):
        status = self.status()
        return status["engines"] if status else []

    def router_lists(self):
        """URLs; None where it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.router}/workers", timeout=2) as answer:
                return sorted(worker["url"] for worker in json.load(answer)["workers"])
        except (OSError, http.client.HTTPException):
            return None

    def consistent(self):
        """Every engine serves what is committed, and the router lists those and nobody else."""
        if not super().consistent():
            return False
        return self.router is None or self.router_lists() == sorted(engine["url"] for engine in self.engines())

    def taken_over(self):
        """The controller knows every member, and each engine serves what is committed or takes part in a refit."""
        status = self.status()
        return status is not None and all(member["registered"] for member in status["engines"] + status["policies"]) \
            and all(engine["serving"] and engine["version"] == status["version"] or
                    status["phase"] != "idle" and engine["state"] in ("bound", "paused", "updating", "complete")
                    for engine in status["engines"])

    def incarnations(self):
        return [engine["incarnation"] for engine in self.engines()]

    def said_by_agent(self, slot, since):
        """(seconds, text) of its log."""
        with open(self.agents[slot].log, encoding="utf-8", errors="replace") as log:
            lines = [(traffic.stamp_seconds(line.split(" ", 1)[0]), line) for line in log]
        return [(at, line) for at, line in lines if at >= since]

    def linked_since(self, since):
        """Slots whose links were made anew; a successor writes BIND also for those that it found."""
        return {slot for slot in range(ENGINES)
                if any("link to policy rank" in line for _, line in self.said_by_agent(slot, since))}

    def role_pids(self):
        named = {"controller": self.controller}
        named.update({f"policy-{rank}": role for rank, role in enumerate(self.policies)})
        named.update({f"agent-{slot}": role for slot, role in enumerate(self.agents)})
        return {name: role.process.pid for name, role in named.items()}

    # ---- asking and breaking

    def next_source(self):
        self.asked += 1
        return ["--source", self.reversed_model] if self.asked % 2 else []

    def start_sync(self, name, deadline="30s", source=None):
        source = self.next_source() if source is None else source
        return subprocess.Popen([f"{processes.BIN}/refit", "sync", *self.where(), "--request-id", name, "--json",
                                 "--deadline", deadline, *source],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def start(self, command):
        return subprocess.Popen([f"{processes.BIN}/refit", command, *self.where(), "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def recent_restarts(self, slot):
        return sum(instant > time.monotonic() - RESTARTS_WINDOW for instant in self.restarts[slot])

    def least_restarted(self):
        return min(range(ENGINES), key=lambda slot: (self.recent_restarts(slot), self.restarts[slot][-1:]))

    def charge(self, slot):
        """A life of `slot` is about to end: not so often that its slot is retired."""
        wait_for(lambda: self.recent_restarts(slot) < self.RESTARTS, f"the restart budget of engine {slot}",
                 2 * RESTARTS_WINDOW)
        self.restarts[slot].append(time.monotonic())

    def kill(self, role, slot, pid=None):
        """kill -9; the instant before it."""
        victim = {"engine": lambda: pid or self.engines()[slot]["pid"],
                  "agent": lambda: self.agents[slot].process.pid,
                  "policy": lambda: self.policies[self.feeder(slot)].process.pid,
                  "router": lambda: self.status()["router"]["pid"],
                  "controller": lambda: self.controller.process.pid}[role]()
        at = time.time()
        os.kill(victim, signal.SIGKILL)
        if role != "engine":
            wait_for(lambda: not processes.running(victim), f"{role} dead")
        return at

    def feeder(self, slot):
        return slot % POLICIES

    def name_of(self, role, slot):
        return {"agent": f"agent-{slot}", "policy": f"policy-{self.feeder(slot)}", "controller": "controller"}[role]

    def role_of(self, role, slot):
        return {"agent": self.agents[slot], "policy": self.policies[self.feeder(slot)],
                "controller": self.controller}[role]

    def start_again(self, role, slot, running=False, **how):
        """As a job's supervisor would; `running`: while the one before still runs."""
        if not running:
            self.role_of(role, slot).process.wait(processes.DEADLINE)
        if role == "agent":
            self.agents[slot] = self.agent(slot, **how)
        elif role == "policy":
            self.policies[self.feeder(slot)] = self.policy(self.feeder(slot), **how)
        else:
            self.start_controller()

    @contextlib.contextmanager
    def frozen(self, pid):
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_for(lambda: is_stopped(pid), f"{pid} stopped", 5, pause=0.001)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def journal_locked(self):
        """Nobody writes the journal meanwhile."""
        lock = sqlite3.connect(os.path.join(self.state, "controller.db"), timeout=5, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            lock.execute("ROLLBACK")
            lock.close()

    def launch_seconds(self, slot, since):
        """What the engine of `slot` took to come up, as its agent saw it, the first time after `since`."""
        told = None
        for at, line in self.said_by_agent(slot, since):
            if "the controller says launch" in line:
                told = at
            if told is not None and re.search(r"engine \d+ is ready at", line):
                return round(at - told, 3)
        return None
