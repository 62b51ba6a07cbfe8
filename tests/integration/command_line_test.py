#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: real processes, real kills, exit codes, what is left behind.

usage: command_line_test.py BIN_FOLDER [unittest arguments]
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = ""
DEADLINE = 30.0


def refit(*arguments, timeout=120, **more):
    return subprocess.run([f"{BIN}/refit", *arguments], capture_output=True, text=True, timeout=timeout, **more)


def wait_for(condition, what, deadline=DEADLINE, pause=0.02):
    end = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {deadline} s")
        time.sleep(pause)  # a poll, not a guess


def leftovers():
    return [name for name in os.listdir("/dev/shm") if name.startswith("refit-")]


def running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Role:
    """One long-lived process, known by its ready line."""

    def __init__(self, folder, name, *arguments):
        self.log = os.path.join(folder, f"{name}.log")
        self.out = os.path.join(folder, f"{name}.out")
        with open(self.out, "w", encoding="utf-8") as out, open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([f"{BIN}/refit", *arguments], stdout=out, stderr=log)
        wait_for(lambda: self.ready() or self.process.poll() is not None, f"{name} ready")
        if not self.ready():
            with open(self.log, encoding="utf-8") as log:
                raise AssertionError(f"{name} ended with {self.process.returncode}: {log.read()}")

    def ready(self):
        with open(self.out, encoding="utf-8") as out:
            return re.search(r"ready address=(\S+)(?:.*engine=(\S+))?", out.read())

    @property
    def address(self):
        return self.ready().group(1)

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

    def role(self, name, *arguments):
        role = Role(self.folder, name, *arguments)
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


class WholeFleet(unittest.TestCase):
    def test_sync_and_verify_speak_json_with_the_promised_fields_and_exit_codes(self):
        """RC-OBS-05, settled D11."""
        with Fleet() as fleet:
            code, unproven = fleet.ask("verify")
            self.assertEqual(code, 3, unproven)
            code, report = fleet.ask("sync")
            self.assertEqual(code, 0, report)
            self.assertTrue(report["committed"])
            self.assertEqual(report["bytes_delivered"], report["bytes"] * 6)
            self.assertEqual(len(report["stall_seconds"]), 2)
            self.assertAlmostEqual(report["gbps"], report["bytes_delivered"] / report["seconds"] / 1e9, places=6)
            self.assertRegex(report["digest"], r"^[0-9a-f]{32}$")
            code, verified = fleet.ask("verify")
            self.assertEqual((code, verified["verified"]), (0, True))
            text = refit("verify", "--controller", fleet.controller.address).stdout
            self.assertRegex(text, r"verified: 6 ranks, \d+ parameters, 0 differences")
            code, status = fleet.ask("status")
            self.assertEqual(code, 0)
            code, error = fleet.ask("sync", "--source", "/nonexistent")
            self.assertEqual(code, 1)
            self.assertIn("/nonexistent", error["error"]["message"])
            self.assertEqual({residue["residue"] for residue in error["error"]["residues"]}, {"old(version 1)"})
        self.assertEqual(leftovers(), [])

    def test_a_policy_worker_killed_in_mid_load_is_named_and_its_successor_repairs(self):
        with Fleet(engines=1, engine_args=("--fault", "slow:update:2:1.5")) as fleet:
            sync = subprocess.Popen([f"{BIN}/refit", "sync", "--controller", fleet.controller.address, "--json",
                                     "--deadline", "20s"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            wait_for(lambda: fleet.ask("status")[1]["phase"] == "transferring", "transfer begun")
            fleet.policies[0].stop(signal.SIGKILL)
            error = json.loads(sync.communicate(timeout=DEADLINE)[0])
            self.assertEqual(sync.returncode, 1)
            self.assertIn("policy", error["error"]["message"])
            self.assertEqual(len(error["error"]["residues"]), 1)
            self.assertNotIn("complete", error["error"]["residues"][0]["residue"])
            fleet.policies[0] = fleet.policy(0)  # sweeps what the dead one left
            code, report = fleet.ask("sync")
            self.assertEqual(code, 0, report)
            self.assertEqual(fleet.ask("verify")[0], 0)
        self.assertEqual(leftovers(), [])

    def test_an_agent_killed_takes_its_engine_along_and_its_successor_is_taken_in(self):
        with Fleet(engines=2) as fleet:
            self.assertEqual(fleet.ask("sync")[0], 0)
            engine_pid = fleet.ask("status")[1]["engines"][1]["pid"]
            self.assertTrue(running(engine_pid))
            fleet.agents[1].stop(signal.SIGKILL)
            wait_for(lambda: not running(engine_pid), "the engine gone", 2)
            code, report = fleet.ask("sync")  # resilient: the other engine is published
            self.assertEqual(code, 0, report)
            self.assertEqual([engine["serving"] for engine in report["engines"]], [True, False])
            fleet.agents[1] = fleet.agent(1)
            code, report = fleet.ask("sync")
            self.assertEqual(code, 0, report)
            self.assertEqual([engine["serving"] for engine in report["engines"]], [True, True])
            self.assertEqual(fleet.ask("verify")[0], 0)
        self.assertEqual(leftovers(), [])

    def test_a_second_sync_while_one_runs_is_busy(self):
        """RC-SYNC-07, exit code 4."""
        with Fleet(engines=1, engine_args=("--fault", "slow:update:1:2.0")) as fleet:
            first = subprocess.Popen([f"{BIN}/refit", "sync", "--controller", fleet.controller.address, "--json"],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda: fleet.ask("status")[1]["phase"] == "transferring", "transfer begun")
            code, error = fleet.ask("sync")
            self.assertEqual(code, 4, error)
            self.assertEqual(first.wait(DEADLINE), 0)


class BadSurroundings(unittest.TestCase):
    def test_a_port_in_use_is_named(self):
        with socket.socket() as taken, tempfile.TemporaryDirectory() as folder:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            job = os.path.join(folder, "job.yaml")
            with open(job, "w", encoding="utf-8") as file:
                json.dump({"controller": {"listen": address}, "policies": [{"rank": 0, "source": folder}],
                           "engines": [{"slot": 0, "kind": "reference", "tp": 1}]}, file)
            done = refit("controller", "--config", job, timeout=20)
            self.assertEqual(done.returncode, 1)
            self.assertIn(address, done.stderr)

    def test_nobody_at_the_address_ends_by_the_deadline(self):
        done = refit("status", "--controller", "127.0.0.1:1", "--json", timeout=30)
        self.assertEqual(done.returncode, 1)
        self.assertIn("127.0.0.1:1", json.loads(done.stdout)["error"]["message"])

    def test_a_wrong_flag_is_a_usage_error_in_one_object(self):
        done = refit("sync", "--nonsense", "--json")
        self.assertEqual(done.returncode, 2)
        self.assertIn("error", json.loads(done.stdout))

    def test_a_tiny_shared_memory_is_refused_with_its_remedy_and_nothing_is_left(self):
        """RC-PAY-10: need, free and remedy; the engines are resumed as they were."""
        if os.geteuid() != 0 or shutil.which("unshare") is None:
            self.skipTest("needs root and unshare to mount a small /dev/shm of its own")
        script = ('mount -t tmpfs -o size=64k tmpfs /dev/shm || exit 77; '
                  f'"{BIN}/refit" demo --random tiny-llama --json; code=$?; ls /dev/shm | wc -l; exit $code')
        done = subprocess.run(["unshare", "-m", "bash", "-c", script], capture_output=True, text=True, timeout=120,
                              cwd=tempfile.gettempdir())
        if done.returncode == 77:
            self.skipTest("mounting is not permitted here")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("--shm-size", done.stdout)
        self.assertEqual(done.stdout.rstrip().rsplit("\n", 1)[1], "0")


class Demo(unittest.TestCase):
    def test_the_demo_ends_verified_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            done = refit("demo", "--random", "tiny-llama", "--json", cwd=folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            report = json.loads(done.stdout)
            self.assertTrue(report["verified"])
            self.assertEqual(len(report["refits"]), 3)
            for refit_report in report["refits"]:
                for field in ("bytes", "tensors", "bytes_delivered", "gbps", "seconds", "stall_seconds"):
                    self.assertIn(field, refit_report)
        self.assertEqual(leftovers(), [])


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
