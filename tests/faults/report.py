#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reliability-results.md from a run of the suite.

usage: report.py JSON MARKDOWN
"""

import json
import sys

import rows


def seconds(value):
    return "–" if value is None else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def spread(values):
    values = sorted(value for value in values if value is not None)
    if not values:
        return "–"
    return f"{seconds(values[len(values) // 2])} / {seconds(values[-1])} ({len(values)})"


def cell(result):
    outcome = result["expected"].rstrip("*")
    if result.get("exit") == 1 and "/" in outcome:
        outcome = outcome.split("/")[0]
    return f"{outcome}, {seconds(result.get('detection'))}, {seconds(result.get('return'))}"


def grid(results):
    killed = {tuple(reversed(result["row"].split("/"))): result for result in results}
    lines = ["| killed | " + " | ".join(rows.PHASES) + " |", "| --- |" + " --- |" * len(rows.PHASES)]
    for role in rows.KILLS:
        lines.append(f"| {role} | " + " | ".join(cell(killed[role, phase]) for phase in rows.PHASES) + " |")
    return lines


def text_of(run):
    results = run["rows"]
    answers = {key: sum(result["answers"][key] for result in results) for key in results[0]["answers"]}
    killed = {f"{phase}/{role}": role for phase in rows.PHASES for role in rows.KILLS}
    by_role = {role: [result for result in results if killed.get(result["row"]) == role] for role in rows.KILLS}
    others = [result for result in results if result["row"] not in killed]
    lines = [
        "# What the fault suite measured", "",
        "<!-- Written by `make faults` from its run; change tests/faults/report.py instead. -->", "",
        f"`make faults`: {len(results)} rows, all passed, in {sum(result['seconds'] for result in results) / 60:.1f} "
        "minutes, with three engines of a tiny random model, two policy workers, and a controller with a state "
        "directory, on one host.",
        "[testing.md](testing.md) says how it works; [failure-contract.md](failure-contract.md) what must happen.", "",
        "## kill -9, role by phase", "",
        "Each cell: outcome, seconds until the controller knew, seconds until every engine served what is committed "
        "again (its launch, a restart of the killed role by the harness, and where needed the next sync included).", "",
        *grid(results), "",
        *(f"- `{code}`: {meaning.says}" for code, meaning in rows.CODES.items()), "",
        "## Everything else", "",
        "Each in its phase: the same three, and the scenarios of the specification that it shows.", "",
        "| phase | what is wrong | outcome | knew after, s | consistent after, s | scenarios |",
        "| --- | --- | --- | --- | --- | --- |",
        *("| {} | {} |".format(*result["row"].split("/", 1)) + f" {result['expected']} | "
          f"{seconds(result.get('detection'))} | {seconds(result.get('return'))} | {result['numbers']} |"
          for result in others), "",
        "## Figures", "",
        "| what | median / worst (rows) |", "| --- | --- |",
        *(f"| {role} killed: detected after, s | {spread([each.get('detection') for each in of_role])} |"
          for role, of_role in by_role.items() if role in ("engine", "agent")),
        *(f"| {role} killed: consistent again after, s | {spread([each.get('return') for each in of_role])} |"
          for role, of_role in by_role.items()),
        f"| an engine's own launch, s | {spread([result.get('launch') for result in results])} |", "",
        "## Answers", "",
        "Every answer of the engines meanwhile, judged as [testing.md](testing.md) says:", "",
        "| answers | no answer | cut off by a pause | spanning versions | stale | mixed |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| {answers['answers']} | {answers['failed']} | {answers['cut_off']} | {answers['spanning']} | "
        f"{answers['stale']} | {answers['mixed']} |", ""]
    return "\n".join(lines)


def write(source, target):
    with open(source, encoding="utf-8") as file:
        text = text_of(json.load(file))
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    write(*sys.argv[1:])
