# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What rules.py takes for a proof, on small trees."""

import contextlib
import io
import json
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import rules
from rule_ids import listed_rules

CONTRACT = "".join(f"| RC-A-0{n} [A] | what must hold | why | ✗ mutation |\n" for n in range(1, 10))


class RulesTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("docs/spec/contract.md", CONTRACT)
        self.write("docs/spec/scope.md", "**Done:** RC-A\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def scope(self, *rows):
        self.write("docs/spec/scope.md", "**Done:** RC-A, RX-\\*\n" + "".join(f"| {row} |\n" for row in rows))

    def rule(self, name="RC-A-01"):
        return rules.read(self.root)[0][name]

    def proofs(self, name="RC-A-01"):
        return [(proof.kind, proof.name, proof.line) for proof in self.rule(name).proofs]

    def run_tool(self, *arguments):
        out = io.StringIO()
        with mock.patch("sys.argv", ["rules.py", "--root", str(self.root), *arguments]), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = rules.main()
        return code, out.getvalue()

    # What is a proof ----------------------------------------------------------------------------------------------

    def test_a_test_is_found_by_the_comment_above_it_its_signature_and_its_body(self):
        self.write("src/a_test.cc", "// RC-A-01, -03\nTEST(S, Above) {\n}\n\n"
                                    "TEST_F(S, Beside) {  // RC-A-02\n}\n"
                                    "TYPED_TEST_P(S, Inside) {\n  f();  // RC-A-02\n}\n")
        self.assertEqual(self.proofs("RC-A-01"), [("test", "S.Above", 2)])
        self.assertEqual(self.proofs("RC-A-02"), [("test", "S.Beside", 5), ("test", "S.Inside", 7)])
        self.assertEqual(self.proofs("RC-A-03"), [("test", "S.Above", 2)])

    def test_what_stands_between_tests_counts_for_the_file(self):
        self.write("src/a_test.cc", "// All of it: RC-A-01.\n\n// A helper.\nint f();\n\nTEST(S, T) {\n}\n")
        self.assertEqual(self.proofs(), [("test", "a_test.cc", 1)])

    def test_a_disabled_test_a_helper_and_a_file_without_tests_prove_nothing(self):
        self.write("src/a_test.cc", "// RC-A-01\nTEST(S, DISABLED_T) {\n}\n")
        self.write("tests/support/rig.h", "// RC-A-01\nTEST(S, T) {\n}\n")
        self.write("tests/suite.h", "// RC-A-01\n")
        self.write("src/a.cc", "// RC-A-01\n")
        self.assertEqual(self.proofs(), [])

    def test_a_test_in_python_ends_where_the_next_begins(self):
        self.write("tests/a_test.py", 'class A:\n    def test_one(self):\n        """RC-A-01"""\n\n        f()\n\n'
                                      "    def test_two(self):\n        pass  # RC-A-02\n\n\nX = 'RC-A-03'\n")
        self.assertEqual(self.proofs("RC-A-01"), [("test", "test_one", 2)])
        self.assertEqual(self.proofs("RC-A-02"), [("test", "test_two", 7)])
        self.assertEqual(self.proofs("RC-A-03"), [("test", "a_test.py", 1)])

    def test_a_fuzz_target_is_a_test(self):
        self.write("src/a_fuzz.cc", '// RC-A-01\nextern "C" int LLVMFuzzerTestOneInput(int) {\n}\n')
        self.assertEqual(self.proofs(), [("test", "a_fuzz.cc", 1)])

    def test_a_mutant_proves_the_rule_of_its_id_unless_it_is_owed(self):
        self.write("tests/mutants/a.txt", "RC-A-01/skip a_test S.T\nowed RC-A-02/skip later\n")
        self.assertEqual(self.rule("RC-A-01").status, "proved")
        self.assertEqual(self.rule("RC-A-02").status, "without proof")

    def test_a_scenario_names_rules_in_its_comments_only(self):
        self.write("sim/scenarios/kill.txt", "# RC-A-01\nstep RC-A-02\n---\n# RC-A-02\n")
        self.assertEqual(self.proofs("RC-A-01"), [("scenario", "kill", 1)])
        self.assertEqual(self.proofs("RC-A-02"), [])

    def test_a_planted_bug_has_the_rules_of_its_line_and_of_the_comment_above(self):
        self.write("sim/planted/a.txt", "# RC-A-01\nM3 inv-2 1000\nRC-A-02/x inv-1 10\n\n# RC-A-03\n\nM4 inv-4 10\n")
        self.assertEqual(self.proofs("RC-A-01"), [("planted", "M3", 2), ("planted", "RC-A-02/x", 3)])
        self.assertEqual(self.proofs("RC-A-02"), [("planted", "RC-A-02/x", 3)])
        self.assertEqual(self.proofs("RC-A-03"), [])

    def test_a_model_and_a_test_on_a_gpu_are_shown_and_do_not_count(self):
        self.write("models/commit.pml", "/* RC-A-01\n   RC-A-02 */\n")
        self.write("tests/gpu/a_test.cc", "// RC-A-01\nTEST(S, T) {\n}\n")
        self.assertEqual(self.proofs(), [("gpu test", "S.T", 2), ("model", "commit", 1)])
        self.assertEqual((self.rule().status, self.rule().reason), ("without proof", "only named by: gpu test, model"))

    def test_lists_of_rules(self):
        self.assertEqual(listed_rules("RX-B-02, -04…06 and RC-A-01 … -03, RX-C-T1…2, RX-D-T1…T2"),
                         {"RX-B-02", "RX-B-04", "RX-B-05", "RX-B-06", "RC-A-01", "RC-A-02", "RC-A-03", "RX-C-T1",
                          "RX-C-T2", "RX-D-T1", "RX-D-T2"})

    # What counts --------------------------------------------------------------------------------------------------

    def test_a_state_that_says_unproved_wins_over_what_names_the_rule(self):
        self.write("src/a_test.cc", "// RC-A-01, -02\nTEST(S, T) {\n}\n")
        self.scope("RC-A-01 | fleet issue | processes", "RC-A-02 | assumptions | the backend")
        self.assertEqual(self.rule("RC-A-01").status, "fleet issue")
        self.assertEqual(self.rule("RC-A-02").status, "proved")

    def test_owed_fails_where_the_family_is_done_and_nowhere_else(self):
        self.write("docs/spec/other.md", "| RC-B-01 | a rule |\n")
        self.scope("RC-A-01, RC-B-01 | owed | later")
        self.assertEqual(self.rule("RC-A-01").status, "without proof")
        self.assertEqual(self.rule("RC-B-01").status, "owed")

    def test_by_construction_needs_a_check_that_exists(self):
        self.write("tools/tidy.py", "")
        self.write("src/a_test.cc", "TEST(S, T) {\n}\n")
        self.scope("RC-A-01 | by construction | `tools/tidy.py`", "RC-A-02 | by construction | `S.T` sees it",
                   "RC-A-03 | by construction | trust me", "RC-A-04 | by construction | `tools/none.py`, `S.None`")
        self.assertEqual([self.rule(f"RC-A-0{n}").status for n in range(1, 5)],
                         ["by construction", "by construction", "without proof", "without proof"])

    # Fault scenarios ----------------------------------------------------------------------------------------------

    def test_a_scenario_of_processes_needs_a_test_that_names_it_or_a_reason(self):
        self.write("docs/spec/contract.md", "")
        self.write("docs/spec/scenarios.md", "| S01 | a kill | serving | S P |\n| S02 | a stop | any | P |\n"
                                             "| S03 | a cut | any | P G |\n| S04 | a loss | any | S |\n")
        self.scope("S03 | not built | the network")
        self.write("src/a_test.cc", "TEST(S, T) {  // S01, S04\n}\n")
        self.write("sim/scenarios/stop.txt", "# S02\n")
        self.write("tools/b_test.py", "# S02, S77\n\ndef test_x():\n    pass\n")
        code, out = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("S01 a kill: S.T\n", out)
        self.assertIn("S02: no test names it", out)
        self.assertIn("S03 a cut: not built: the network\n", out)
        self.assertNotIn("S04", out)
        self.assertIn("3 scenarios of processes: 1 proved, 1 not built, 1 without proof", out)
        self.write("tests/faults/rows.py", 'ROWS = [Row("serving/stop", "ok", stop, "S02")]\n')
        code, out = self.run_tool()
        self.assertEqual(code, 0)
        self.assertIn("S02 a stop: serving/stop\n", out)

    def test_a_scenario_that_does_not_exist_fails(self):
        self.write("docs/spec/contract.md", "")
        self.write("docs/spec/scenarios.md", "| S01 | a kill | serving | S |\n")
        self.write("src/a_test.cc", "TEST(S, T) {  // S01, S02\n}\n")
        code, out = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("src/a_test.cc:1: S02: no such rule", out)
        self.assertNotIn("S01", out)

    # What it prints -----------------------------------------------------------------------------------------------

    def test_it_fails_while_a_done_family_lacks_a_proof(self):
        self.scope("RC-A-01…08 | not built | never")
        code, out = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("RC-A-09: nothing names it", out)
        self.assertEqual(out.splitlines()[-1], "9 rules: 0 proved, 8 not built, 1 without proof")
        self.write("src/a_test.cc", "// RC-A-09\nTEST(S, T) {\n}\n")
        self.assertEqual(self.run_tool("--missing"), (0, "9 rules: 1 proved, 8 not built, 0 without proof\n"))

    def test_an_id_that_does_not_exist_fails(self):
        self.scope("RC-A-01…09 | not built | never")
        self.write("sim/scenarios/a.txt", "# RC-A-77\n")
        code, out = self.run_tool()
        self.assertEqual(code, 1)
        self.assertIn("sim/scenarios/a.txt:1: RC-A-77: no such rule", out)

    def test_one_rule_and_json(self):
        self.write("src/a_test.cc", "// RC-A-01\nTEST(S, T) {\n}\n")
        code, out = self.run_tool("RC-A-01")
        self.assertEqual(code, 0)
        self.assertIn("RC-A-01: proved", out)
        self.assertIn("S.T  (src/a_test.cc:2)", out)
        self.assertEqual(self.run_tool("RC-Z-01")[0], 2)
        found = json.loads(self.run_tool("--json")[1])
        self.assertEqual(found["counts"], {"proved": 1, "without proof": 8})
        self.assertEqual(found["rules"][0]["proofs"][0]["name"], "S.T")


if __name__ == "__main__":
    unittest.main()
