#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Says rule by rule what proves it. Exits 1 when a rule of a family that is marked done has no proof, or when no test
shows a fault scenario of processes (docs/spec/scenarios.md, tier P).

    rules.py                the families, the scenarios, and what fails
    rules.py --missing      every rule without proof, and why
    rules.py --json         everything
    rules.py RC-KILL-05     one rule: its text, its state, its proofs (RC-KILL: the whole family; S27: a scenario)

The rules are those of docs/spec. A proof is a test, a scenario, a planted bug or a mutant that names the rule
(docs/testing.md, "What proves a rule"). docs/spec/scope.md has the states of rules and the families that are done.
"""

import argparse
import collections
import dataclasses
import fnmatch
import json
import pathlib
import re
import sys

import mutants
from rule_ids import SCENARIO, defined_rules, family, listed_rules

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCOPE = "docs/spec/scope.md"
SCENARIOS = "docs/spec/scenarios.md"
PROOFS = ("test", "scenario", "planted", "mutant")
# A model justifies a rule and proves no code. CI has no GPU.
OTHERS = ("model", "gpu test")
# Whatever names the rule, these say that it is not proved.
UNPROVED_STATES = ("owed", "not built", "fleet issue", "retired", "refused: text only", "run by hand")
# What a rule of a done family may be instead of proved.
ALLOWED_WHEN_DONE = ("fleet issue", "not built", "retired", "assumptions", "by construction")

CC_TEST = re.compile(r"((?:^[ \t]*//[^\n]*\n)*)^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\).*?^\}", re.M | re.S)
PY_TEST = re.compile(r"^( *)def (test_\w+)\(.*?(?=^\1(?:def|class|@)\b|^(?!\1)[ ]*\S|\Z)", re.M | re.S)
FUZZ = re.compile(r"\bLLVMFuzzerTestOneInput\b")


@dataclasses.dataclass(frozen=True, order=True)
class Proof:
    kind: str
    name: str
    file: str
    line: int


@dataclasses.dataclass
class Rule:
    id: str
    text: str
    done: bool = False
    state: str = ""      # of scope.md
    reason: str = ""     # its third column; or why there is no proof
    status: str = ""     # proved, without proof, or the state
    proofs: list = dataclasses.field(default_factory=list)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def tests_of(path, text):
    """[(name, begin, end)] of the file's tests, the comment right above included; None where it has none at all."""
    if path.endswith(".py"):
        found = [(m.group(2), m.start(), m.end()) for m in PY_TEST.finditer(text)]
        return found if found or path.startswith("tests/") else None
    found = [(f"{m.group(2)}.{m.group(3)}", m.start(), m.end()) for m in CC_TEST.finditer(text)]
    return found if found or FUZZ.search(text) else None


def proofs_of_tests(path, text):
    """(what it says, Proof) of each test; what stands outside tests is said of the whole file."""
    tests = tests_of(path, text)
    if tests is None:
        return
    kind = "gpu test" if path.startswith("tests/gpu/") else "test"
    outside = text
    for name, begin, end in tests:
        body = text[begin:end]
        outside = outside[:begin] + re.sub(r"[^\n]", " ", body) + outside[end:]
        if "DISABLED_" not in name:
            first_code = begin + re.match(r"(?:[ \t]*//[^\n]*\n)*", body).end()
            yield body, Proof(kind, name, path, line_of(text, first_code))
    yield outside, Proof(kind, pathlib.PurePath(path).name, path, 1)


def proofs_of_rows(kind, path, text):
    """Of a text with a row per proof, named by its first word: the row and the comment right above."""
    above = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            above = ""
        elif words[0].startswith("#"):
            above += line + "\n"
        else:
            yield above + line, Proof(kind, words[0], path, number)


def proofs_in_comments(kind, path, text):
    """Of a text that is one proof: its comments."""
    comment = r"//[^\n]*|/\*.*?\*/" if path.endswith(".pml") else r"^[ \t]*#[^\n]*"
    comments = "\n".join(re.findall(comment, text, re.M | re.S))
    yield comments, Proof(kind, pathlib.PurePath(path).stem, path, 1)


def proofs_of_faults(path, text):
    """Of the fault suite: each line that names a scenario, by the row that it is of."""
    for number, line in enumerate(text.splitlines(), 1):
        if SCENARIO.search(line):
            row = re.search(r'Row\("([^"]+)"', line)
            yield line, Proof("test", row.group(1) if row else pathlib.PurePath(path).name, path, number)


def is_test_file(path):
    name = pathlib.PurePath(path).name
    if path.startswith("tests/"):
        return name.endswith((".cc", ".h", ".py")) and not path.startswith("tests/support/")
    return re.search(r"(_test(_\w+)?\.(cc|h)|_fuzz\.cc|_test\.py)$", name) is not None


def readers(path):
    """What reads the file at this path: a function of its text, or None."""
    if fnmatch.fnmatch(path, "sim/scenarios/*.txt"):
        return lambda text: proofs_in_comments("scenario", path, text.split("\n---\n")[0])  # below: what happened
    if fnmatch.fnmatch(path, "sim/planted/*.txt"):
        return lambda text: proofs_of_rows("planted", path, text)
    if fnmatch.fnmatch(path, "models/*.pml"):
        return lambda text: proofs_in_comments("model", path, text)
    if fnmatch.fnmatch(path, "tests/faults/*.py") and not path.endswith("self_test.py"):
        return lambda text: proofs_of_faults(path, text)
    if is_test_file(path):
        return lambda text: proofs_of_tests(path, text)
    return None


def proofs_of_mutants(root):
    for mutant, program, test_filter in mutants.read_tables(root)[0]:
        yield mutant, Proof("mutant", f"{mutant}, noticed by {test_filter}", f"bin/{program}", 0)


def all_proofs(root):
    for folder in ("src", "sim", "tests", "tools", "models"):
        for file in sorted((root / folder).rglob("*")):
            path = file.relative_to(root).as_posix()
            reader = readers(path)
            if reader and file.is_file():
                yield from reader(file.read_text("utf-8", errors="replace"))
    yield from proofs_of_mutants(root)


def read_scope(text):
    """The patterns of families that are done, and rule -> (state, third column)."""
    done = re.search(r"^\*\*Done:\*\*(.*?)$", text, re.M)
    states = {}
    for rules, state, reason in re.findall(r"^\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|", text, re.M):
        for rule in listed_rules(rules).union(SCENARIO.findall(rules)):
            states[rule] = (state.strip(), reason.strip())
    return re.findall(r"\b(?:RC|RX)-(?:[A-Z]+|\*)", done.group(1).replace("\\", "")) if done else [], states


def names_a_check(reason, tests, root):
    """Whether it names a tool or a test that exists: a promise by construction is one that something checks."""
    return any(name in tests or re.match(r"tools/\w+\.py$", name) and (root / name).exists()
               for name in re.findall(r"`([^`]+)`", reason))


def judge(rule, tests, root):
    proved = any(proof.kind in PROOFS for proof in rule.proofs)
    if rule.state in UNPROVED_STATES:
        rule.status = rule.state
    elif proved:
        rule.status = "proved"
    elif rule.state == "by construction" and not names_a_check(rule.reason, tests, root):
        rule.status, rule.reason = "without proof", f"by construction, and {SCOPE} names no tool or test that checks it"
    elif rule.state:
        rule.status = rule.state
    else:
        rule.status, rule.reason = "without proof", f"nothing names it, and {SCOPE} does not say why"
        if rule.proofs:
            rule.reason = f"only named by: {', '.join(sorted({proof.kind for proof in rule.proofs}))}"
    if rule.done and rule.status not in ("proved", "without proof", *ALLOWED_WHEN_DONE):
        rule.status, rule.reason = "without proof", f"{rule.state} in a family marked done: {rule.reason}"
        if proved:
            rule.reason += f" (but {len(rule.proofs)} name it: if it is true by now, delete it from {SCOPE})"


def judge_scenario(scenario):
    """Only a test shows it; the simulator has a tier of its own."""
    scenario.done = True
    if scenario.state:
        scenario.status = scenario.state
    elif any(proof.kind == "test" for proof in scenario.proofs):
        scenario.status = "proved"
    else:
        scenario.status, scenario.reason = "without proof", f"no test names it, and {SCOPE} does not say why"


def read_scenarios(text):
    """Those of processes, of all."""
    found = re.findall(r"^\| (S\d\d) \|(.*)\| *([SPG ]+?) *\|$", text, re.M)
    return {name: Rule(name, what) for name, what, tiers in found if "P" in tiers}, {name for name, _, _ in found}


def read(root):
    """Every rule and every scenario of processes, judged, and problems: ids that no page of docs/spec defines."""
    rules = {}
    for page in sorted((root / "docs/spec").glob("*.md")):
        if page.name != pathlib.PurePath(SCOPE).name:
            for name, text in defined_rules(page.read_text("utf-8")).items():
                rules.setdefault(name, Rule(name, text))
    page = root / SCENARIOS
    scenarios, numbers = read_scenarios(page.read_text("utf-8") if page.exists() else "")
    done, states = read_scope((root / SCOPE).read_text("utf-8"))
    tests, problems = set(), []
    for said, proof in all_proofs(root):
        tests.add(proof.name)
        if proof.file.startswith("tools/"):  # the tests of these tools make ids up
            said = " ".join(listed_rules(said).intersection(rules))
        for name in sorted(listed_rules(said).union(SCENARIO.findall(said))):
            if name in rules or name in scenarios:
                (rules.get(name) or scenarios[name]).proofs.append(proof)
            elif name not in numbers:
                problems.append(f"{proof.file}:{proof.line}: {name}: no such rule in docs/spec (mend the id)")
    for rule in rules.values():
        rule.done = any(fnmatch.fnmatch(family(rule.id), pattern) for pattern in done)
    for rule in [*rules.values(), *scenarios.values()]:
        rule.state, rule.reason = states.get(rule.id, ("", ""))
    for rule in rules.values():
        judge(rule, tests, root)
    for scenario in scenarios.values():
        judge_scenario(scenario)
    return rules, scenarios, problems


def failing(rules):
    return [rule for rule in rules if rule.done and rule.status == "without proof"]


def counts(rules):
    """status -> how many: proved first, without proof last and always."""
    found = collections.Counter(rule.status for rule in rules)
    middle = sorted(set(found) - {"proved", "without proof"}, key=lambda status: -found[status])
    return {status: found[status] for status in ["proved", *middle, "without proof"]}


def print_families(rules):
    kinds = [*PROOFS, *OTHERS]
    heads = [kind if kind == "planted" else kind + "s" for kind in kinds]
    print(f"{'family':<13}{'rules':>6}{'proved':>8}{'without':>9}   " + "".join(f"{h:>11}" for h in heads) + "   else")
    for name in dict.fromkeys(family(rule.id) for rule in rules):
        members = [rule for rule in rules if family(rule.id) == name]
        count = counts(members)
        used = collections.Counter(proof.kind for proof in {p for rule in members for p in rule.proofs})
        rest = ", ".join(f"{n} {status}" for status, n in count.items() if status not in ("proved", "without proof"))
        print(f"{name + (' ✓' if members[0].done else ''):<13}{len(members):>6}{count['proved']:>8}"
              f"{count['without proof']:>9}   " + "".join(f"{used[kind] or '·':>11}" for kind in kinds) + f"   {rest}")
    print("✓ marked done: a rule without proof fails")


def print_scenarios(scenarios):
    for scenario in scenarios:
        names = dict.fromkeys(proof.name for proof in scenario.proofs if proof.kind == "test")
        why = f"{scenario.state}: {scenario.reason}" if scenario.state else "; ".join(names)
        print(f"{scenario.id} {scenario.text.split('|')[0].strip()}: {why or 'nothing'}")


def print_rule(rule):
    print(f"{rule.id}: {rule.status}" + (f" ({rule.reason})" if rule.reason not in ("", "–") else ""))
    print("  " + " ".join(rule.text.replace("|", " ").split()))
    for proof in sorted(set(rule.proofs), key=lambda p: ((*PROOFS, *OTHERS).index(p.kind), p)):
        print(f"  {proof.kind:<9} {proof.name}  ({proof.file}{f':{proof.line}' if proof.line else ''})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("rules", nargs="*", metavar="RULE", help="a rule or a family")
    parser.add_argument("--missing", action="store_true", help="only the rules without proof")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    found, of_processes, problems = read(arguments.root)
    rules, scenarios = list(found.values()), list(of_processes.values())
    both = rules + scenarios
    unknown = [name for name in arguments.rules if not any(name in (r.id, family(r.id)) for r in both)]
    if unknown:
        print(f"{unknown[0]}: no such rule or family in docs/spec", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"rules": [dataclasses.asdict(rule) for rule in rules], "counts": counts(rules),
                          "scenarios": [dataclasses.asdict(scenario) for scenario in scenarios],
                          "failing": [rule.id for rule in failing(both)], "problems": problems}, ensure_ascii=False))
        return 1 if failing(both) or problems else 0
    if arguments.rules:
        for rule in both:
            if rule.id in arguments.rules or family(rule.id) in arguments.rules:
                print_rule(rule)
        return 0
    if not arguments.missing:
        print_families(rules)
        print_scenarios(scenarios)
    for rule in both:
        if rule.status == "without proof" and (rule.done or arguments.missing):
            print(f"{rule.id}: {rule.reason}")
    for problem in problems:
        print(problem)
    if scenarios:
        print(f"{len(scenarios)} scenarios of processes: " +
              ", ".join(f"{n} {status}" for status, n in counts(scenarios).items()))
    print(f"{len(rules)} rules: " + ", ".join(f"{n} {status}" for status, n in counts(rules).items()))
    return 1 if failing(both) or problems else 0


if __name__ == "__main__":
    sys.exit(main())
