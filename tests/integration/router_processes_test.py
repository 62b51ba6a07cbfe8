#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The real router and controllers that die: who sends requests, and what is left behind.

usage: router_processes_test.py BIN_FOLDER [unittest arguments]
Skipped without REFIT_ROUTER_PYTHON (tests/support/routers.py).
"""

import os
import signal
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
import routers  # noqa: E402
from processes import SurvivingFleet, edited, running, wait_for  # noqa: E402


class RoutedFleet(SurvivingFleet):
    """A fleet with a router; without `block` it is the controller's own, under a fixed port."""

    def __init__(self, block=None, **more):
        self.block = block or {"sglang_router_port": processes.free_port(), "python": routers.PYTHON}
        self.url = f"http://127.0.0.1:{self.block['sglang_router_port']}"
        super().__init__(**more)

    def write_job(self, policies, engines):
        job = super().write_job(policies, engines)
        with edited(job) as content:
            content["generation"] = {"sglang_router_config": self.block}
        return job

    def status(self):
        return self.ask("status")[1]

    def await_listed(self, deadline=20.0):
        """Every engine under its own address, nobody else."""
        wanted = {engine["url"] for engine in self.status()["engines"]}
        wait_for(lambda: set(routers.listed(self.url) or ()) == wanted, "every engine is listed", deadline)


class Traffic:
    """One request after the other; what was not answered, and when."""

    def __init__(self, url):
        self.url = url
        self.over = threading.Event()
        self.answered = 0
        self.failed = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            status, answer = routers.generate(self.url)
            if status == 200:
                self.answered += 1
            else:
                self.failed.append((time.monotonic(), status, answer))
            time.sleep(0.005)

    def stop(self):
        self.over.set()
        self.thread.join()


@unittest.skipUnless(routers.PYTHON, "REFIT_ROUTER_PYTHON names no Python that has sglang-router")
class RouterTest(unittest.TestCase):
    def external(self, fleet_folder):
        router = routers.Router(fleet_folder)
        self.addCleanup(router.kill)
        return router

    def test_a_router_of_the_controller_ends_with_it_and_the_next_one_starts_another(self):
        with RoutedFleet() as fleet:
            fleet.publish("first")
            fleet.await_listed()
            before = fleet.status()["router"]
            self.assertTrue(before["answers"])
            fleet.controller.stop(signal.SIGKILL)
            ended = time.monotonic()
            wait_for(lambda: not running(before["pid"]), "the router ends with its owner", 2)
            gone = time.monotonic() - ended
            fleet.start_controller()
            started = time.monotonic()
            wait_for(lambda: routers.generate(fleet.url)[0] == 200, "requests are answered again", 20)
            print(f"router gone {gone * 1e3:.0f} ms after kill -9 of its controller, requests answered "
                  f"{time.monotonic() - started:.1f} s after the next one's start", file=sys.stderr)
            fleet.await_listed()
            after = fleet.status()["router"]
            self.assertEqual(after["url"], before["url"])
            self.assertNotEqual(after["pid"], before["pid"])
            fleet.controller.stop()
            wait_for(lambda: not running(after["pid"]), "the router ends with its owner", 5)

    def test_who_sends_requests_through_an_external_router_notices_no_takeover(self):
        """RC-RTR-04: a successor leaves its members listed while it hears them."""
        router = self.external(self.enterContext(processes.tempfile.TemporaryDirectory()))
        with RoutedFleet(router.block()) as fleet:
            fleet.publish("first")
            fleet.await_listed()
            traffic = Traffic(router.url)
            self.addCleanup(traffic.stop)
            for _ in range(3):
                fleet.kill_and_start()
                wait_for(fleet.consistent, "the fleet is consistent again")
                time.sleep(1.5)  # more than a period of the reconciling
            fleet.await_listed()
            traffic.stop()
            self.assertEqual(traffic.failed, [])
            self.assertGreater(traffic.answered, 50)

    def test_a_router_that_restarts_empty_is_told_again(self):
        """RC-RTR-04."""
        router = self.external(self.enterContext(processes.tempfile.TemporaryDirectory()))
        with RoutedFleet(router.block()) as fleet:
            fleet.publish("first")
            fleet.await_listed()
            router.kill()
            self.assertEqual(fleet.publish("without"), 2)  # nobody waits for it
            wait_for(lambda: not fleet.status()["router"]["answers"], "the status says so")
            router.start()
            back = time.monotonic()
            fleet.await_listed()
            took = time.monotonic() - back
            print(f"every engine is listed {took:.2f} s after the router was back", file=sys.stderr)
            self.assertLess(took, 3)
            self.assertEqual(routers.generate(router.url)[0], 200)


if __name__ == "__main__":
    processes.BIN = sys.argv.pop(1)
    unittest.main()
