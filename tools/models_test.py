# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What models.py reads out of pan's output, and what it accepts."""

import pathlib
import unittest

import models

SUMMARY = """
(Spin Version 6.5.2 -- 6 December 2019)
{warning}
Full statespace search for:
	never claim         	- (none specified)
	assertion violations	+

State-vector 108 byte, depth reached 111, errors: {errors}
     2651 states, stored
     2178 states, matched
     4829 transitions (= stored+matched)
"""
COMPLETE = SUMMARY.format(warning="", errors=0)


def stopped(line):
    return f"{line}\npan: wrote bucket.pml.trail\n" + SUMMARY.format(warning="Warning: Search not completed", errors=1)


def table(row):
    return "[m]\nvariants = [\n" + row + "\n]\n"


class ReadPanTest(unittest.TestCase):
    def test_a_complete_search_without_errors_is_no_error(self):
        self.assertEqual(models.read_pan(COMPLETE), models.Outcome("no error", 2651))

    def test_a_broken_assertion_is_violated_and_says_which(self):
        outcome = models.read_pan(stopped("pan:1: assertion violated (rbuf[b]==((me*16)+k)) (at depth 56)"))
        self.assertEqual(outcome, models.Outcome("violated", 2651, "assertion violated (rbuf[b]==((me*16)+k))"))

    def test_an_acceptance_cycle_is_violated(self):
        self.assertEqual(models.read_pan(stopped("pan:1: acceptance cycle (at depth 8)")).verdict, "violated")

    def test_visited_states_of_a_fair_search_are_not_counted_twice(self):
        fair = COMPLETE.replace("2651 states, stored", "2651 states, stored (9999 visited)")
        self.assertEqual(models.read_pan(fair).states, 2651)

    def test_an_invalid_end_state_is_not_a_violation(self):
        self.assertEqual(models.read_pan(stopped("pan:1: invalid end state (at depth 3)")).verdict, "invalid end state")

    def test_a_search_cut_short_proves_nothing_whatever_else_it_found(self):
        cut = "error: max search depth too small\n"
        self.assertIn("cut short", models.read_pan(cut + COMPLETE).verdict)
        self.assertIn("cut short", models.read_pan(cut + stopped("pan:1: assertion violated 0 (at depth 9)")).verdict)

    def test_a_search_that_ran_out_of_memory_proves_nothing(self):
        for line in ("pan: out of memory", "pan: reached -DMEMLIM bound"):
            self.assertEqual(models.read_pan(f"{line}\n{COMPLETE}").verdict, "out of memory")

    def test_a_search_that_was_not_completed_proves_nothing(self):
        output = SUMMARY.format(warning="Warning: Search not completed", errors=0)
        self.assertEqual(models.read_pan(output).verdict, "search not completed")

    def test_output_without_a_summary_proves_nothing(self):
        self.assertEqual(models.read_pan("Segmentation fault").verdict, "no summary")


class JudgeTest(unittest.TestCase):
    def setUp(self):
        self.full = models.Variant("m", "", "no error", states=1000)
        self.mutant = models.Variant("m", "-DE1", "violated", by="rbuf")

    def test_the_expected_verdict_is_accepted(self):
        self.assertEqual(models.judge(self.full, models.Outcome("no error", 1000)), "")
        self.assertEqual(models.judge(self.mutant, models.Outcome("violated", 3, "assertion violated (rbuf)")), "")

    def test_another_verdict_is_not(self):
        self.assertIn("expected no error", models.judge(self.full, models.Outcome("violated", 1000, "x")))
        self.assertIn("expected violated", models.judge(self.mutant, models.Outcome("no error", 1000)))
        self.assertIn("expected violated", models.judge(self.mutant, models.Outcome("out of memory", 1000)))

    def test_less_than_half_of_the_recorded_states_is_vacuous(self):
        self.assertEqual(models.judge(self.full, models.Outcome("no error", 500)), "")
        self.assertIn("vacuous", models.judge(self.full, models.Outcome("no error", 499)))

    def test_another_assertion_than_the_named_one_is_not_accepted(self):
        self.assertIn("violated is", models.judge(self.mutant, models.Outcome("violated", 3, "assertion violated 0")))


class TableTest(unittest.TestCase):
    def test_the_real_table_is_readable_and_its_models_exist(self):
        variants = models.read_table((models.ROOT / "models/expected.toml").read_text())
        files = {file.stem for file in pathlib.Path(models.ROOT, "models").glob("*.pml")}
        self.assertEqual({v.model for v in variants}, files)
        for model in files:
            verdicts = {v.verdict for v in variants if v.model == model and v.tier == "ci"}
            self.assertEqual(verdicts, {"no error", "violated"}, model)

    def test_what_would_check_nothing_is_refused(self):
        for row in ('{flags = "", verdict = "no errors", states = 1}', '{flags = "", verdict = "no error"}',
                    '{flags = "", verdict = "violated", states = 5}',
                    '{flags = "", verdict = "violated", tiers = "all"}',
                    '{flags = "", verdict = "violated", tier = "never"}',
                    '{flags = "-DX", verdict = "violated"}, {flags = "-DX", verdict = "violated"}'):
            with self.assertRaises(ValueError, msg=row):
                models.read_table(table(row))

    def test_a_claim_is_searched_for_fair_cycles_and_the_rest_for_assertions(self):
        plain = models.commands(models.Variant("m", "-DX", "violated"), "m.pml")
        fair = models.commands(models.Variant("m", "-DX", "violated", claim="ends"), "m.pml")
        self.assertEqual(plain[0], ["spin", "-a", "-DX", "m.pml"])
        self.assertIn("-DSAFETY", plain[1])
        self.assertNotIn("-DSAFETY", fair[1])
        self.assertEqual(fair[2], ["./pan", "-a", "-f", "-N", "ends"])


if __name__ == "__main__":
    unittest.main()
