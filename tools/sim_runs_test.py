# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import tempfile
import unittest

import sim_runs

BATCH = {"violations": 0, "liveness_failures": 1, "died": 0, "unequal": 0, "runs": 1000, "from": 500, "repeated": 50,
         "requests": 4100, "commits": 3900, "steps": 123456, "seconds": 2.5, "hash": "00ff", "failures": []}


class SimRunsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs").mkdir()

    def test_a_batch_is_a_row_with_its_commit_and_rows_are_summed(self):
        for start in (0, 1000):
            batch = {**BATCH, "from": start}
            sim_runs.append(self.root, sim_runs.row_of(json.loads(json.dumps(batch)), "abc123", "2026-11-30"))
        rows = sim_runs.read(self.root)
        self.assertEqual(len(rows), 2)
        self.assertEqual(rows[0]["commit"], "abc123")
        self.assertEqual(rows[1]["hash"], "00ff")
        self.assertEqual(sim_runs.sums(rows)["runs"], 2000)
        self.assertIn("2,000 runs in 2 batches", sim_runs.text_of(rows))
        self.assertIn("2 liveness failures", sim_runs.text_of(rows))

    def test_the_next_batch_takes_seeds_that_none_had(self):
        self.assertEqual(sim_runs.next_seed([]), 0)
        sim_runs.append(self.root, sim_runs.row_of(BATCH, "abc123", "2026-11-30"))
        self.assertEqual(sim_runs.next_seed(sim_runs.read(self.root)), 1500)

    def test_the_page_says_the_sum(self):
        (self.root / sim_runs.PAGE).write_text("# Testing\n\n**Runs so far:** none.\n\nMore.\n")
        sim_runs.append(self.root, sim_runs.row_of(BATCH, "abc123", "2026-11-30"))
        sim_runs.update_page(self.root, sim_runs.read(self.root))
        text = (self.root / sim_runs.PAGE).read_text()
        self.assertIn("**Runs so far:** 1,000 runs in 1 batches", text)
        self.assertTrue(text.endswith("\n\nMore.\n"))


if __name__ == "__main__":
    unittest.main()
