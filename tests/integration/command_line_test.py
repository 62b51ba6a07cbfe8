#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: real processes, real kills, exit codes, what is left behind.

usage: command_line_test.py BIN_FOLDER [unittest arguments]
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
from processes import DEADLINE, Fleet, SurvivingFleet, leftovers, refit, running, wait_for  # noqa: E402


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
            sync = subprocess.Popen([f"{processes.BIN}/refit", "sync", "--controller", fleet.controller.address,
                                     "--json", "--deadline", "20s"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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
            first = subprocess.Popen([f"{processes.BIN}/refit", "sync", "--controller", fleet.controller.address,
                                      "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for(lambda: fleet.ask("status")[1]["phase"] == "transferring", "transfer begun")
            code, error = fleet.ask("sync")
            self.assertEqual(code, 4, error)
            self.assertEqual(first.wait(DEADLINE), 0)


class WhatPeopleLookAt(unittest.TestCase):
    def test_the_history_has_what_became_of_every_request_with_and_without_a_controller(self):
        with SurvivingFleet(engines=2) as fleet:
            self.assertEqual(fleet.publish("one"), 1)
            code, failed = fleet.finish(subprocess.Popen(
                [f"{processes.BIN}/refit", "sync", *fleet.where(), "--source", "/nonexistent", "--request-id", "bad",
                 "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            self.assertEqual(code, 1, failed)
            code, history = fleet.ask("history")
            self.assertEqual(code, 0, history)
            self.assertEqual([(request["request_id"], request["outcome"]) for request in history["requests"]],
                             [("one", "published"), ("bad", "failed")])
            one, bad = history["requests"]
            self.assertEqual((one["version"], one["members"], one["excluded"], one["error"]), (1, [0, 1], [], None))
            self.assertRegex(one["digest"], r"^[0-9a-f]{32}$")
            for when in (one["began"], one["ended"], bad["ended"]):
                self.assertRegex(when, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertLessEqual(one["began"], one["ended"])
            self.assertIn("/nonexistent", bad["error"]["message"])
            address = ["--controller", fleet.controller.address]
            self.assertEqual(json.loads(refit("history", *address, "--json").stdout), history)
            fleet.controller.stop(signal.SIGKILL)
            self.assertEqual(fleet.ask("history"), (0, history))
            text = refit("history", *fleet.where()).stdout
            self.assertIn("published", text)
            self.assertIn("2 requests", text)

    def test_a_controller_in_memory_tells_its_history_too(self):
        with Fleet(engines=1) as fleet:
            self.assertEqual(fleet.ask("history")[1]["requests"], [])
            self.assertEqual(fleet.ask("sync")[0], 0)
            self.assertEqual([request["outcome"] for request in fleet.ask("history")[1]["requests"]], ["published"])

    def test_the_status_is_watched_until_ctrl_c(self):
        with Fleet(engines=1, engine_args=("--fault", "slow:update:2:2.0")) as fleet:
            watch = [f"{processes.BIN}/refit", "status", *fleet.where(), "--watch"]
            lines = subprocess.Popen([*watch, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            paragraphs = subprocess.Popen(watch, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for one in (lines, paragraphs):
                fleet.callback(one.stdout.close)
                fleet.callback(one.kill)
            self.assertEqual(json.loads(lines.stdout.readline())["engines"][0]["state"], "stale")
            sync = subprocess.Popen([f"{processes.BIN}/refit", "sync", *fleet.where()], stdout=subprocess.DEVNULL)
            moving = {}
            while not moving.get("bytes_delivered"):
                moving = json.loads(lines.stdout.readline())["engines"][0]
            self.assertEqual(moving["doing"], "transfer")
            self.assertLess(moving["bytes_delivered"], moving["bytes_total"])
            self.assertGreater(moving["gbps"], 0)
            self.assertEqual(sync.wait(DEADLINE), 0)
            while json.loads(lines.stdout.readline())["engines"][0]["state"] != "serving":
                pass
            text = ""
            while "serving" not in text:
                text += paragraphs.stdout.readline()
            self.assertNotIn("\x1b", text, "a log is no terminal")
            for one in (lines, paragraphs):
                one.send_signal(signal.SIGINT)
                self.assertEqual(one.wait(DEADLINE), 130)


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
                  f'"{processes.BIN}/refit" demo --random tiny-llama --json; code=$?; ls /dev/shm | wc -l; exit $code')
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

    def test_a_killed_engine_comes_back_and_no_answer_is_stale_or_mixed(self):
        """RX-COMMIT-08, RC-BIND-02, settled C9, C13."""
        with tempfile.TemporaryDirectory() as folder:
            done = refit("demo", "--random", "tiny-llama", "--kill", "engine-1", "--json", cwd=folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            report = json.loads(done.stdout)
            self.assertTrue(report["verified"] and report["recovered"])
            self.assertEqual((report["mixed_responses"], report["stale_responses"]), (0, 0), report["worst_response"])
            self.assertGreater(report["responses"], 10)
            self.assertTrue(report["rebound_peers"])
            self.assertEqual({peer.split()[0] for peer in report["rebound_peers"]}, {"engine-1"})
            self.assertLessEqual(report["time_to_return_seconds"] - report["launch_seconds"], 5)
            self.assertGreater(report["launch_seconds"], 0)
            self.assertEqual([text["when"].split(",")[0] for text in report["texts"]],
                             ["before", "after refit 1", "after the recovery of engine 1", "after refit 2",
                              "after refit 3"])
            self.assertEqual(report["texts"][1]["engines"], report["texts"][2]["engines"])
        refused = refit("demo", "--random", "tiny-llama", "--kill", "engine-2")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("engine-0 to engine-1", refused.stderr)
        self.assertEqual(leftovers(), [])


if __name__ == "__main__":
    processes.BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
