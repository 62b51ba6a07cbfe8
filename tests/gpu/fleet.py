# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""One real SGLang server and the fleet that refits it, through the command line: a controller, policy workers whose
tensors lie on GPUs, and an agent that launches the server."""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

import figures

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "sglang"))
from check_refit import Failed, Role, expect, post  # noqa: E402

LAUNCH = 300.0
SYNC = 90.0


class Configuration:
    """How weights come: "cuda_ipc:device" is a transport and a staging."""

    def __init__(self, text, tp):
        self.transport, _, self.staging = text.partition(":")
        self.tp = tp
        self.name = f"tp{tp}-{self.transport}" + (f"-{self.staging}" if self.staging else "")


class Fleet:
    def __init__(self, settings, configuration, number):
        self.settings, self.configuration, self.tp = settings, configuration, configuration.tp
        self.bin, self.roles = settings.bin, []
        self.work = os.path.join(settings.work, configuration.name)
        self.number = number
        self.key = ""
        os.makedirs(self.work, exist_ok=True)

    # What the command line of this build understands; a flag that it lacks is left out in a rehearsal only.
    def words(self, role, wanted):
        text = subprocess.run([f"{self.bin}/refit", role, "--help"], capture_output=True, text=True, timeout=20).stdout
        words = []
        for flag, value in wanted.items():
            if not value:
                continue
            if re.search(rf"^ +{flag}\b", text, re.M):
                words += [flag, value]
            else:
                expect(self.settings.rehearse, f"refit {role} has no {flag}")
        return words

    def sender_device(self, rank):
        if self.settings.rehearse:
            return "cpu"
        return f"cuda:{1 - rank}" if self.tp > 1 else "cuda:0"  # TP 1 is what one GPU can do

    def start(self):
        """Seconds until the server was up."""
        start = time.monotonic()
        source = self.settings.models["A"]
        job = f"{self.work}/job.yaml"
        ranks = range(self.tp)
        with open(job, "w") as file:
            json.dump({"policies": [{"rank": rank, "source": source} for rank in ranks],
                       "engines": [{"slot": 0, "kind": "sglang", "tp": self.tp}],
                       "deadlines": {"update": "60s", "call": "30s"}}, file)
        self.controller = Role(self, "controller", "controller", "--config", job)
        nixl = self.settings.nixl_library if self.configuration.transport == "nixl" else ""
        for rank in ranks:
            Role(self, f"policy-{rank}", "policy", "--rank", str(rank), "--controller", self.controller.address,
                 "--source", source, *self.words("policy", {"--device": self.sender_device(rank),
                                                            "--nixl-library": nixl}))
        link = self.words("agent", {
            "--transport": self.configuration.transport, "--staging": self.configuration.staging,
            "--gpus": "" if self.settings.rehearse else ",".join(str(rank) for rank in ranks),
            "--piece-bytes": self.settings.piece_bytes, "--load-bytes": self.settings.load_bytes,
            "--nixl-library": nixl})
        Role(self, "agent", "agent", "--slot", "0", "--controller", self.controller.address, "--engine", "sglang",
             "--python", self.settings.python, "--tp", str(self.tp), *link, "--run-directory", f"{self.work}/run", "--",
             "--model-path", source, "--nccl-port", str(28100 + 10 * self.number), *self.settings.server_arguments,
             deadline=max(1.0, min(LAUNCH, self.settings.left() - 20)))
        with open(max(glob.glob(f"{self.work}/run/engine-0-*.yaml"), key=os.path.getmtime)) as file:
            self.key = re.search(r'admin-api-key: "(\w+)"', file.read()).group(1)
        return time.monotonic() - start

    def end(self):
        for role in reversed(self.roles):
            role.process.send_signal(signal.SIGTERM)
        for role in reversed(self.roles):
            try:
                role.process.wait(15)
            except subprocess.TimeoutExpired:
                role.process.kill()  # an agent's server goes with it

    def refit(self, *words):
        answer = subprocess.run([f"{self.bin}/refit", *words, "--controller", self.controller.address, "--json"],
                                capture_output=True, text=True, timeout=SYNC)
        try:
            return answer.returncode, json.loads(answer.stdout)
        except ValueError:
            raise Failed(f"refit {' '.join(words)}: exit {answer.returncode}: {answer.stdout}{answer.stderr}") from None

    def engine(self):
        return self.refit("status")[1]["engines"][0]

    def sync(self, model):
        code, report = self.refit("sync", "--source", self.settings.models[model], "--deadline", f"{SYNC - 10:.0f}s")
        expect(code == 0, f"sync of {model}: exit {code}: {json.dumps(report)[:1500]}")
        return report

    def verify(self):
        code, report = self.refit("verify")
        differences = report.get("differences")
        expect(code == 0 and report["ranks"] == self.tp and report["parameters"] > 0 and differences == 0,
               f"not verified: exit {code}: {json.dumps(report)[:1500]}")
        return {"version": report["version"], "ranks": report["ranks"], "parameters": report["parameters"],
                "differences": differences}

    def check_weights(self, action):
        """The server's own checker: its answer is 200 or an error."""
        return post(self.engine()["url"] + "/weights_checker", {"action": action}, self.key)

    def generate(self):
        body = {"input_ids": [5, 6, 7, 8, 100, 200],
                "sampling_params": {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}}
        status, answer = post(self.engine()["url"] + "/generate", body)
        expect(status == 200 and len(answer["output_ids"]) == 16, f"generate answered {status}: {str(answer)[:500]}")
        return answer["output_ids"]


def measure(fleet, count, told):
    """snapshot, reset_tensors, refit, compare, verify, generate; then `count` refits to the other weights and back.
    Returns the entry of the results; what was reached stays in it when a step fails."""
    settings, configuration = fleet.settings, fleet.configuration
    entry = {"transport": configuration.transport, "staging": configuration.staging, "tp": fleet.tp, "proof": {}}
    proof = entry["proof"]
    told(entry)
    engine = fleet.engine()
    entry["engine"] = f"sglang-{engine['sglang_version']}"
    if not settings.rehearse:  # the checker compares on GPUs only
        for action in ("snapshot", "reset_tensors"):
            status, answer = fleet.check_weights(action)
            expect(status == 200, f"{action}: {status} {str(answer)[:500]}")
        proof["reset_differs"] = fleet.check_weights("compare")[0] != 200
    report = fleet.sync("A")
    entry.update({name: report[name] for name in ("bytes", "tensors", "bytes_delivered")})
    entry["loads"] = report["engines"][0].get("loads")
    entry["first"] = figures.sample(report)
    if not settings.rehearse:
        status, answer = fleet.check_weights("compare")
        proof["compare_after_first"] = status == 200
        expect(status == 200, f"compare: {status} {str(answer)[:500]}")
    proof["first"] = fleet.verify()
    proof["tokens_of_a"] = fleet.generate()
    entry["samples"] = []
    for number in range(count):
        report = fleet.sync("AB"[(number + 1) % 2])
        entry["samples"].append(figures.sample(report))
        entry.update(figures.medians(entry["samples"]))
        entry["seconds_median"] = round(entry["whole_ms"] / 1e3, 6)
    entry["last_spans"] = report["spans"]
    proof["last"] = fleet.verify()
    if not settings.rehearse:
        proof["compare_after_last"] = fleet.check_weights("compare")[0] == 200  # an even count ends with A
        expect(proof["compare_after_last"] or count % 2, "compare after the last refit")
    tokens = fleet.generate()
    proof["same_tokens"] = tokens == proof["tokens_of_a"]
    return entry
