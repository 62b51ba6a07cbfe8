#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Whole refits of an unmodified SGLang server, through the command line: one controller, one policy worker, one agent.

usage: check_refit.py --bin DIR --python PYTHON --tp N --work DIR [--pause-mode MODE] [--load-bytes SIZE]
       -- SERVER ARGUMENTS

Prints one line a check and writes {"passed", "failed"} to WORK/counts.json. Stops at the first failure, since later
checks build on earlier ones.
"""

import argparse
import glob
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

LAUNCH = 300.0  # a server's start on a small, busy machine
PATIENCE = 60.0
GENERATION = 180.0  # of a few hundred tokens


class Failed(Exception):
    pass


def wait_for(condition, what, deadline=PATIENCE):
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise Failed(f"waited {deadline:.0f} s for {what}")


def expect(truth, what):
    if not truth:
        raise Failed(what)


def post(url, body, key="", timeout=PATIENCE):
    """(status, JSON or text)"""
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def processes():
    """(pid, parent, group) of everything that lives."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as file:
                text = file.read()
        except OSError:
            continue
        state, parent, group = text[text.rindex(")") + 2:].split()[:3]
        if state not in "ZX":
            yield int(path.split("/")[2]), int(parent), int(group)


def engines_of(agent):
    """The leaders of groups below an agent's supervisors."""
    running = list(processes())
    supervisors = {pid for pid, parent, _ in running if parent == agent}
    return [pid for pid, parent, group in running if parent in supervisors and group == pid]


def group_members(group):
    return [pid for pid, _, its_group in processes() if its_group == group]


class Role:
    """A refit process that prints a ready line."""

    def __init__(self, rig, name, *words, deadline=PATIENCE):
        self.log = open(f"{rig.work}/{name}.log", "ab")
        command = [f"{rig.bin}/refit", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        rig.roles.append(self)
        lines = []
        reader = threading.Thread(target=lambda: lines.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(deadline)
        if not lines or "ready" not in lines[0]:
            with open(self.log.name) as file:
                raise Failed(f"{name} is not ready after {deadline:.0f} s: {lines} {file.read()[-1500:]}")
        self.address = re.search(r"address=(\S+)", lines[0]).group(1)

    def end(self, how):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(PATIENCE)


class Rig:
    def __init__(self, options):
        self.bin, self.python, self.tp = options.bin, options.python, options.tp
        self.work, self.mode, self.arguments = options.work, options.pause_mode, options.arguments
        self.load_bytes = options.load_bytes
        self.roles = []
        self.models = {}
        for seed, name in enumerate("ABC", 1):
            self.models[name] = f"{self.work}/model-{name}"
            subprocess.run([f"{self.bin}/write-checkpoint", "tiny", str(seed), self.models[name]], check=True)
        self.api_key = "users"  # beside the admin key: each route wants its own
        self.api_key_file = f"{self.work}/api.key"
        with open(self.api_key_file, "w") as file:
            file.write(self.api_key + "\n")
        self.job = f"{self.work}/job.yaml"
        with open(self.job, "w") as file:
            file.write(f"policies: [{{rank: 0, source: {self.models['B']}}}]\n"
                       f"engines: [{{slot: 0, kind: sglang, tp: {self.tp}}}]\nverify: always\n")

    def start_controller(self):
        self.controller = Role(self, "controller", "controller", "--config", self.job)
        self.start_policy()

    def start_policy(self):
        self.policy = Role(self, "policy", "policy", "--rank", "0", "--controller", self.controller.address,
                           "--source", self.models["B"])

    def agent_words(self, run):
        return ["agent", "--slot", "0", "--controller", self.controller.address, "--engine", "sglang",
                "--python", self.python, "--tp", str(self.tp), "--pause-mode", self.mode,
                "--api-key-file", self.api_key_file,
                *(["--load-bytes", self.load_bytes] if self.load_bytes else []),
                "--run-directory", f"{self.work}/{run}", "--", "--model-path", self.models["A"], *self.arguments]

    def start_agent(self):
        self.agent = Role(self, "agent", *self.agent_words("run"), deadline=LAUNCH)

    def refit(self, *words):
        return subprocess.run([f"{self.bin}/refit", *words, "--controller", self.controller.address, "--json"],
                              capture_output=True, text=True, timeout=180)

    def status(self):
        answer = self.refit("status")
        expect(answer.returncode == 0, f"status: {answer.stdout}{answer.stderr}")
        return json.loads(answer.stdout)

    def engine(self):
        return self.status()["engines"][0]

    def sync(self, model):
        answer = self.refit("sync", "--source", self.models[model])
        expect(answer.returncode == 0, f"sync of {model}: {answer.stdout}{answer.stderr}")
        report = json.loads(answer.stdout)
        spans = {}
        for span in report["spans"]:
            spans.setdefault(span["name"], 0.0)
            spans[span["name"]] += (span["end"] - span["begin"]) * 1e3
        listed = ", ".join(f"{name} {ms:.0f}" for name, ms in spans.items())
        print(f"    version {report['version']}: {report['tensors']} tensors, {report['bytes']} bytes, whole "
              f"{report['seconds'] * 1e3:.0f} ms, stall {report['stall_seconds'][0] * 1e3:.0f} ms; spans: {listed}")
        return report

    def verify(self, *words):
        answer = self.refit("verify", *words)
        expect(answer.returncode in (0, 3), f"verify: {answer.stdout}{answer.stderr}")
        return answer.returncode == 0, json.loads(answer.stdout)

    def expect_verified(self):
        verified, report = self.verify()
        complete = report["ranks"] == self.tp and report["parameters"] > 0
        expect(verified and complete and report["differences"] == 0,
               f"not verified: {json.dumps(report)[:2000]}")
        print(f"    {report['ranks']} ranks, {report['parameters']} parameters, 0 differences")

    def generate(self, tokens=16, timeout=PATIENCE):
        body = {"input_ids": [5, 6, 7, 8, 100, 200],
                "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}}
        status, answer = post(self.engine()["url"] + "/generate", body, self.api_key, timeout)
        expect(status == 200, f"generate answered {status}: {answer}")
        return answer

    def tokens(self):
        return self.generate()["output_ids"]

    def admin_key(self):
        newest = max(glob.glob(f"{self.work}/run/engine-0-*.yaml"), key=os.path.getmtime)
        with open(newest) as file:
            return re.search(r'"(\w+)"', file.read()).group(1)

    def end(self):
        for role in reversed(self.roles):
            role.end(signal.SIGTERM)


class Checks:
    """In order; each is a method whose name is its sentence."""

    def __init__(self, rig):
        self.rig = rig
        self.said = {}

    def an_agent_killed_while_it_launches_leaves_nothing(self):
        with open(f"{self.rig.work}/killed-agent.log", "ab") as log:
            agent = subprocess.Popen([f"{self.rig.bin}/refit", *self.rig.agent_words("killed")], stdout=log, stderr=log)
        try:
            group = wait_for(lambda: next((pid for pid in engines_of(agent.pid) if len(group_members(pid)) > 2), None),
                             "the server's processes", LAUNCH)
        finally:
            agent.kill()
            agent.wait()
        wait_for(lambda: not group_members(group), "the processes to end")

    def the_agent_brings_the_server_up(self):
        start = time.monotonic()
        self.rig.start_agent()
        engine = self.rig.engine()
        print(f"    SGLang {engine['sglang_version']}, tp {engine['tp']}, pid {engine['pid']}, up after "
              f"{time.monotonic() - start:.0f} s, pause mode {self.rig.mode}")
        self.said["A"] = self.rig.tokens()

    def its_keys_are_on_no_command_line(self):
        key = self.rig.admin_key()
        url = self.rig.engine()["url"]
        for wrong in ("", self.rig.api_key):
            refused = post(url + "/pause_generation", {"mode": "abort"}, wrong)
            expect(refused[0] == 401, f"a control call with the key \"{wrong}\" is refused: {refused}")
        refused = post(url + "/generate", {"input_ids": [5]}, key)
        expect(refused[0] == 401, f"the admin key is not the users': {refused}")
        for pid in group_members(os.getpgid(self.rig.engine()["pid"])):
            try:
                with open(f"/proc/{pid}/cmdline") as file:
                    words = file.read().split("\0")
                    expect(key not in words and self.rig.api_key not in words, f"process {pid} shows a key")
            except OSError:
                pass
        for path in glob.glob(f"{self.rig.work}/run/engine-0-1.*"):
            expect(os.stat(path).st_mode & 0o77 == 0, f"{path} is ours alone to read")

    def nothing_is_verified_before_the_first_refit(self):
        verified, report = self.rig.verify()
        expect(not verified and report["unproven"], f"unproven: {report}")

    def the_first_refit_is_verified(self):
        self.rig.sync("B")
        self.rig.expect_verified()
        self.said["B"] = self.rig.tokens()
        expect(self.said["B"] != self.said["A"], "other weights say something else")

    def another_refit_is_verified(self):
        self.rig.sync("C")
        self.rig.expect_verified()
        expect(self.rig.tokens() not in self.said.values(), "other weights say something else")
        expect(not self.rig.verify("--model", self.rig.models["B"])[0], "verify can fail")

    def refitted_to_what_the_server_started_from_it_says_the_same_tokens(self):
        self.rig.sync("A")
        self.rig.expect_verified()
        expect(self.rig.tokens() == self.said["A"], "greedy tokens are equal")

    def a_request_in_flight_survives_a_refit_only_by_retract(self):
        url, key, got = self.rig.engine()["url"], self.rig.admin_key(), []
        thread = threading.Thread(target=lambda: got.append(self.rig.generate(200, GENERATION)))
        thread.start()
        wait_for(lambda: post(url + "/flush_cache", {}, key)[0] == 400, "the request to run")
        self.rig.sync("B")
        self.rig.expect_verified()
        thread.join(GENERATION)
        expect(got, "the request was answered")
        meta = got[0]["meta_info"]
        print(f"    finished by {meta['finish_reason']['type']} after {meta['completion_tokens']} tokens, "
              f"retractions {meta['num_retractions']}, versions {meta.get('weight_versions')}")
        if self.rig.mode == "retract":
            expect(meta["finish_reason"]["type"] == "length" and meta["num_retractions"] >= 1, f"retracted: {meta}")
        else:
            expect(meta["finish_reason"]["type"] == "abort", f"aborted: {meta}")

    def a_transfer_whose_sender_dies_fails_and_the_next_sync_repairs_it(self):
        for attempt in range(10):
            done = []
            source = self.rig.models["C"]
            thread = threading.Thread(target=lambda: done.append(self.rig.refit("sync", "--source", source)))
            thread.start()
            wait_for(lambda: done or self.rig.status()["bytes_delivered"] > 0, "the transfer to begin")
            self.rig.policy.end(signal.SIGKILL)
            thread.join(PATIENCE)
            self.rig.start_policy()
            if done[0].returncode != 0:
                break
            print("    the sender died too late; once more")
            self.rig.sync("B")
        expect(done[0].returncode == 1, f"the sync fails: {done[0].stdout}")
        error = json.loads(done[0].stdout)["error"]
        print(f"    {error['code']}: {error['message']}; engine holds {error['residues'][0]['residue']}")
        expect(error["residues"][0]["residue"].startswith("mixed"), "the engine holds a mixture, and is not resumed")
        expect(not self.rig.engine()["serving"], "it does not serve")
        self.rig.sync("C")
        self.rig.expect_verified()

    def a_killed_server_is_launched_again_and_refitted(self):
        before = self.rig.engine()
        group = os.getpgid(before["pid"])
        os.kill(before["pid"], signal.SIGKILL)
        start = time.monotonic()
        old = (before["incarnation"], "0" * 32)
        wait_for(lambda: self.rig.engine()["incarnation"] not in old, "a new incarnation", LAUNCH)
        after = self.rig.engine()
        print(f"    pid {before['pid']} -> {after['pid']}, {before['url']} -> {after['url']}, "
              f"{time.monotonic() - start:.0f} s")
        expect(not group_members(group), "nothing of the old process group is left")
        expect(after["url"] != before["url"], "on another port")
        self.rig.sync("B")
        self.rig.expect_verified()
        expect(self.rig.tokens() == self.said["B"], "the tokens of these weights, as before")

    def the_process_tree_ends_with_the_agent(self):
        group = os.getpgid(self.rig.engine()["pid"])
        expect(len(group_members(group)) > 2, "the launcher has children in its group")
        self.rig.agent.end(signal.SIGKILL)
        start = time.monotonic()
        wait_for(lambda: not group_members(group), "the processes to end")
        print(f"    gone {time.monotonic() - start:.1f} s after the agent was killed")


def main():
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--python", "--work"):
        parser.add_argument(name, required=True)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pause-mode", default="abort")
    parser.add_argument("--load-bytes", default="", help="small: many calls, so that a death comes half-way")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the roles are ended
    os.makedirs(options.work, exist_ok=True)
    counts = {"passed": 0, "failed": 0}
    names = [name for name in vars(Checks) if not name.startswith("_")]
    rig = Rig(options)
    try:
        rig.start_controller()
        checks = Checks(rig)
        for name in names:
            print(f"  {name.replace('_', ' ')}", flush=True)
            start = time.monotonic()
            try:
                getattr(checks, name)()
            except Exception as error:  # whatever it is, the roles must be ended
                counts["failed"] += 1
                print(f"    FAILED: {type(error).__name__}: {error}\n    logs: {options.work}", flush=True)
                break
            counts["passed"] += 1
            print(f"    ok, {time.monotonic() - start:.1f} s", flush=True)
    finally:
        rig.end()
    with open(f"{options.work}/counts.json", "w") as file:
        json.dump(counts, file)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
