# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Steady /generate traffic at every engine, in every row, and the judge of each answer (settled C9; S32, S33).

What an engine may answer is known beforehand: every source's greedy answer to every prompt, from an engine that serves
that source and was never refitted. An answer is *mixed* if its tokens and their log-probabilities are no source's, and
*stale* if the version of none of its tokens was the last committed one at any instant between arrival and last byte.
"""

import calendar
import dataclasses
import http.client
import json
import os
import re
import subprocess
import threading
import time

import processes
from processes import wait_for

PROMPTS = ([1, 2, 3], [7, 5, 11, 13], [40, 41], [99, 3, 250])
LENGTHS = (4, 4, 40, 4)  # tokens; the long ones are those that a pause cuts off
PAUSE = 0.03             # seconds between an answer and the next question, of each client


def ask(connection, prompt, length):
    body = {"input_ids": prompt, "return_logprob": True,
            "sampling_params": {"max_new_tokens": length, "temperature": 0, "ignore_eos": True}}
    connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    return json.loads(text) if reply.status == 200 else None


def tokens_of(answer):
    """(log-probability, token) of each; what must be equal, not nearly equal."""
    return [tuple(entry[:2]) for entry in answer["meta_info"]["output_token_logprobs"]]


def true_answers(model, tp):
    """What a server that loads `model` by itself says, prompt by prompt."""
    with subprocess.Popen([f"{processes.BIN}/refit-engine", "--model", model, "--tp", str(tp), "--family", "c"],
                          stdout=subprocess.PIPE, text=True) as engine:
        try:
            return answers_at(re.search(r"url=http://(\S+)", engine.stdout.readline()).group(1))
        finally:
            engine.kill()


def answers_at(address):
    """To every prompt, as long as any is asked for."""
    connection = http.client.HTTPConnection(address, timeout=30)
    return [tokens_of(ask(connection, prompt, max(LENGTHS))) for prompt in PROMPTS]


@dataclasses.dataclass
class Answer:
    slot: object  # or "router"
    prompt: int
    arrived: float
    ended: float
    tokens: list
    spans: list    # (version, start, end)
    aborted: bool


@dataclasses.dataclass
class Counts:
    answers: int = 0
    failed: int = 0    # no answer: the engine died, or was being refitted
    cut_off: int = 0   # answers that a pause ended before their last token
    spanning: int = 0  # tokens of several versions
    stale: int = 0
    mixed: int = 0
    worst: str = ""    # the first stale or mixed one

    def add(self, other):
        for field in dataclasses.fields(self):
            if field.name != "worst":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        self.worst = self.worst or other.worst


class Traffic:
    """A client for each slot, which asks wherever that slot's engine served last, and one that asks the router."""

    def __init__(self, watch, slots, truths):
        self.watch = watch
        self.truths = truths  # by source
        self.answers = []
        self.failed = 0
        self.pause = PAUSE
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.clients = [threading.Thread(target=self.run, args=(n, slot), daemon=True)
                        for n, slot in enumerate(slots)]
        for client in self.clients:
            client.start()

    def stop(self):
        self.over.set()
        for client in self.clients:
            client.join(processes.DEADLINE)

    def run(self, asked, slot):
        url, connection = None, None
        while not self.over.wait(self.pause):
            if self.watch.url_of(slot) != url or connection is None:
                url = self.watch.url_of(slot)
                connection = http.client.HTTPConnection(url, timeout=60) if url else None
            if connection is None:
                continue
            asked += 1
            prompt = asked % len(PROMPTS)
            arrived = time.time()
            try:
                reply = ask(connection, PROMPTS[prompt], LENGTHS[prompt])
            except (OSError, http.client.HTTPException, ValueError):
                reply, connection = None, None
            self.note(slot, prompt, arrived, reply)

    def note(self, slot, prompt, arrived, reply):
        with self.lock:
            if reply is None or not reply["output_ids"]:
                self.failed += 1
                return
            meta = reply["meta_info"]
            self.answers.append(Answer(slot, prompt, arrived, time.time(), tokens_of(reply),
                                       [(span["version"], span["start"], span["end"])
                                        for span in meta["weight_versions"]],
                                       meta["finish_reason"]["type"] == "abort"))

    def settle(self):
        """Judges what was answered since the last time."""
        with self.lock:
            answers, self.answers = self.answers, []
            counts = Counts(failed=self.failed)
            self.failed = 0
        if answers:
            wait_for(lambda: self.watch.seen_at > answers[-1].ended, "the journal read once more")
        for answer in answers:
            counts.answers += 1
            counts.cut_off += answer.aborted
            counts.spanning += len(answer.spans) > 1
            stale, mixed = self.judge(answer)
            counts.stale += stale
            counts.mixed += mixed
            if (stale or mixed) and not counts.worst:
                counts.worst = f"{'stale' if stale else 'mixed'}: {answer}; commits {self.watch.commits[-3:]}"
        return counts

    def judge(self, answer):
        """(stale, mixed)"""
        return (not any(self.watch.was_last(version, answer.arrived, answer.ended) for version, _, _ in answer.spans),
                not self.is_pure(answer))

    def is_pure(self, answer):
        """The first span must be its version's. Later ones go on from tokens that only this answer has."""
        version, _, end = answer.spans[0]
        source = self.watch.source_of(version)
        return source in self.truths and answer.tokens[:end] == self.truths[source][answer.prompt][:end]


class Watch:
    """What the controllers say and write, read as it appears: lines of their logs, and versions in the journal."""

    POLL = 0.01

    def __init__(self, folder, database):
        self.folder = folder
        self.database = database
        self.commits = []   # (version, not before, seen by)
        self.index_of = {}  # version, as engines say it -> of its commit
        self.lines = []     # (seconds, text) of every controller, as read
        self.seen_at = 0.0  # the journal was read after this instant
        self.offsets = {}
        self.urls = {}      # slot -> of its life
        self.serving = {}   # slot -> that may be asked
        self.sources = {}   # version -> source
        self.over = threading.Event()
        self.reader = threading.Thread(target=self.run, daemon=True)
        self.reader.start()

    def stop(self):
        self.over.set()
        self.reader.join(processes.DEADLINE)

    def run(self):
        while not self.over.wait(self.POLL):
            self.read_journal()
            for name in self.newest_logs():
                self.read_log(name)

    def newest_logs(self):
        """Of the controllers that may still have something to say; a long run has had a thousand."""
        logs = filter(None, (re.fullmatch(r"controller-(\d+)\.log", name) for name in os.listdir(self.folder)))
        return [log.group() for log in sorted(logs, key=lambda log: int(log.group(1)))[-3:]]

    def read_journal(self):
        began = time.time()
        last = self.commits[-1][0] if self.commits else 0
        for (version,) in self.database(f"SELECT version FROM journal WHERE version > {last} ORDER BY version"):
            self.index_of[str(version)] = len(self.commits)
            self.commits.append((version, self.seen_at, time.time()))
        self.seen_at = began

    def read_log(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as log:
            log.seek(self.offsets.get(name, 0))
            text = log.read()
        whole = text[:text.rfind("\n") + 1]
        self.offsets[name] = self.offsets.get(name, 0) + len(whole.encode())
        for line in whole.splitlines():
            stamp, _, _, said = line.split(" ", 3)
            self.hear(said)
            self.lines.append((stamp_seconds(stamp), said))

    def hear(self, said):
        if at := re.match(r"engine (\d+) registered: http://(\S+)", said):
            self.urls[int(at.group(1))] = at.group(2)
        elif at := re.match(r"engine (\d+) is serving", said):
            self.serving[int(at.group(1))] = self.urls.get(int(at.group(1)))
        elif at := re.match(r"COMMIT request=\S* version=(\d+) .*source=(\S*) members", said):
            self.sources[at.group(1)] = at.group(2)

    def url_of(self, slot):
        return self.serving.get(slot)

    def source_of(self, version):
        return self.sources.get(version)

    def was_last(self, version, begin, end):
        """Whether `version` may have been the last committed one at an instant of [begin, end]."""
        index = self.index_of.get(version)
        if index is None:
            return False
        _, not_before, _ = self.commits[index]
        later = self.commits[index + 1:index + 2]
        return not_before <= end and (not later or later[0][2] >= begin)

    def when(self, pattern, since):
        """The instant of the first line like `pattern` at or after `since`, or None."""
        for stamp, said in self.lines:
            if stamp >= since - 0.001 and re.search(pattern, said):
                return stamp
        return None


def stamp_seconds(stamp):
    whole, millis = stamp.rstrip("Z").split(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + int(millis) / 1000
