#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the core's machines from their source into docs/machines.md.

    draw_machines.py            writes the page
    draw_machines.py --check    exits 1 if the committed page is not what the source yields

A machine is an `enum class XPhase` or `XState` of a core folder. If there is a table of such arrows,
`constexpr … k…Arrows[] = {{kFrom, kTo}, …};`, its rows are drawn, labelled with their comments. Else the assignments of
a class's member of that type are, in methods in .cc files, labelled with the method. From which states one is reached
is read off the conditions on that member, the guards, switches and calls around it. Nothing else is looked at, so an
arrow may need more than its state.
"""

import collections
import functools
import operator
import pathlib
import re
import sys
import tomllib

from tidy import TEST_FILE, code_only

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = "docs/machines.md"
ENUM = re.compile(r"^enum class (\w+(?:Phase|State))\b[^{;]*\{(.*?)\};", re.M | re.S)
HEAD = re.compile(r"\s*(if|while|for|switch)\b(?:\s+constexpr)?\s*\(")
LABEL = re.compile(r"\s*(?:case\s+(?:\w+::)*(\w+)|default)\s*:(?!:)")
COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
           ">=": operator.ge}
NOTHING = frozenset()


@functools.cache
def closing(text, start):
    """The place after the bracket that closes the one at start."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "({[") - (text[place] in ")}]")
        if depth == 0:
            return place + 1
    return len(text)


@functools.cache
def split(text, separator, most=-1):
    """At the separators outside all brackets, so many at most."""
    parts, depth, last = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if depth == 0 and text.startswith(separator, place):
            parts.append(text[last:place])
            last = place + len(separator)
            if len(parts) == most:
                break
    return parts + [text[last:]]


def without_mutants(code):
    """REFIT_MUTANT(id, right, wrong) is right."""
    while match := re.search(r"\bREFIT_MUTANT\(", code):
        end = closing(code, match.end() - 1)
        code = code[:match.start()] + split(code[match.end():end - 1], ",")[1] + code[end:]
    return code


class Machine:
    """A class's member of an enum, and what the class's methods make of it."""

    def __init__(self, enum, states, header, sources):
        self.states, self.all = list(states), frozenset(states)
        self.arrows = set()  # (from, to, method)
        declared = re.search(rf"\b{enum} (\w+) ?(?:=|\{{) ?(?:\w+::)*(\w+)", header)
        self.member, self.initial = declared.groups() if declared else (None, self.states[0])
        classes = list(re.finditer(r"^class (\w+)[^;{]*\{", header[:declared.start()], re.M)) if declared else []
        if not classes:
            return
        name, public = classes[-1].group(1), header[classes[-1].end():].split("private:")[0]
        self.methods = collections.defaultdict(list)  # name -> bodies
        for code in sources:
            for match in re.finditer(rf"^\w[^;{{}}]*?\b{name}::(\w+)\(([^;{{]*)\)[^;{{}}()]*\{{", code, re.M):
                self.methods[match.group(1)].append(code[match.end():closing(code, match.end() - 1) - 1])
        calls = "|".join(method for method in self.methods if method != name)
        self.events = re.compile(rf"(?<![\w.>:])(?:{self.member}\s*=(?!=)|(?P<call>{calls or '$'})\()")
        # Methods that assign an argument: their calls count as assignments.
        self.setters = {method for method, bodies in self.methods.items()
                        if any(re.search(rf"\b{self.member} = (?!k[A-Z])[a-z]\w*;", body) for body in bodies)}
        # What a method makes of each state in which it is called.
        self.after = {(m, s): NOTHING for m in self.methods if re.search(rf"\b{m}\(", public) for s in states}
        before = None
        while before != (before := dict(self.after)):
            for self.method, state in before:
                self.exits, self.jumps = NOTHING, []
                for body in self.methods[self.method]:
                    end = self.block(body, frozenset({state}))
                    self.after[self.method, state] |= end | self.exits

    def block(self, text, states):
        place = 0
        while place < len(text):
            place, states = self.statement(text, place, states)
        return states

    def statement(self, text, place, states):
        """Where the statement ends, and the states after it. No states: nothing gets there."""
        place += len(text[place:]) - len(text[place:].lstrip())
        if text[place:place + 1] == "{":
            end = closing(text, place)
            return end, self.block(text[place + 1:end - 1], states)
        if head := HEAD.match(text, place):
            end = closing(text, head.end() - 1)
            condition = text[head.end():end - 1]
            return getattr(self, f"on_{head.group(1)}")(text, end, condition, self.evaluate(condition, states))
        expression = split(text[place:], ";", 1)[0]
        end = place + len(expression) + 1
        word = re.match(r"return\b|break\b|continue\b|", expression).group()
        if word in ("break", "continue"):
            jump = next(j for j in reversed(self.jumps) if word == "break" or j[0] == "loop")
            jump[1] |= states
            return end, NOTHING
        states = self.evaluate(expression, states)
        if word == "return" or "_RETURN" in expression:  # REFIT_RETURN_IF_ERROR may
            self.exits |= states
        return end, NOTHING if word == "return" else states

    def on_if(self, text, place, condition, states):
        condition = split(condition, ";")[-1]
        place, after = self.statement(text, place, self.where(condition, states, True))
        otherwise = self.where(condition, states, False)
        if match := re.compile(r"\s*else\b").match(text, place):
            place, otherwise = self.statement(text, match.end(), otherwise)
        return place, after | otherwise

    def on_while(self, text, place, condition, states):
        self.jumps.append(["loop", NOTHING])
        before = None
        while before != (before := states):
            end, after = self.statement(text, place, states)
            states = states | self.jumps[-1][1] | self.evaluate(condition, after)
        self.jumps.pop()
        return end, states

    on_for = on_while

    def on_switch(self, text, place, condition, states):
        """Compilers see to it that a switch without a default has every case."""
        end = closing(text, text.index("{", place))
        body, place, now, left = text[text.index("{", place) + 1:end - 1], 0, NOTHING, states
        self.jumps.append(["switch", NOTHING])
        while place < len(body):
            if label := LABEL.match(body, place):
                place = label.end()
                if condition.strip() != self.member:
                    now |= states
                else:
                    now |= (left & {label.group(1)}) if label.group(1) else left
                    left -= {label.group(1)}
            else:
                place, now = self.statement(body, place, now)
        return end, now | self.jumps.pop()[1]

    def where(self, condition, states, truth):
        """Those of the states in which the condition can have this truth."""
        condition = condition.strip()
        while condition[:1] == "(" and closing(condition, 0) == len(condition):
            condition = condition[1:-1].strip()
        for junction in ("||", "&&"):
            parts = split(condition, junction)
            if len(parts) > 1:
                if truth == (junction == "||"):
                    return frozenset().union(*(self.where(part, states, truth) for part in parts))
                for part in parts:
                    states = self.where(part, states, truth)
                return states
        if condition.startswith("!"):
            return self.where(condition[1:], states, not truth)
        match = re.fullmatch(rf"{self.member}\s*([=!<>]=?)\s*(?:\w+::)*(\w+)", condition)
        if not match or match.group(2) not in self.all:
            return states
        order, holds = self.states.index, COMPARE[match.group(1)]
        return frozenset(s for s in states if holds(order(s), order(match.group(2))) == truth)

    def evaluate(self, text, states):
        """The states after an expression: its assignments and its calls of methods of the class."""
        after = NOTHING
        for event in self.events.finditer(text):
            call, now = event.group("call"), states
            end = closing(text, event.end() - 1) if call else len(text)
            targets = self.all.intersection(re.findall(r"\bk\w+", text[event.end():end]))
            if call in self.setters or not call and (targets or self.method not in self.setters):
                targets = targets or self.all
                self.arrows |= {(source, target, self.method) for source in states for target in targets - {source}}
                now = targets if states else NOTHING
            after |= now if not call else frozenset().union(*(self.after.setdefault((call, s), NOTHING) for s in now))
        return after | states if "{" in text or not self.events.search(text) else after


def read_states(body):
    """state -> what its comment says."""
    states = {}
    for line in body.split("\n"):
        code, _, comment = line.partition("//")
        names = re.findall(r"\bk\w+", code)
        states |= dict.fromkeys(names, "")
        if comment.strip() and states:
            last = list(states)[-1]
            states[last] = f"{states[last]} {comment.strip()}".strip()
    return states


def table_of_arrows(states, texts):
    """(from, to, comment) of each row of the table with such states, if there is one."""
    for text in texts:
        for table in re.finditer(r"^constexpr [^=;]*\bk\w*Arrows\b[^=;]*= *\{(.*?)\n\};", text, re.M | re.S):
            rows = re.findall(r"\{ *(?:\w+::)*(k\w+), *(?:\w+::)*(k\w+)[^}\n]*\},?(?: *// *(.*))?", table.group(1))
            if rows and all(name in states for row in rows for name in row[:2]):
                return set(rows)
    return None


def draw(states, initial, arrows):
    """The lines of a Mermaid diagram. Arrows with one label and target from nearly everywhere become one."""
    order = list(states)
    lines, nearly, labels = [f"  [*] --> {initial[1:]}"], {}, collections.defaultdict(list)
    for target, label in sorted({arrow[1:] for arrow in arrows}, key=lambda a: (order.index(a[0]), a[1])):
        sources = {source for source, *rest in arrows if rest == [target, label]}
        others = [state[1:] for state in order if state not in sources | {target}]
        if len(sources) > 3 and len(others) < 3 and label:
            text = "any other" if not others else f"any but {' and '.join(others)}"
            sources = {nearly.setdefault(text, f"kAny{len(nearly) or ''}")}
        for source in sources:
            labels[source, target].append(label)
    lines += [f'  state "{text}" as {name[1:]}' for text, name in nearly.items()]
    order += nearly.values()
    for (source, target), why in sorted(labels.items(), key=lambda item: [order.index(state) for state in item[0]]):
        text = re.sub("[:;]", ",", ", ".join(filter(None, why)))
        lines.append(f"  {source[1:]} --> {target[1:]}" + (f": {text}" if text else ""))
    return ["```mermaid", "stateDiagram-v2", *lines, "```", ""]


def machines(root):
    """(folder, header, enum, states, machine, table) of each machine."""
    for core in tomllib.loads((root / "tools/layers.toml").read_text())["core"]:
        files = [f for f in sorted((root / "src/refit" / core).rglob("*.*")) if not TEST_FILE.search(f.name)]
        texts = {f: f.read_text() for f in files if f.suffix in (".h", ".cc")}
        sources = [without_mutants(code_only(text)) for f, text in texts.items() if f.suffix == ".cc"]
        for header in (f for f in texts if f.suffix == ".h"):
            for match in ENUM.finditer(texts[header]):
                states = read_states(match.group(2))
                machine = Machine(match.group(1), states, code_only(texts[header]), sources)
                table = table_of_arrows(states, texts.values())
                if table or machine.arrows:
                    yield core, header.relative_to(root).as_posix(), match.group(1), states, machine, table


def page(root):
    lines = ["# The machines", "", "`tools/draw_machines.py` draws this page from the source; do not edit it.", ""]
    for core, header, enum, states, machine, table in machines(root):
        lines += [f"## {core}: {enum}", "", f"[{header}](../{header}); " + (
            "its table of arrows." if table else
            "from its assignments: an arrow names the method that makes it, and may need more than this state."), ""]
        lines += draw(states, machine.initial, table or machine.arrows)
        if any(states.values()):
            lines += ["| state | |", "| --- | --- |"]
            lines += [*(f"| {state[1:]} | {text} |" for state, text in states.items() if text), ""]
    return "\n".join(lines).rstrip() + "\n"


def main():
    text, file = page(ROOT), ROOT / PAGE
    if "--check" not in sys.argv[1:]:
        file.write_text(text)
        return 0
    if not file.exists() or file.read_text() != text:
        print(f"{PAGE}: not what the source yields (run tools/draw_machines.py and look at the difference)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
