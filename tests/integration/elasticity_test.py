#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Engines that are added, drained, removed and restarted while training goes on, as processes (contract II.13).

usage: elasticity_test.py BIN_FOLDER [unittest arguments]
"""

import json
import os
import subprocess
import sys
import threading
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
from processes import DEADLINE, SurvivingFleet, edited, refit, running, wait_for  # noqa: E402


class ElasticFleet(SurvivingFleet):
    """Engines look after themselves (use_fault_tolerance), so that a joiner needs nobody's sync."""

    fault_tolerance = True

    def write_job(self, policies, engines):
        job = super().write_job(policies, engines)
        with edited(job) as content:
            content["verify"] = "on_request"
            if self.fault_tolerance:
                content["generation"] = {"use_fault_tolerance": True, "rollout_health_check_interval": 1.0,
                                         "rollout_health_check_timeout": 3.0, "rollout_health_check_first_wait": 0.0}
        return job

    def act(self, action, slot, *more):
        """Exit code and the one object."""
        done = refit("engine", action, str(slot), *self.where(), "--json", *more)
        return done.returncode, json.loads(done.stdout)

    def must(self, action, slot, *more):
        code, said = self.act(action, slot, *more)
        if code != 0:
            raise AssertionError(f"{action} {slot}: {said}")

    def join(self, slot, engine_args=()):
        self.must("add", slot)
        self.agents.append(self.agent(slot, engine_args))

    def engine(self, slot):
        return next(engine for engine in self.ask("status")[1]["engines"] if engine["slot"] == slot)

    def wait_serving(self, slot, version, deadline=DEADLINE):
        def serves():
            engine = self.engine(slot)
            return engine["serving"] and engine["version"] == version
        wait_for(serves, f"engine {slot} at version {version}", deadline)

    def handshakes(self, slot):
        """Links that the slot's agent has opened so far."""
        with open(os.path.join(self.folder, f"agent-{slot}.log"), encoding="utf-8") as log:
            return log.read().count(" proved over ")


class FleetWithoutFaultTolerance(ElasticFleet):
    fault_tolerance = False


class InFlight:
    """Requests that an engine works on, so many that they take it some time."""

    def __init__(self, url, count=16, tokens=900):
        self.url = url
        self.body = json.dumps({"input_ids": [1, 2, 3],
                                "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}}).encode()
        self.finishes = []
        self.threads = [threading.Thread(target=self.ask, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()
        wait_for(self.begun, "requests in flight", pause=0)

    def ask(self):
        request = urllib.request.Request(self.url + "/generate", self.body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            self.finishes.append(json.load(answer)["meta_info"]["finish_reason"]["type"])

    def begun(self):
        with urllib.request.urlopen(self.url + "/v1/loads", timeout=DEADLINE) as answer:
            return json.load(answer)["loads"][0]["num_total_reqs"] == len(self.threads)

    def join(self):
        """How they ended."""
        for thread in self.threads:
            thread.join(DEADLINE)
        return set(self.finishes)


class AFleetThatGrowsAndShrinks(unittest.TestCase):
    def test_is_refitted_and_proved_after_each_step_and_whoever_stays_is_left_alone(self):
        """RX-MEM-01, RX-MEM-04, RX-MEM-05, S78: 1 -> 3 -> 2 -> 4 -> 1 over one set of policy workers."""
        with ElasticFleet(engines=1, policies=2) as fleet:
            version = 0
            here = {0}
            known = {}

            def check():
                nonlocal version
                version += 1
                self.assertEqual(fleet.publish(f"step-{version}"), version)
                code, verified = fleet.ask("verify")
                self.assertEqual((code, verified["verified"]), (0, True), verified)
                status = fleet.ask("status")[1]["engines"]
                serving = {engine["slot"] for engine in status if engine["serving"] and engine["version"] == version}
                self.assertEqual(serving, here)
                for engine in status:
                    slot = engine["slot"]
                    if slot in here:
                        now = (engine["incarnation"], engine["pid"], fleet.handshakes(slot))
                        self.assertEqual(known.setdefault(slot, now), now, f"engine {slot} was touched")

            def remove(slot):
                pid = fleet.engine(slot)["pid"]
                fleet.must("remove", slot)
                self.assertFalse(running(pid))
                here.discard(slot)

            def add(slot):
                fleet.join(slot)
                here.add(slot)

            check()
            add(1)
            add(2)
            check()
            remove(1)
            check()
            add(3)
            add(4)
            check()
            for slot in (2, 3, 4):
                remove(slot)
            check()
            for slot in (1, 4):
                code, refused = fleet.act("add", slot)
                self.assertEqual(code, 4, refused)
                self.assertIn("never used again", refused["error"]["message"])
            fleet.kill_and_start()  # a successor knows it, too
            wait_for(lambda: fleet.ask("status")[0] == 0, "the successor")
            self.assertEqual(fleet.act("add", 1)[0], 4)
            wait_for(lambda: fleet.engine(0)["serving"], "the engine under the successor")
            check()


class AJoiner(unittest.TestCase):
    def test_that_comes_late_catches_up_without_a_sync(self):
        """RX-MEM-03, C13."""
        with ElasticFleet(engines=1) as fleet:
            self.assertEqual(fleet.publish("one"), 1)
            before = fleet.engine(0)
            fleet.join(1)
            fleet.wait_serving(1, 1)
            self.assertEqual(fleet.ask("verify")[0], 0)
            self.assertEqual(fleet.engine(0)["incarnation"], before["incarnation"])
            self.assertEqual(fleet.query("SELECT count(*) FROM journal WHERE type = 'COMMIT'"), [(1,)])

    def test_that_comes_during_a_refit_waits(self):
        """RX-MEM-02."""
        with ElasticFleet(engines=1) as fleet:
            fleet.agents[0].stop()
            fleet.agents[0] = fleet.agent(0, ("--fault", "slow:update:1:8.0"))
            client = fleet.sync("one")
            wait_for(lambda: fleet.ask("status")[1]["phase"] == "transferring", "the refit")
            fleet.join(1)
            self.assertIsNone(client.poll())
            joiner = fleet.engine(1)
            self.assertEqual((joiner["state"], joiner["version"]), ("stale", 0))
            code, report = fleet.finish(client)
            self.assertEqual((code, [engine["slot"] for engine in report["engines"]]), (0, [0]), report)
            fleet.wait_serving(1, 1)
            self.assertEqual(fleet.ask("verify")[0], 0)


class AnEngineThatIsDrained(unittest.TestCase):
    def test_answers_what_it_runs_sits_out_refits_and_comes_back(self):
        """RX-MEM-04, RX-MEM-03."""
        with ElasticFleet(engines=2) as fleet:
            self.assertEqual(fleet.publish("one"), 1)
            before = fleet.engine(0)
            requests = InFlight(before["url"])
            fleet.must("drain", 0)
            self.assertEqual(requests.join(), {"length"}, "a request in flight was aborted")
            self.assertEqual(fleet.engine(0)["service"], "drained")
            self.assertEqual(fleet.publish("two"), 2)
            after = fleet.engine(0)
            self.assertTrue(running(before["pid"]))
            self.assertEqual((after["serving"], after["version"], after["pid"]), (False, 1, before["pid"]))
            fleet.must("add", 0)
            fleet.wait_serving(0, 2)
            self.assertEqual(fleet.engine(0)["incarnation"], before["incarnation"])
            self.assertEqual(fleet.ask("verify")[0], 0)

    def test_has_its_requests_aborted_when_their_grace_is_over(self):
        """RX-MEM-04: finish or time out."""
        with ElasticFleet(engines=1) as fleet:
            self.assertEqual(fleet.publish("one"), 1)
            requests = InFlight(fleet.engine(0)["url"])
            fleet.must("drain", 0, "--grace", "0s")
            self.assertIn("abort", requests.join())
            code, refused = fleet.finish(fleet.sync("two"))
            self.assertEqual(code, 1)
            self.assertIn("0 engines in service", refused["error"]["message"])


class AnEngineThatIsRestarted(unittest.TestCase):
    def restart(self, fleet):
        self.assertEqual(fleet.publish("one"), 1)
        before = [fleet.engine(slot) for slot in (0, 1)]
        fleet.must("restart", 0)
        self.assertFalse(running(before[0]["pid"]))
        after = [fleet.engine(slot) for slot in (0, 1)]
        self.assertNotEqual(after[0]["incarnation"], before[0]["incarnation"])
        self.assertEqual(after[1]["incarnation"], before[1]["incarnation"])

    def test_is_a_new_life_that_catches_up_and_costs_no_restart(self):
        """RX-QUAR-04: four times in a row, more than its budget has."""
        with ElasticFleet(engines=2) as fleet:
            self.restart(fleet)
            for _ in range(3):
                fleet.wait_serving(0, 1)
                fleet.must("restart", 0)
            fleet.wait_serving(0, 1)
            self.assertEqual(fleet.ask("verify")[0], 0)

    def test_without_fault_tolerance_waits_for_the_next_sync(self):
        with FleetWithoutFaultTolerance(engines=2) as fleet:
            self.restart(fleet)
            self.assertEqual(fleet.publish("two"), 2)
            fleet.wait_serving(0, 2)
            fleet.must("remove", 1)
            pid = fleet.agents[1].process.pid
            self.assertEqual(fleet.publish("three"), 3)
            with open(fleet.agents[1].log, encoding="utf-8") as log:
                wait_for(lambda: "is retired" in log.read(), "the agent of the removed slot gives up")
            children = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
            self.assertEqual(children, "")


class Refusals(unittest.TestCase):
    def test_name_the_slot_and_what_to_do(self):
        with ElasticFleet(engines=1) as fleet:
            code, refused = fleet.act("drain", 7)
            self.assertEqual(code, 1)
            self.assertIn("no engine slot 7", refused["error"]["message"])
            self.assertEqual(fleet.act("add", 0)[0], 0)  # it is in service
            text = refit("agent", "--slot", "7", *fleet.where(), "--tp", "3", "--", "--model", fleet.model)
            self.assertEqual(text.returncode, 1)
            self.assertIn("refit engine add 7", text.stderr)
            like = refit("agent", "--config", fleet.job, "--slot", "7")
            self.assertEqual(like.returncode, 2)
            self.assertIn("--like", like.stderr)
            self.assertEqual(refit("engine", "drain").returncode, 2)


if __name__ == "__main__":
    processes.BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
