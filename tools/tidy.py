#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what no compiler checks: layers, banned words, sizes, links. Standard library only, about a second.

    tidy.py [ROOT]

The tables are in tools/layers.toml. Prints `file:line: what is wrong (what to do)` and exits 1 when anything is.
"""

import fnmatch
import os
import pathlib
import re
import sys
import tomllib

from rule_ids import RULE, defined_rules, listed_rules

CODE = {".h", ".cc"}
TEXT = CODE | {".py", ".sh", ".md", ".txt", ".toml", ".cmake", ".proto", ".yaml", ".json", ""}
SPDX = "SPDX-License-Identifier: Apache-2.0"
# Tests beside the code, and what only they use: x_test.cc, x_prop_test.cc, x_fuzz.cc, x_test_rig.h, x_double.h.
TEST_FILE = re.compile(r"(_test(_\w+)?|_fuzz|_double)\.(cc|h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
# What does not count as code. A quote inside a number (1'000) begins no character.
NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/'                          # comments
    r'|R"(?P<d>[^()\s\\]*)\(.*?\)(?P=d)"'           # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                         # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'", re.S)  # characters


def code_only(text):
    """The text with comments and strings blanked, line numbers kept. Include lines keep their quotes."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group())
    parts, last = [], 0
    for match in INCLUDE.finditer(text):
        parts += [NOT_CODE.sub(blank, text[last:match.start()]), match.group()]
        last = match.end()
    return "".join(parts + [NOT_CODE.sub(blank, text[last:])])


def begins(path, prefixes):
    """Whether the path begins with one of the prefixes, or matches one that has a star."""
    return any(fnmatch.fnmatch(path, p) if "*" in p else path.startswith(p) for p in prefixes)


def within(folder, ancestor):
    return folder == ancestor or folder.startswith(ancestor + "/")


def is_test(path):
    return path.startswith(("tests/", "examples/")) or TEST_FILE.search(path) is not None


class Tidy:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        with open(self.root / "tools/layers.toml", "rb") as file:
            self.rules = tomllib.load(file)
        self.banned = [(re.compile(b["pattern"]), b) for b in self.rules.get("banned", [])]
        self.forbidden = [(re.compile(f["pattern"], re.M), f["why"]) for f in self.rules.get("forbidden_text", [])]
        self.texts = {}      # path -> text
        self.included = set()
        self.problems = []

    def say(self, path, line, problem):
        self.problems.append((path, line, problem))

    def run(self):
        self.read()
        known_rules = self.known_rules()
        for path, text in self.texts.items():
            self.check_text(path, text)
            if path.endswith(".md"):
                self.check_links(path, text)
            if pathlib.PurePath(path).suffix in CODE:
                self.check_code(path, text)
                self.check_rules_exist(path, text, known_rules)
        self.check_dead_headers()
        self.check_scope(known_rules)
        self.check_proofs()
        return sorted(self.problems)

    def read(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [f for f in folders if f not in (".git", "__pycache__") and not re.match(r"build($|-)", f)]
            for name in files:
                path = pathlib.Path(folder, name)
                if path.suffix in TEXT and not path.is_symlink():
                    try:
                        self.texts[path.relative_to(self.root).as_posix()] = path.read_text("utf-8")
                    except UnicodeDecodeError:
                        pass  # a golden or a corpus file

    # Every kind of text -------------------------------------------------------------------------------------------

    def check_text(self, path, text):
        if path.startswith("tests/corpus/"):
            return
        lines = text.split("\n")
        suffix = pathlib.PurePath(path).suffix
        if suffix in CODE | {".py", ".sh", ".proto"}:
            limits = self.rules["limits"]
            if SPDX not in "\n".join(lines[:4]):
                self.say(path, 1, f"no '{SPDX}' in the first lines (copy the two-line header of another file)")
            if len(lines) > limits["lines"]:
                self.say(path, len(lines), f"{len(lines)} lines, more than {limits['lines']} (make it two files)")
            for number, line in enumerate(lines, 1):
                if len(line) > limits["columns"]:
                    self.say(path, number, f"{len(line)} columns, more than {limits['columns']} (break the line)")
        if path == "LICENSE":
            return
        for pattern, why in self.forbidden:
            for match in pattern.finditer(text):
                self.say(path, text.count("\n", 0, match.start()) + 1, f"'{match.group().strip()}' ({why})")

    # Code ---------------------------------------------------------------------------------------------------------

    def check_code(self, path, text):
        code = code_only(text)
        for match in INCLUDE.finditer(code):
            line = code.count("\n", 0, match.start()) + 1
            self.included.add(match.group(2))
            self.included.add((pathlib.PurePath(path).parent / match.group(2)).as_posix())
            if path.startswith("src/refit/"):
                self.check_include(path, line, match.group(2))
        for pattern, rule in self.banned:
            if not begins(path, rule["allow"]):
                for match in pattern.finditer(code):
                    line = code.count("\n", 0, match.start()) + 1
                    self.say(path, line, f"'{match.group().strip()}' (use {rule['instead']})")
        if path.endswith(".h") and "#pragma once" not in code:
            self.say(path, 1, "a header without #pragma once (add it)")
        if re.search(r"_(test|fuzz)\.cc$", path):
            self.check_registered(path)

    def check_registered(self, path):
        """A test that no CMakeLists.txt names never runs."""
        folder = pathlib.PurePath(path).parent
        for parent in [folder, *folder.parents]:
            listing = self.texts.get((parent / "CMakeLists.txt").as_posix(), "")
            relative = pathlib.PurePath(path).relative_to(parent).as_posix()
            if re.search(rf"(?<![\w/]){re.escape(relative)}(?!\w)", listing):
                return
        self.say(path, 1, "an unregistered test (list it in a CMakeLists.txt)")

    def check_include(self, path, line, header):
        source = pathlib.PurePath(path).parent.relative_to("src/refit").as_posix()
        for prefix, rule in self.rules["third_party"].items():
            if header.startswith(prefix):
                self.check_third_party(path, line, header, source, rule)
                return
        if header.startswith("refit/"):
            if not is_test(path):
                self.check_layer(path, line, header.removeprefix("refit/"), source)
        elif any(within(source, c) for c in self.rules["core"]) and not is_test(path):
            forbidden = self.rules["core_forbids"]["headers"]
            if any(header == f or f.endswith("/") and header.startswith(f) for f in forbidden):
                self.say(path, line, f"<{header}> in the pure core (its subject belongs to an edge folder)")

    def check_third_party(self, path, line, header, source, rule):
        if is_test(path):
            return
        if not any(within(source, f) for f in rule["folders"]):
            where = ", ".join(rule["folders"]) or "tests"
            self.say(path, line, f"{header} (only {where} may include it)")
        elif rule["sources"] and path.endswith(".h"):
            self.say(path, line, f"{header} in a header (include it in the .cc file)")

    def check_layer(self, path, line, header, source):
        target = pathlib.PurePath(header).parent.as_posix()
        closed = next((c for c in self.rules["closed"] if within(target, c)), None)
        if closed and not within(source, closed):
            self.say(path, line, f"refit/{header} ({closed} is closed to every other folder)")
            return
        if within(source, target) or within(target, source):
            return
        row = source
        while row not in self.rules["layers"] and "/" in row:
            row = row.rsplit("/", 1)[0]
        if row not in self.rules["layers"]:
            self.say(path, line, f"folder {source} has no row (add it to tools/layers.toml and docs/architecture.md)")
            return
        for entry in self.rules["layers"][row]:
            if header == entry or "*" in entry and fnmatch.fnmatch(header, entry) or within(target, entry):
                return
        allowed = ", ".join(self.rules["layers"][row]) or "the standard library"
        self.say(path, line, f"{row} includes refit/{header} (it may include: {allowed})")

    def check_dead_headers(self):
        for path in self.texts:
            if path.startswith("src/") and path.endswith(".h"):
                name = path.removeprefix("src/")
                if name not in self.included and path not in self.included:
                    self.say(path, 1, "a dead header: nothing includes it (delete it)")

    # Documents ----------------------------------------------------------------------------------------------------

    def check_links(self, path, text):
        text = re.sub(r"```.*?```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
        text = re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), text)
        for match in LINK.finditer(text):
            target = match.group(1) or match.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            line = text.count("\n", 0, match.start()) + 1
            there = pathlib.PurePath(path)
            if file:
                there = pathlib.PurePath(os.path.normpath(there.parent / file))
            if not (self.root / there).exists():
                self.say(path, line, f"link to {target}: no such file (mend the link)")
            elif anchor and there.suffix == ".md" and anchor not in self.anchors(there.as_posix()):
                self.say(path, line, f"link to {target}: no such heading (mend the link)")

    def anchors(self, path):
        headings = re.findall(r"^#+ +(.*?) *$", self.texts.get(path, ""), re.M)
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}

    def known_rules(self):
        """The rules that docs/spec defines: first cell of a table row."""
        known = set()
        for path, text in self.texts.items():
            if path.startswith("docs/spec/"):
                known |= defined_rules(text).keys()
        return known

    def check_scope(self, known):
        """A rule is named by a test, or docs/spec/scope.md says why not."""
        scope = self.texts.get("docs/spec/scope.md")
        if scope is None:
            return
        tested = {rule for path, text in self.texts.items() if is_test(path) or path.endswith("_test.py")
                  for rule in listed_rules(re.sub(r"^owed .*", "", text, flags=re.M))}
        owed = listed_rules(scope)
        for rule in sorted(known - tested - owed):
            self.say("docs/spec/scope.md", 1, f"{rule}: no test names it (write one, or say here what it waits for)")
        for rule in sorted(owed - known):
            self.say("docs/spec/scope.md", 1, f"{rule}: no such rule (mend the id)")

    def check_proofs(self):
        """The tests that the failure contract names exist."""
        tests = {f"{suite}.{name}" for path, text in self.texts.items() if path.endswith(".cc")
                 for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text, re.M)}
        page = "docs/failure-contract.md"
        for match in re.finditer(r"`([A-Z]\w+\.[A-Z]\w+)`", self.texts.get(page, "")):
            if match.group(1) not in tests:
                line = self.texts[page].count("\n", 0, match.start()) + 1
                self.say(page, line, f"{match.group(1)}: no such test (name the one that proves this row)")

    def check_rules_exist(self, path, text, known):
        if not known:
            return
        for match in RULE.finditer(text):
            if match.group() not in known:
                line = text.count("\n", 0, match.start()) + 1
                self.say(path, line, f"{match.group()}: no such rule in docs/spec (mend the id)")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    tidy = Tidy(root)
    problems = tidy.run()
    for path, line, problem in problems:
        print(f"{path}:{line}: {problem}")
    print(f"tidy: {len(tidy.texts)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
