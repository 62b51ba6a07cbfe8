#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers that die, freeze or are replaced, as processes: nothing is lost, nothing done twice, no engine restarted.

usage: successor_test.py BIN_FOLDER [unittest arguments]
REFIT_SUCCESSOR_KILLS: how many syncs have their controller killed (default 20); REFIT_SUCCESSOR_SEED: when.
"""

import base64
import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import processes  # noqa: E402
from processes import DEADLINE, Fleet, SurvivingFleet, edited, free_port, refit, wait_for  # noqa: E402

GOAL = 2.0  # seconds from a controller's end, or its successor's start, until the fleet is consistent again
ETCD = "/usr/bin/etcd"


class EtcdFleet(SurvivingFleet):
    """The same with term and journal in an etcd of its own."""

    def write_job(self, policies, engines):
        self.etcd_url = f"http://127.0.0.1:{free_port()}"
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self.etcd = None
        self.start_etcd()
        self.callback(lambda: (self.etcd.kill(), self.etcd.wait()))
        job = super().write_job(policies, engines)
        self.state = self.etcd_url.replace("http", "etcd") + "/refit/smol"
        with edited(job) as content:
            content["controller"]["state_directory"] = self.state
        return job

    def start_etcd(self):
        with open(os.path.join(self.folder, "etcd.log"), "ab") as log:
            self.etcd = subprocess.Popen(
                [ETCD, "--data-dir", os.path.join(self.folder, "etcd"), "--name", "it",
                 "--listen-client-urls", self.etcd_url, "--advertise-client-urls", self.etcd_url,
                 "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
                 "--initial-cluster", f"it={self.peer_url}"], stdout=log, stderr=log)
        wait_for(lambda: self.read("") is not None, "etcd answers")

    def read(self, begin):
        """What follows in the keys that begin so, with their values; None: it does not answer."""
        key = f"/refit/smol/{begin}".encode()
        body = {"key": base64.b64encode(key).decode(),
                "range_end": base64.b64encode(key[:-1] + bytes([key[-1] + 1])).decode()}
        try:
            with urllib.request.urlopen(f"{self.etcd_url}/v3/kv/range", json.dumps(body).encode(), 5) as answer:
                return {base64.b64decode(entry["key"])[len(key):].decode(): base64.b64decode(entry["value"])
                        for entry in json.load(answer).get("kvs", [])}
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def commits(self):
        versions = sorted(int(version) for version in self.read("commit/"))
        records = [record for record in self.read("journal/").values() if record.split(b"\n")[0].endswith(b" COMMIT")]
        assert len(records) == len(versions), (records, versions)
        return versions


class AControllerThatDies(unittest.TestCase):
    Fleet = SurvivingFleet

    def test_at_any_moment_of_a_sync_loses_no_version_and_doubles_none(self):
        """RX-JRNL-01, RX-JRNL-04, RX-ONCE-01, RX-ONCE-02, RX-LEAD-01, S59."""
        kills = int(os.environ.get("REFIT_SUCCESSOR_KILLS", "20"))
        chance = random.Random(int(os.environ.get("REFIT_SUCCESSOR_SEED", "1")))
        with self.Fleet(engines=2) as fleet:
            fleet.publish("before")
            pids = fleet.engine_pids()
            began = time.monotonic()
            fleet.publish("for-its-time")
            usual = time.monotonic() - began
            versions, recoveries, decided = [], [], 0
            for n in range(kills):
                client = fleet.sync(f"request-{n}")
                time.sleep(chance.uniform(0, 1.2 * usual))  # the moment of the kill, not a wait for anything
                ended = fleet.kill_and_start()
                code, report = fleet.finish(client)
                self.assertEqual(code, 0, f"request-{n}: {report}")
                wait_for(fleet.consistent, f"the fleet after kill {n}")
                recoveries.append(time.monotonic() - ended)
                versions.append(report["version"])
                decided += not report["engines"]  # what the dead one had recorded
            self.assertEqual(fleet.engine_pids(), pids, "an engine was restarted")
            self.assertEqual(versions, sorted(set(versions)))
            commits = fleet.commits()
            self.assertEqual(len(commits), len(set(commits)))
            self.assertEqual(len(commits), kills + 2, "one COMMIT for each request, and for no other")
            self.assertEqual(commits[-1], versions[-1])
            for n, version in enumerate(versions):  # asked once more, each has the answer that it got
                self.assertEqual(fleet.publish(f"request-{n}"), version)
            code, verified = fleet.ask("verify")
            self.assertEqual((code, verified["verified"]), (0, True))
            recoveries.sort()
            print(f"{kills} kills, {decided} after the decision: consistent after {recoveries[kills // 2]:.2f} s, "
                  f"worst {recoveries[-1]:.2f} s (goal {GOAL} s)")


class AControllerThatDiesAtARecord(unittest.TestCase):
    def test_right_after_each_of_its_records_is_succeeded_without_loss(self):
        """RX-JRNL-01, RX-JRNL-04, RX-COMMIT-06, S59: before the decision, after it, and before anybody was told."""
        with SurvivingFleet(engines=2) as fleet:
            fleet.publish("before")
            pids = fleet.engine_pids()
            journal = sqlite3.connect(os.path.join(fleet.state, "controller.db"), timeout=5)
            fleet.callback(journal.close)
            kinds = ["INTENT", "COMMIT", "OUTCOME"]
            version = 1
            for kind in kinds:
                before, term = fleet.query("SELECT max(position), (SELECT term FROM authority) FROM journal")[0]
                client = fleet.sync(f"killed-after-{kind}")
                written = f"SELECT 1 FROM journal WHERE position > {before} AND type = '{kind}'"
                wait_for(lambda: journal.execute(written).fetchone(), f"a record {kind}", pause=0)
                fleet.kill_and_start()
                code, report = fleet.finish(client)
                self.assertEqual(code, 0, report)
                self.assertGreater(report["version"], version)
                version = report["version"]
                if kind in ("COMMIT", "OUTCOME"):
                    writer = fleet.query(f"SELECT term FROM journal WHERE version = {version}")[0][0]
                    self.assertEqual(writer, term, "what was decided was decided anew")
                wait_for(fleet.consistent, f"the fleet after a record {kind}")
            self.assertEqual(len(fleet.commits()), len(kinds) + 1)
            self.assertEqual(fleet.engine_pids(), pids)


@unittest.skipUnless(os.path.exists(ETCD), "no etcd on this machine: install etcd-server")
class AControllerThatDiesOverEtcd(AControllerThatDies):
    Fleet = EtcdFleet


class AControllerThatIsTakenOver(unittest.TestCase):
    Fleet = SurvivingFleet

    def take_over(self, freeze):
        with self.Fleet(engines=2) as fleet:
            fleet.publish("one")
            pids = fleet.engine_pids()
            old = fleet.controller
            if freeze:
                old.process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            fleet.start_controller()
            self.assertEqual(old.process.wait(DEADLINE), -signal.SIGKILL)
            wait_for(fleet.consistent, "the fleet under its second controller")
            print(f"taken over from a {'frozen' if freeze else 'living'} one in {time.monotonic() - began:.2f} s")
            self.assertEqual(fleet.publish("two"), 2)
            self.assertEqual(fleet.engine_pids(), pids)

    def test_while_it_lives_is_killed_and_succeeded(self):
        """RX-LEAD-05, S61."""
        self.take_over(freeze=False)

    def test_while_it_is_frozen_is_killed_and_succeeded(self):
        """RX-LEAD-05, S60."""
        self.take_over(freeze=True)

    def test_by_two_at_once_has_one_successor(self):
        """RX-LEAD-01, S61."""
        with self.Fleet(engines=1) as fleet:
            fleet.publish("one")
            fleet.controller.stop(signal.SIGKILL)
            both = [subprocess.Popen([f"{processes.BIN}/refit", "controller", "--config", fleet.job],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
            for one in both:
                fleet.callback(one.wait)
                fleet.callback(one.kill)
            wait_for(lambda: [one.poll() for one in both].count(None) == 1, "one of them ended")
            wait_for(fleet.consistent, "the fleet under the other one")
            self.assertEqual(fleet.publish("two"), 2)
            self.assertEqual([one.poll() for one in both].count(None), 1)


@unittest.skipUnless(os.path.exists(ETCD), "no etcd on this machine: install etcd-server")
class AControllerThatIsTakenOverOverEtcd(AControllerThatIsTakenOver):
    Fleet = EtcdFleet


class ProbedFleet(SurvivingFleet):
    """Of one engine that is probed, and whose faults come and go."""

    def write_job(self, policies, engines):
        job = super().write_job(policies, engines)
        with edited(job) as content:
            content["generation"] = {"use_fault_tolerance": True, "rollout_health_check_interval": 0.2,
                                     "rollout_health_check_timeout": 20.0, "rollout_health_check_first_wait": 0.0}
        self.faults = os.path.join(self.folder, "faults")
        return job

    def agent(self, slot, engine_args=()):
        return super().agent(slot, (*engine_args, "--fault-file", self.faults))

    def have(self, fault):
        """From now on this one and no other."""
        with open(self.faults + ".new", "w", encoding="utf-8") as file:
            file.write(fault + "\n")
        os.replace(self.faults + ".new", self.faults)

    def happened(self, route):
        try:
            with open(self.faults + ".hits", encoding="ascii") as file:
                return any(line.split()[2] == route for line in file)
        except FileNotFoundError:
            return False


class ASuccessor(unittest.TestCase):
    # RC-MON-04: it knows nothing of that probe; the agent, who makes it, does.
    def test_pauses_no_engine_under_a_probe_of_the_controller_before_it(self):
        with ProbedFleet(engines=1) as fleet:
            fleet.publish("first")
            fleet.have("hold:health:1")
            wait_for(lambda: fleet.happened("health"), "a probe is held")
            fleet.kill_and_start()
            sync = fleet.sync("second")
            wait_for(lambda: " BIND " in fleet.controller.said(), "the sync begins")
            fleet.have("slow:pause:1:0.001")  # lets the probe go, and notes a pause from here on
            code, report = fleet.finish(sync)
            self.assertEqual(code, 0, report)
            self.assertTrue(fleet.happened("pause"), "it was paused before")


class AControllerOfAnotherHost(unittest.TestCase):
    def test_cannot_be_killed_ends_by_itself_and_says_why(self):
        """RX-LEAD-02, RX-LEAD-04: exit code 6."""
        with SurvivingFleet(engines=1) as fleet:
            fleet.publish("one")
            old = fleet.controller
            fleet.query("UPDATE authority SET boot_id = 'another'")  # nobody of another boot can be killed
            fleet.start_controller()
            self.assertEqual(old.process.wait(DEADLINE), 6, "it asks the file once a second")
            wait_for(fleet.consistent, "the fleet under its second controller")
            self.assertEqual(fleet.publish("two"), 2)


@unittest.skipUnless(os.path.exists(ETCD), "no etcd on this machine: install etcd-server")
class AnEtcd(unittest.TestCase):
    def test_that_is_silent_for_a_while_delays_a_sync_and_nothing_else(self):
        """RX-JRNL-03: as in an election."""
        with EtcdFleet(engines=1) as fleet:
            fleet.publish("one")
            fleet.etcd.send_signal(signal.SIGSTOP)
            client = fleet.sync("two")
            with self.assertRaises(subprocess.TimeoutExpired):
                client.wait(2)
            fleet.etcd.send_signal(signal.SIGCONT)
            code, report = fleet.finish(client)
            self.assertEqual((code, report.get("version")), (0, 2), report)
            self.assertEqual(fleet.commits(), [1, 2])
            self.assertIsNone(fleet.controller.process.poll())

    def test_that_is_gone_ends_the_controller_and_the_next_one_goes_on(self):
        """RX-JRNL-03: exit code 5; no engine is restarted."""
        with EtcdFleet(engines=1, engine_args=("--fault", "slow:update:*:0.1")) as fleet:
            fleet.publish("one")
            pids = fleet.engine_pids()
            client = fleet.sync("two")
            wait_for(lambda: [record for record in fleet.read("journal/").values()
                              if b" INTENT\n" in record and b"two" in record], "the record INTENT", pause=0)
            fleet.etcd.kill()
            fleet.etcd.wait()
            self.assertEqual(fleet.controller.process.wait(DEADLINE), 5)
            fleet.start_etcd()
            fleet.start_controller()
            code, report = fleet.finish(client)
            self.assertEqual(code, 0, report)
            self.assertEqual(fleet.commits(), [1, report["version"]])  # 2 may be burned
            self.assertEqual(fleet.engine_pids(), pids)


class FixedPortFleet(Fleet):
    """Without a state directory: members know one address, and nothing outlives the controller."""

    def write_job(self, policies, engines):
        job = super().write_job(policies, engines)
        with edited(job) as content:
            content["controller"] = {"listen": f"127.0.0.1:{free_port()}"}
        return job


class AControllerWithoutAStateDirectory(unittest.TestCase):
    def test_is_followed_by_another_run_that_the_members_join(self):
        """A latch belongs to a run, and so does everything else (settled C16)."""
        with FixedPortFleet(engines=1) as fleet:
            self.assertEqual(fleet.ask("sync")[0], 0)
            before = fleet.ask("status")[1]
            fleet.controller.stop(signal.SIGKILL)
            fleet.start_controller()
            self.assertNotEqual(before["run"], fleet.ask("status")[1]["run"])

            def all_are_back():
                now = fleet.ask("status")[1]
                engine = now["engines"][0]
                return (engine["registered"] and engine["incarnation"] != before["engines"][0]["incarnation"] and
                        all(policy["registered"] for policy in now["policies"]))
            wait_for(all_are_back, "a new life of the engine, and the policy worker")
            self.assertEqual(fleet.ask("status")[1]["version"], 0)
            code, report = fleet.ask("sync")
            self.assertEqual((code, report.get("version")), (0, 1), report)
            self.assertEqual(fleet.ask("verify")[0], 0)


class AJournalInDoubt(unittest.TestCase):
    def test_is_not_acted_upon(self):
        """RX-JRNL-02, S63: exit code 5, and one line that says what to do."""
        with SurvivingFleet(engines=1) as fleet:
            fleet.publish("one")
            self.assertEqual(fleet.controller.stop(), 0)
            fleet.query("UPDATE journal SET payload = x'0102' WHERE type = 'COMMIT'")
            done = refit("controller", "--config", fleet.job, timeout=DEADLINE)
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("controller.db is corrupt", done.stderr)

    def test_of_a_full_disk_ends_its_controller_and_the_next_one_goes_on(self):
        """RX-JRNL-03, S63: exit code 5; the same request gets its answer from the successor."""
        with SurvivingFleet(engines=1) as fleet:
            fleet.publish("one")
            size = os.path.getsize(os.path.join(fleet.state, "controller.db-wal"))
            resource.prlimit(fleet.controller.process.pid, resource.RLIMIT_FSIZE, (size, size))
            client = fleet.sync("two")
            self.assertEqual(fleet.controller.process.wait(DEADLINE), 5)
            fleet.start_controller()
            code, report = fleet.finish(client)
            self.assertEqual((code, report.get("version")), (0, 2), report)


if __name__ == "__main__":
    processes.BIN = sys.argv.pop(1)
    unittest.main(verbosity=2)
