#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The recovery proof (RC-PROOF-03, -04): two engines, two policy workers, fault tolerance on. One engine crashes, the
monitor finds it by itself, it is replaced; the replacement's weights are overwritten with random values, one sync, and
every tensor is what it was. Nobody else was restarted or linked again.

usage: recovery_proof_test.py BIN_FOLDER [--python PYTHON] [unittest arguments]

With REFIT_NIXL (the folder of NIXL's wheel) also over nixl. With --python (one that has SGLang) both engines are
unmodified SGLang servers at TP 1 on the CPU, in an environment as tools/sglang/cpu_environment.sh sets it up, which
also gives their arguments in SGLANG_ARGUMENTS; else refit-engine.
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes
from processes import edited, wait_for

PYTHON = ""
LAUNCH = 300 if os.environ.get("SGLANG_ARGUMENTS") else 30  # seconds, of a server on a small, busy machine


def post(url, body, key="", timeout=60):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class ProofFleet(processes.SurvivingFleet):
    def __init__(self, profile, interval, transport=()):
        self.profile, self.interval, self.transport = profile, interval, transport
        super().__init__(engines=2, policies=2)

    def write_job(self, policies, engines):
        job = super().write_job(policies, engines)
        with edited(job) as content:
            kind = {"kind": "sglang", "tp": 1} if PYTHON else {"kind": "reference", "tp": 1}
            content.update({
                "job": {"name": "proof", "profile": self.profile},
                "engines": [{"slot": slot, **kind} for slot in range(engines)],
                "generation": {"use_fault_tolerance": True, "rollout_health_check_interval": self.interval,
                               "rollout_health_check_timeout": 5.0, "rollout_health_check_first_wait": 0.0},
                "deadlines": {"launch": f"{LAUNCH}s", "sync": f"{2 * LAUNCH}s"}, "verify": "always"})
        if PYTHON:
            self.model = os.path.join(self.folder, "model")
            subprocess.run([f"{processes.BIN}/write-checkpoint", "tiny", "1", self.model], check=True)
        return job

    def policy(self, rank):
        return self.role(f"policy-{rank}", "policy", "--rank", str(rank), *self.where(), "--source", self.model,
                         *self.transport[2:])

    def agent(self, slot, engine_args=()):
        words = ["agent", "--slot", str(slot), *self.where(), "--load-bytes", "16KiB", "--run-directory",
                 os.path.join(self.folder, f"run-{slot}"), *self.transport]
        if PYTHON:
            words += ["--engine", "sglang", "--python", PYTHON, "--tp", "1", "--", "--model-path", self.model,
                      *os.environ["SGLANG_ARGUMENTS"].split()]
        else:
            words += ["--engine", "reference", "--tp", "1", "--", "--model", self.model, "--family", "c"]
        return self.role(f"agent-{slot}", *words, deadline=LAUNCH)

    def engines(self):
        return self.ask("status")[1]["engines"]

    def publish(self, request_id, meanwhile=lambda: None):
        sync = self.sync(request_id, f"{2 * LAUNCH}s")
        meanwhile()
        out, err = sync.communicate(timeout=3 * LAUNCH)
        assert sync.returncode == 0, out or err

    def admin_key(self, slot):
        newest = max(glob.glob(os.path.join(self.folder, f"run-{slot}", "engine-*.yaml")) +
                     glob.glob(os.path.join(self.folder, f"run-{slot}", "engine-*.key")), key=os.path.getmtime)
        with open(newest, encoding="utf-8") as file:
            return re.search(r"[0-9a-f]{32}", file.read()).group()

    def check(self, slot, action):
        """One action of /weights_checker, whose success must be said (RC-RPC-01)."""
        url = self.engines()[slot]["url"]
        status, answer = post(f"{url}/weights_checker", {"action": action}, self.admin_key(slot))
        assert status == 200 and isinstance(answer, dict) and answer.get("success") is True, (action, status, answer)
        return answer

    def checksums(self, slot):
        return [rank["checksums"] for rank in self.check(slot, "checksum")["ranks"]]

    def generate(self, url):
        body = {"input_ids": [5, 6, 7, 8, 100, 101], "sampling_params": {"temperature": 0, "max_new_tokens": 8,
                                                                         "ignore_eos": True}}
        status, answer = post(f"{url}/generate", body)
        assert status == 200, answer
        return answer["output_ids"]

    def memory_of(self, slot):
        """The names under which that engine's life is given its loads, as the system has them."""
        life = self.engines()[slot]["incarnation"]
        return {name for name in processes.leftovers()
                if re.search(r"-l\d+-[0-9a-f]{12}$", name) and name[-12:] in life}

    def links_of(self, slot):
        """The links that its agent ever made, one line each."""
        with open(self.agents[slot].log, encoding="utf-8") as log:
            return re.findall(r"link to policy rank .*", log.read())

    def bound(self):
        """Slots of every BIND that was written, in order."""
        with open(self.controller.log, encoding="utf-8") as log:
            return [int(slot) for slot in re.findall(r" BIND slot=(\d+) ", log.read())]


class Recovery(unittest.TestCase):
    TRANSPORT = ()

    def prove(self, profile, interval, crash, found, at_the_refit=lambda fleet: None):
        with ProofFleet(profile, interval, self.TRANSPORT) as fleet:
            fleet.publish("baseline")
            before, memory, links = fleet.engines(), fleet.memory_of(1), fleet.links_of(1)
            sums = fleet.checksums(0)
            tokens = fleet.generate(before[0]["url"])
            self.assertEqual(sums, fleet.checksums(1))
            binds = len(fleet.bound())
            began = time.monotonic()
            crash(fleet, before[0]["pid"])
            found(fleet, before[0])
            noticed = time.monotonic() - began
            if profile == "strict":
                fleet.publish("recovers", lambda: at_the_refit(fleet))
            serves = lambda: fleet.engines()[0]["serving"] and fleet.engines()[0]["pid"] != before[0]["pid"]
            wait_for(serves, "the replacement serves", LAUNCH)
            returned = time.monotonic() - began

            after = fleet.engines()
            self.assertNotEqual(after[0]["incarnation"], before[0]["incarnation"])
            self.assertNotEqual(after[0]["url"], before[0]["url"], "on a port of its own")
            fleet.check(0, "snapshot")
            fleet.check(0, "reset_tensors")
            self.assertNotEqual(fleet.checksums(0), sums, "garbled")
            fleet.publish("repairs")
            if not PYTHON:  # a server's own comparison wants a GPU
                fleet.check(0, "compare")
            self.assertEqual(fleet.checksums(0), sums)
            code, verified = fleet.ask("verify")
            self.assertEqual((code, verified["differences"]), (0, 0), verified)

            self.assertEqual([after[1][name] for name in ("incarnation", "pid", "url")],
                             [before[1][name] for name in ("incarnation", "pid", "url")])
            self.assertEqual(fleet.memory_of(1), memory, "its memory, name by name")
            self.assertEqual(bool(memory), not self.TRANSPORT, "over nixl memory is a link's, and has no name")
            self.assertEqual(fleet.links_of(1), links, "its links")
            self.assertEqual(len(fleet.links_of(0)), 2 * len(links), "the replacement has its own")
            self.assertEqual(fleet.bound()[binds:], [0], "the replacement alone was bound")
            self.assertEqual(fleet.generate(after[0]["url"]), tokens, "asked at its own port")
            server = "SGLang " + after[0]["sglang_version"] if PYTHON else "refit-engine"
            print(f"{profile}{' over nixl' if self.TRANSPORT else ''}: {server}, "
                  f"{verified['parameters']} parameters of {verified['ranks']} ranks; noticed after {noticed:.2f} s, "
                  f"serves after {returned:.1f} s")

    @staticmethod
    def kill(_, pid):
        os.kill(pid, signal.SIGKILL)

    @staticmethod
    def left_its_slot(fleet, life):
        def gone():
            engine = fleet.engines()[0]
            return engine["incarnation"] != life["incarnation"] or engine["state"] in ("killing", "empty", "launching")
        wait_for(gone, "the monitor has found it", LAUNCH)

    def test_of_a_crash_that_the_monitor_finds_in_strict(self):
        """RC-PROOF-03: the slot is empty before any sync; the next one replaces the engine."""
        self.prove("strict", 1.0, self.kill, self.left_its_slot)

    def test_of_a_crash_that_the_monitor_finds_in_resilient(self):
        """RC-PROOF-03, RX-MEM-03: replaced at once, and caught up."""
        self.prove("resilient", 1.0, self.kill, self.left_its_slot)

    def test_of_a_crash_that_is_found_at_the_refit_boundary(self):
        """RC-PROOF-04, RC-REC-10, S02: the agent, who would have told, is stopped until a refit has been asked for."""
        def crash(fleet, pid):
            fleet.agents[0].process.send_signal(signal.SIGSTOP)
            self.kill(fleet, pid)

        def not_found(fleet, life):
            engine = fleet.engines()[0]
            self.assertEqual((engine["incarnation"], engine["state"]), (life["incarnation"], "serving"))
        self.prove("strict", 3600.0, crash, not_found,
                   lambda fleet: fleet.agents[0].process.send_signal(signal.SIGCONT))


@unittest.skipUnless(os.environ.get("REFIT_NIXL"), "no NIXL: REFIT_NIXL names no folder of its wheel")
class RecoveryOverNixl(Recovery):
    TRANSPORT = ("--transport", "nixl", "--nixl-library", os.environ.get("REFIT_NIXL", ""))


if __name__ == "__main__":
    processes.BIN = sys.argv.pop(1)
    if "--python" in sys.argv:
        at = sys.argv.index("--python")
        PYTHON = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main(verbosity=2)
