# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""How rule ids are written: one, in lists, and where docs/spec defines them; and numbers of fault scenarios. For
tidy.py and rules.py."""

import re

RULE = re.compile(r"\b(?:RC|RX)-[A-Z]+-[A-Z]?\d+\b")
SCENARIO = re.compile(r"\bS\d\d\b")
_LIST = re.compile(r"\b((?:RC|RX)-[A-Z]+)((?:,? ?-[A-Z]?\d+(?: ?… ?-?[A-Z]?\d+)?)+)")
_ITEM = re.compile(r"-([A-Z]?)(\d+)(?: ?… ?-?[A-Z]?(\d+))?")
_DEFINED = re.compile(r"^\| *((?:RC|RX)-[A-Z]+-[A-Z]?\d+)\b(.*)", re.M)


def listed_rules(text):
    """The rules that a text names: RC-A-01, RC-A-01…04, RC-A-01 … -04, RC-A-T1…T4, and RC-A-01, -03, -05…07."""
    rules = set()
    for family, numbers in _LIST.findall(text):
        for letter, first, last in _ITEM.findall(numbers):
            for number in range(int(first), int(last or first) + 1):
                rules.add(f"{family}-{letter}{number:0{len(first)}}")
    return rules


def defined_rules(text):
    """rule -> what follows its id, for a page of docs/spec: the first cell of a table row, where it first is one."""
    rules = {}
    for match in _DEFINED.finditer(text):
        rules.setdefault(match.group(1), match.group(2))
    return rules


def family(rule):
    return rule.rsplit("-", 1)[0]
