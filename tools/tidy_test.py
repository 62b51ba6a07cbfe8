# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Each rule of tidy.py, mutants.py and purity.py on a small tree that breaks it, and on one that does not."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import mutants
import purity
import tidy

HEADER = "// Copyright\n// SPDX-License-Identifier: Apache-2.0\n"
PYTHON_HEADER = "# SPDX-License-Identifier: Apache-2.0\n"
TOOLS = pathlib.Path(__file__).resolve().parent


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.write("tools/layers.toml", (TOOLS / "layers.toml").read_text())

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def code(self, path, text):
        self.write(path, HEADER + text)

    def problems(self):
        return [f"{path}: {problem}" for path, _, problem in tidy.Tidy(self.root).run()]

    def expect(self, *parts):
        """Exactly one problem, and it says all of this."""
        found = self.problems()
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])


class TidyTest(Tree):
    def test_a_clean_tree_has_no_problem(self):
        self.code("src/refit/base/a.h", "#pragma once\n")
        self.code("src/refit/weights/b.cc", '#include <vector>\n#include "refit/base/a.h"\n')
        self.assertEqual(self.problems(), [])

    def test_a_lower_folder_may_not_include_a_higher_one(self):
        self.code("src/refit/sync/s.h", "#pragma once\n")
        self.code("src/refit/base/a.cc", '#include "refit/sync/s.h"\n')
        self.expect("src/refit/base/a.cc", "base includes refit/sync/s.h")

    def test_a_row_may_name_one_header(self):
        self.code("src/refit/stream/update_group.h", "#pragma once\n")
        self.code("src/refit/stream/bucket.h", "#pragma once\n")
        self.code("src/refit/sync/a.cc", '#include "refit/stream/update_group.h"\n#include "refit/stream/bucket.h"\n')
        self.expect("sync includes refit/stream/bucket.h")

    def test_config_sees_the_options_of_any_folder_and_nothing_else(self):
        self.code("src/refit/device/shm_options.h", "#pragma once\n")
        self.code("src/refit/device/copy.h", "#pragma once\n")
        self.code("src/refit/config/a.cc", '#include "refit/device/shm_options.h"\n#include "refit/device/copy.h"\n')
        self.expect("config includes refit/device/copy.h")

    def test_a_backend_sees_its_parent_but_not_its_sibling(self):
        self.code("src/refit/transport/transport.h", "#pragma once\n")
        self.code("src/refit/transport/loopback/l.h", "#pragma once\n")
        self.code("src/refit/transport/shm/a.cc",
                  '#include "refit/transport/transport.h"\n#include "refit/transport/loopback/l.h"\n')
        self.expect("shm/a.cc", "transport includes refit/transport/loopback/l.h")

    def test_the_reference_engine_is_closed_even_to_its_parent_and_to_runtime(self):
        self.code("src/refit/engine/reference/pickle_reader.h", "#pragma once\n")
        self.code("src/refit/engine/factory.cc", '#include "refit/engine/reference/pickle_reader.h"\n')
        self.code("src/refit/runtime/a.cc", '#include "refit/engine/reference/pickle_reader.h"\n')
        self.code("src/refit/engine/reference/b.cc", '#include "refit/engine/reference/pickle_reader.h"\n')
        found = self.problems()
        self.assertEqual(len(found), 2, found)
        self.assertTrue(all("closed" in f for f in found), found)

    def test_an_unknown_folder_needs_a_row(self):
        self.code("src/refit/base/a.h", "#pragma once\n")
        self.code("src/refit/nowhere/f.cc", '#include "refit/base/a.h"\n')
        self.expect("nowhere has no row")

    def test_a_third_party_header_outside_its_folder(self):
        self.code("src/refit/runtime/a.cc", "#include <nlohmann/json.hpp>\n")
        self.expect("nlohmann/json.hpp", "only engine, router, checkpoint, cli")

    def test_a_heavy_header_in_a_header(self):
        self.code("src/refit/cli/a.h", "#pragma once\n#include <nlohmann/json.hpp>\n")
        self.code("src/refit/cli/a.cc", '#include "refit/cli/a.h"\n')
        self.expect("nlohmann/json.hpp in a header")

    def test_threads_in_the_core(self):
        self.code("src/refit/sync/a.cc", "#include <thread>\n#include <sys/stat.h>\n")
        self.assertEqual(len(self.problems()), 2)

    def test_every_banned_word_is_found_and_its_replacement_named(self):
        for line in ("std::thread t;", "auto t = std::chrono::steady_clock::now();", "std::this_thread::sleep_for(d);",
                     'getenv("HOME");', "rand();", "out << std::endl;", "using namespace std;", "throw 1;",
                     "co_return;"):
            with self.subTest(line):
                self.code("src/refit/device/a.cc", line + "\n")
                self.expect("src/refit/device/a.cc", "(use ")

    def test_words_in_comments_and_strings_do_not_count(self):
        self.code("src/refit/device/a.cc",
                  '// never throw\nauto s = "try"; /* std::endl */ auto r = R"(catch)"; int n = 1\'0;\n')
        self.assertEqual(self.problems(), [])

    def test_an_exception_in_the_table_is_one(self):
        self.code("src/refit/exec/clock.cc", "auto t = std::chrono::steady_clock::now();\n")
        self.assertEqual(self.problems(), [])

    def test_sizes(self):
        self.code("src/refit/device/a.cc", "//" + " x" * 60 + "\n" + "\n" * 800)
        found = self.problems()
        self.assertEqual(len(found), 2, found)

    def test_marks_and_private_places(self):
        for text in ("FIX" "ME", "TO" "DO later", "see /wo" "rk/x", "https://py" "pi.org/x", "in /tm" "p/w/a"):
            with self.subTest(text):
                self.write("docs/a.md", text + "\n")
                self.expect("docs/a.md")
        self.write("docs/a.md", "TO" "DO(#12): later, homework/x\n")
        self.assertEqual(self.problems(), [])

    def test_a_missing_licence_line(self):
        self.write("tools/a.py", "pass\n")
        self.expect("SPDX")

    def test_an_unregistered_test(self):
        self.code("src/refit/base/a_test.cc", "")
        self.write("src/refit/base/CMakeLists.txt", "refit_module(base TESTS data_test.cc)\n")
        self.expect("unregistered")
        self.write("src/refit/base/CMakeLists.txt", "refit_module(base TESTS a_test.cc)\n")
        self.assertEqual(self.problems(), [])

    def test_dead_and_unguarded_headers(self):
        self.code("src/refit/base/a.h", "\n")
        found = self.problems()
        self.assertEqual(len(found), 2, found)

    def test_broken_links(self):
        self.write("docs/b.md", "# A Heading, `c`\n")
        self.write("docs/a.md", "[x](b.md#a-heading-c) [y](https://example.org) `[z](none.md)`\n")
        self.assertEqual(self.problems(), [])
        self.write("docs/a.md", "[x](c.md) [y](b.md#none)\n")
        self.assertEqual(len(self.problems()), 2)

    def test_rules_named_in_code_exist(self):
        self.write("docs/spec/c.md", "| RC-BKT-01 [b] | text |\n")
        self.code("src/refit/base/a.cc", "// RC-BKT-01 and RC-BKT-77\n")
        self.expect("RC-BKT-77")

    def test_a_rule_is_tested_or_in_the_scope(self):
        self.write("docs/spec/c.md", "".join(f"| RC-A-0{n} | text |\n" for n in range(1, 7)))
        self.write("docs/spec/scope.md", "| RC-A-01, -02…03 | owed |\n")
        self.code("tests/a_test.cc", "// RC-A-04, -05\n")
        self.write("tests/CMakeLists.txt", "a_test.cc")
        self.expect("RC-A-06: no test names it")

    def test_a_failure_row_names_a_test_that_exists(self):
        self.code("tests/a_test.cc", "TEST(Suite, IsThere) {}\n")
        self.write("tests/CMakeLists.txt", "a_test.cc")
        self.write("docs/failure-contract.md", "`Suite.IsThere` `Suite.IsNot` `end`\n")
        self.expect("Suite.IsNot: no such test")


class MutantsTest(Tree):
    """RC-TEST-01: a planted bug that no test notices is reported, and so is a test that proves nothing."""

    def test_tables_and_code_agree(self):
        self.write("tests/mutants/a.txt", "# comment\nRC-A-1/x a_test A.*\nowed RC-A-2 not yet\n")
        self.write("src/refit/base/a.cc", 'REFIT_MUTANT("RC-A-1/x", 1, 2)')
        rows, owed, problems = mutants.check(self.root)
        self.assertEqual((rows, owed, problems), ([("RC-A-1/x", "a_test", "A.*")], [("RC-A-2", "not yet")], []))

    def test_each_disagreement_is_named(self):
        self.write("tests/mutants/a.txt", "gone t F\ntwice t F\ntwice t F\nowed here later\nshort line\n")
        self.write("src/refit/base/a.cc",
                   'REFIT_MUTANT("new", 1, 2) REFIT_MUTANT("twice", 1, 2) REFIT_MUTANT(\n"here", 1, 2)')
        _, _, problems = mutants.check(self.root)
        self.assertEqual(len(problems), 5, problems)

    def test_survivors_and_empty_filters_are_no_kills(self):
        self.write("bin/t", '#!/bin/sh\n[ "$1" = --gtest_filter=none ] && exit 0\n'
                            '[ "$REFIT_MUTANT" = caught ] && exit 1\necho "[  PASSED  ] 1 test."\n')
        (self.root / "bin/t").chmod(0o755)
        rows = [("caught", "t", "A.*"), ("survivor", "t", "A.*"), ("empty", "t", "none"), ("missing", "u", "A.*")]
        self.assertEqual(mutants.run_all(self.root, rows, 2), 1)


@unittest.skipUnless(shutil.which("g++"), "needs g++")
class PurityTest(Tree):
    def impure(self, text):
        self.write("a.cc", text)
        subprocess.run(["g++", "-std=c++20", "-O1", "-c", "a.cc"], cwd=self.root, check=True)
        return purity.impure(self.root / "a.o")

    def test_containers_and_memory_are_pure(self):
        self.assertEqual(self.impure("#include <map>\n#include <string>\n#include <variant>\n#include <vector>\n"
                                     "int* f(std::map<int, std::string>& m, std::variant<int, char>& v) {"
                                     " m[1] += std::to_string(m.size()); std::vector<int> w(m.size()); w.push_back(1);"
                                     " m.at(9).substr(2); std::get<char>(v) = 1; return new int[w.size()]; }"), [])

    def test_a_clock_a_sleep_the_environment_and_a_thread_are_not(self):
        for name, text in {
                "system_clock::now": "#include <chrono>\nauto f() { return std::chrono::system_clock::now(); }",
                "nanosleep": "#include <time.h>\nvoid f() { timespec t{}; nanosleep(&t, nullptr); }",
                "getenv": '#include <cstdlib>\nauto f() { return std::getenv("A"); }',
                "abort": "#include <cstdlib>\nvoid f() { std::abort(); }",
                "refit::device::": "namespace refit::device { void g(); }\nvoid f() { refit::device::g(); }"}.items():
            with self.subTest(name):
                found = self.impure(text)
                self.assertEqual(len(found), 1, found)
                self.assertIn(name, found[0])


if __name__ == "__main__":
    unittest.main()
