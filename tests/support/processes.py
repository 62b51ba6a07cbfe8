# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Fleets of real processes over a tiny random model, for tests in Python.

A test program sets BIN to the folder of refit and refit-engine first.
"""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

BIN = ""
DEADLINE = 30.0


def unwind_on_sigterm():
    """Else what this program started would outlive it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def refit(*arguments, timeout=120, **more):
    return subprocess.run([f"{BIN}/refit", *arguments], capture_output=True, text=True, timeout=timeout, **more)


def wait_for(condition, what, deadline=DEADLINE, pause=0.02):
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {deadline} s")
        time.sleep(pause)  # a poll, not a guess


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def edited(path):
    """What a JSON file holds, to be changed in place."""
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    yield content
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def leftovers():
    return [name for name in os.listdir("/dev/shm") if name.startswith("refit-")]


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, or while it was read
        return False


class Role:
    """One long-lived process, known by its ready line."""

    def __init__(self, folder, name, *arguments, deadline=DEADLINE, prefix=()):
        self.log = os.path.join(folder, f"{name}.log")
        self.out = os.path.join(folder, f"{name}.out")
        with open(self.out, "w", encoding="utf-8") as out, open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*prefix, f"{BIN}/refit", *arguments], stdout=out, stderr=log)
        wait_for(lambda: self.ready() or self.process.poll() is not None, f"{name} ready", deadline)
        if not self.ready():
            raise AssertionError(f"{name} ended with {self.process.returncode}: {self.said()}")

    def ready(self):
        with open(self.out, encoding="utf-8") as out:
            return re.search(r"ready address=(\S+)(?:.*engine=(\S+))?", out.read())

    @property
    def address(self):
        return self.ready().group(1)

    def said(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(DEADLINE)
        return self.process.returncode


class Fleet(contextlib.ExitStack):
    """A controller, policy workers and agents over a tiny random model."""

    def __init__(self, engines=2, policies=1, engine_args=()):
        super().__init__()
        self.folder = self.enter_context(tempfile.TemporaryDirectory(prefix="refit-cli-"))
        self.model = os.path.join(self.folder, "cache", "random", "tiny-llama")
        environment = dict(os.environ, REFIT_CACHE=os.path.join(self.folder, "cache"))
        made = refit("bench", "shm", "--random", "tiny-llama", "--json", env=environment)  # writes the model
        assert made.returncode == 0, made.stderr
        self.job = self.write_job(policies, engines)
        self.start_controller()
        self.policies = [self.policy(rank) for rank in range(policies)]
        self.agents = [self.agent(slot, engine_args) for slot in range(engines)]

    def write_job(self, policies, engines):
        job = os.path.join(self.folder, "job.yaml")
        with open(job, "w", encoding="utf-8") as file:
            json.dump({"policies": [{"rank": rank, "source": self.model} for rank in range(policies)],
                       "engines": [{"slot": slot, "kind": "reference", "tp": 3} for slot in range(engines)],
                       "verify": "always"}, file)
        return job

    def start_controller(self):
        self.controller = self.role("controller", "controller", "--config", self.job)

    def where(self):
        return ["--controller", self.controller.address]

    def role(self, name, *arguments, **how):
        role = Role(self.folder, name, *arguments, **how)
        self.callback(role.stop)
        return role

    def policy(self, rank):
        return self.role(f"policy-{rank}", "policy", "--rank", str(rank), *self.where(), "--source", self.model)

    def agent(self, slot, engine_args=()):
        return self.role(f"agent-{slot}", "agent", "--slot", str(slot), *self.where(), "--engine", "reference",
                         "--tp", "3", "--load-bytes", "16KiB",
                         "--run-directory", os.path.join(self.folder, f"run-{slot}"), "--",
                         "--model", self.model, "--family", "c", "--load-format", "dummy", *engine_args)

    def ask(self, command, *arguments):
        done = refit(command, *self.where(), "--json", *arguments)
        return done.returncode, json.loads(done.stdout)  # exactly one object, also on error (RC-OBS-05)


class SurvivingFleet(Fleet):
    """A fleet whose members find the controller through the state directory."""

    def __init__(self, takeover_after="300ms", **more):
        self.takeover_after = takeover_after
        self.lives = 0
        super().__init__(**more)

    def write_job(self, policies, engines):
        self.state = os.path.join(self.folder, "state")
        self.job = os.path.join(self.folder, "job.yaml")
        with open(self.job, "w", encoding="utf-8") as file:
            json.dump({"controller": {"state_directory": self.state, "takeover_after": self.takeover_after},
                       "policies": [{"rank": rank, "source": self.model} for rank in range(policies)],
                       "engines": [{"slot": slot, "kind": "reference", "tp": 3} for slot in range(engines)]}, file)
        return self.job

    def where(self):
        return ["--state-directory", self.state]

    def start_controller(self):
        self.lives += 1
        self.controller = self.role(f"controller-{self.lives}", "controller", "--config", self.job)
        return self.controller

    def kill_and_start(self):
        """When the controller had ended; the next one is ready when this returns."""
        self.controller.stop(signal.SIGKILL)
        ended = time.monotonic()
        self.start_controller()
        return ended

    def query(self, sql):
        with sqlite3.connect(os.path.join(self.state, "controller.db"), timeout=5) as database:
            return database.execute(sql).fetchall()

    def commits(self):
        """The versions that were published, in order."""
        return [row[0] for row in self.query("SELECT version FROM journal WHERE type = 'COMMIT' ORDER BY position")]

    def consistent(self):
        """Every engine serves what is committed, as the controller that counts says."""
        done = refit("status", *self.where(), "--json")
        if done.returncode != 0:
            return False
        status = json.loads(done.stdout)
        return all(engine["serving"] and engine["version"] == status["version"] for engine in status["engines"])

    def engine_pids(self):
        return [engine["pid"] for engine in self.ask("status")[1]["engines"]]

    def sync(self, request_id, deadline="30s"):
        return subprocess.Popen([f"{BIN}/refit", "sync", *self.where(), "--request-id", request_id, "--json",
                                 "--deadline", deadline], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, client):
        """Exit code and the one object."""
        out, err = client.communicate(timeout=2 * DEADLINE)
        if not out:
            raise AssertionError(err)
        return client.returncode, json.loads(out)

    def publish(self, request_id):
        code, report = self.finish(self.sync(request_id))
        assert code == 0, report
        return report["version"]
