#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The suite itself: a fault that did not happen, damage that the row does not allow, a leak and a wrong answer fail.

usage: self_test.py BIN_FOLDER [unittest arguments]
"""

import json
import os
import sys
import time
import unittest

import suite
import oracle
import processes
import traffic
from rows import Row


def nothing_happens(run):
    run.fleet.arm(run.slot, "exit:release")  # a call that no refit makes
    try:
        run.sync()
        run.fleet.await_hit(run.slot, "release", 2)
    finally:
        run.fleet.disarm(run.slot)


def forgets_to_break(run):
    run.sync()


def breaks_another(run):
    other = (run.slot + 1) % 3
    run.fleet.charge(other)
    run.broken = run.fleet.kill("engine", other)


def kills_unsaid(run):
    run.fleet.charge(run.slot)
    run.broken = run.fleet.kill("engine", run.slot)


def leaves_memory(run):
    run.broken = time.time()
    pid = run.fleet.role_pids()[f"agent-{run.slot}"]
    # Of an owner that lives, so that nobody on this host sweeps it away.
    known = next(name for name in os.listdir("/dev/shm") if name.startswith(f"refit-{pid}-"))
    with open(f"/dev/shm/{known}-left", "w", encoding="ascii"):
        pass


def leaves_a_file(run):
    run.broken = time.time()
    with open(os.path.join(os.environ["TMPDIR"], "left"), "w", encoding="ascii"):
        pass


def restarts_a_role(run):
    run.broken = run.fleet.kill("policy", run.slot)
    run.fleet.start_again("policy", run.slot)


class Rows(unittest.TestCase):
    def test_what_is_not_as_the_row_says_fails_it(self):
        acts = {"no fault": (nothing_happens, "release"), "nothing broken": (forgets_to_break, "nothing was broken"),
                "another broken": (breaks_another, "engines replaced"), "unsaid": (kills_unsaid, "engines replaced"),
                "a role": (restarts_a_role, "restarted"), "memory": (leaves_memory, "shared memory"),
                "a file": (leaves_a_file, "temporary folder")}
        oracle.PATIENCE = 2
        results = suite.run_rows([Row(f"self/{name}", "ok", act) for name, (act, _) in acts.items()])
        for name, result in zip(acts, results):
            self.assertIn(acts[name][1], result.get("failed", "passed"), name)
        for name in os.listdir("/dev/shm"):
            if name.startswith("refit-") and name.endswith("-left"):
                os.remove(f"/dev/shm/{name}")


class Judge(unittest.TestCase):
    """Version 1 is the model "a", committed at 10; 2 is "b", at 20."""

    def setUp(self):
        self.watch = traffic.Watch.__new__(traffic.Watch)
        self.watch.commits = [(1, 9.9, 10.0), (2, 19.9, 20.0)]
        self.watch.index_of = {"1": 0, "2": 1}
        self.watch.sources = {"1": "a", "2": "b"}
        self.watch.seen_at = 1e18
        self.traffic = traffic.Traffic.__new__(traffic.Traffic)
        self.traffic.watch = self.watch
        self.traffic.truths = {"a": [[(-0.5, 7), (-0.25, 8)]], "b": [[(-0.5, 7), (-1.0, 9)]]}

    def judge(self, arrived, ended, tokens, spans):
        answer = traffic.Answer(0, 0, arrived, ended, tokens, spans, False)
        return self.traffic.judge(answer)

    def test_an_answer_of_what_was_last_while_it_was_made_is_good(self):
        a, b = self.traffic.truths["a"][0], self.traffic.truths["b"][0]
        self.assertEqual(self.judge(11, 12, a, [("1", 0, 2)]), (False, False))
        self.assertEqual(self.judge(19, 21, a, [("1", 0, 2)]), (False, False))
        self.assertEqual(self.judge(19, 21, b, [("2", 0, 2)]), (False, False))
        self.assertEqual(self.judge(11, 12, a[:1], [("1", 0, 1)]), (False, False))

    def test_an_answer_of_an_older_version_or_of_none_is_stale(self):
        a = self.traffic.truths["a"][0]
        self.assertEqual(self.judge(21, 22, a, [("1", 0, 2)]), (True, False))
        self.assertEqual(self.judge(21, 22, a, [("default", 0, 2)])[0], True)

    def test_an_answer_of_a_version_that_is_not_committed_yet_is_stale(self):
        self.assertEqual(self.judge(11, 12, self.traffic.truths["b"][0], [("2", 0, 2)]), (True, False))

    def test_tokens_of_another_version_than_they_say_are_mixed(self):
        a, b = self.traffic.truths["a"][0], self.traffic.truths["b"][0]
        self.assertEqual(self.judge(21, 22, a, [("2", 0, 2)]), (False, True))
        self.assertEqual(self.judge(21, 22, [a[0], (-0.3, 9)], [("2", 0, 2)]), (False, True))
        self.assertEqual(self.judge(19, 21, [a[0], b[1]], [("1", 0, 1), ("2", 1, 2)]), (False, False))  # spanning


class Table(unittest.TestCase):
    def test_is_written_of_any_run(self):
        import report
        result = {"numbers": "", "detection": 0.01, "return": 1.0, "launch": None, "seconds": 2.0,
                  "answers": {key: 0 for key in vars(traffic.Counts()) if key != "worst"}}
        run = {"rows": [dict(result, row=row.name, expected=row.code) for row in suite.ROWS]}
        text = report.text_of(json.loads(json.dumps(run)))
        self.assertIn("| engine | Q, 0.010, 1.00 |", text)
        self.assertIn(f"{len(suite.ROWS)} rows", text)


if __name__ == "__main__":
    processes.BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2, warnings="ignore")
