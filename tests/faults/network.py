# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""A network that is cut: one agent and its engine live in a network namespace of their own, behind another one that
drops what it is told to, in either direction, without a word to anybody. Needs root; the suite is in a third one.
"""

import contextlib
import subprocess
import time

import fleet as fleets
from others import UNTIL_GIVEN_UP, in_transfer
from processes import edited
from rows import Row

# Of the controller and the other agents, of the policy workers, of that agent. What an agent says to its policy workers
# is the data path: streams, which it opens, of weights or of where they lie.
HERE, SENDERS, THERE = "10.231.1.1", "10.231.1.3", "10.231.2.2"
EVERYBODY = (HERE, SENDERS, THERE)
AWAY = fleets.ENGINES - 1  # the slot whose agent is there


class Network:
    """Two namespaces, each kept by a process that does nothing."""

    def __init__(self):
        # Each ends with its standard input, so with this process, whatever becomes of it.
        self.keepers = [subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE) for _ in range(2)]
        for keeper in self.keepers:
            keeper.stdout.readline()  # it is in its namespace
        middle, there = (keeper.pid for keeper in self.keepers)
        self.middle, self.there = (["nsenter", f"--net=/proc/{pid}/ns/net"] for pid in (middle, there))
        for prefix, commands in (
                ([], ["link set lo up", "link add a0 type veth peer name a1", f"link set a1 netns {middle}",
                      f"addr add {HERE}/24 dev a0", f"addr add {SENDERS}/24 dev a0", "link set a0 up"]),
                (self.middle, ["link add b0 type veth peer name b1", f"link set b1 netns {there}",
                               "addr add 10.231.1.2/24 dev a1", "link set a1 up",
                               "addr add 10.231.2.1/24 dev b0", "link set b0 up"]),
                (self.there, ["link set lo up", f"addr add {THERE}/24 dev b1", "link set b1 up",
                              "route add default via 10.231.2.1"]),
                ([], ["route add 10.231.2.0/24 via 10.231.1.2"])):
            for command in commands:
                subprocess.run([*prefix, "ip", *command.split()], check=True)
        subprocess.run([*self.middle, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"], check=True)

    def close(self):
        for keeper in self.keepers:
            keeper.communicate()

    @contextlib.contextmanager
    def cut(self, *towards):
        """Packets to these addresses get lost on their way."""
        for address in towards:
            subprocess.run([*self.middle, "ip", "route", "add", "blackhole", f"{address}/32"], check=True)
        try:
            yield
        finally:
            for address in towards:
                subprocess.run([*self.middle, "ip", "route", "del", "blackhole", f"{address}/32"], check=True)


class CutFleet(fleets.FaultFleet):
    REACHED = [slot for slot in range(fleets.ENGINES) if slot != AWAY]

    def __init__(self):
        self.network = Network()
        super().__init__(with_router=False)
        self.callback(self.network.close)

    def write_job(self, policies, engines):
        super().write_job(policies, engines)
        with edited(self.job) as job:
            job["controller"]["listen"] = f"{HERE}:0"
        return self.job

    def policy(self, rank):
        return self.role(f"policy-{rank}", "policy", "--rank", str(rank), *self.where(), "--source", self.model,
                         "--listen", f"{SENDERS}:0")

    def agent(self, slot, engine_args=()):
        listen, prefix = (f"{THERE}:0", self.network.there) if slot == AWAY else ("127.0.0.1:0", ())
        return self.role(f"agent-{slot}", "agent", "--slot", str(slot), "--config", self.job, "--listen", listen,
                         "--run-directory", f"{self.folder}/run-{slot}", prefix=prefix)


def cut_while_serving(run):
    with run.fleet.network.cut(*EVERYBODY):
        run.broken = time.time()
        run.await_said(f"engine {run.slot} is quarantined", UNTIL_GIVEN_UP)


def cut_in_transfer(*towards):
    def act(run):
        with contextlib.ExitStack() as stack:
            with in_transfer(run, deadline=20.0):
                run.broken = time.time()
                stack.enter_context(run.fleet.network.cut(*towards))
            run.end_sync()
    return act


def cut_for_a_moment(run):
    with contextlib.ExitStack() as stack:
        with in_transfer(run):
            run.broken = time.time()
            stack.enter_context(run.fleet.network.cut(*EVERYBODY))
        time.sleep(fleets.CALL / 2)  # the fault itself
    run.end_sync()


def data_path_cut_at_a_bind(run):
    """Everybody hears everybody but this one pair, until the slot is given up for it."""
    run.links = set(range(fleets.ENGINES))
    code, report = run.fleet.ask("shutdown")  # every link is needed anew
    assert code == 0, report
    with run.fleet.network.cut(SENDERS):
        run.broken = time.time()
        run.sync()
        said = {engine["slot"]: engine["error"] for engine in run.end_sync()["engines"] if engine["error"]}
        assert set(said) == {run.slot} and SENDERS in said[run.slot]["message"], said
        assert not run.said(f"BIND slot={run.slot} "), "taken for linked"


def data_path_cut_for_a_moment_at_a_bind(run):
    """The first try fails at its deadline, the second one links."""
    run.links = set(range(fleets.ENGINES))
    code, report = run.fleet.ask("shutdown")
    assert code == 0, report
    with run.fleet.network.cut(SENDERS):
        run.broken = time.time()
        run.sync()
        time.sleep(fleets.STALL + 0.5)  # the fault itself
        assert not run.said(f"BIND slot={run.slot} "), "taken for linked"
    spans = run.end_sync()["spans"]
    tries = [span for span in spans if (span["lane"], span["name"]) == (f"engine {run.slot}", "bind")]
    assert len(tries) == 2, tries


AWAY_ONLY = {"slot": AWAY, "fleet": CutFleet, "needs": ("namespaces",)}
ROWS = [
    Row("serving/network cut", "Q", cut_while_serving, "S49 S52", **AWAY_ONLY),
    Row("bind/data path cut", "Q", data_path_cut_at_a_bind, "S18 S19", **AWAY_ONLY),
    Row("bind/data path cut for a moment", "ok", data_path_cut_for_a_moment_at_a_bind, "S17 S18", **AWAY_ONLY),
    Row("transfer/data path cut", "EITHER", cut_in_transfer(SENDERS), "S51", **AWAY_ONLY),
    Row("transfer/network cut", "EITHER", cut_in_transfer(*EVERYBODY), "S51 S52", **AWAY_ONLY),
    Row("transfer/what the agent is told gets lost", "EITHER", cut_in_transfer(THERE), "S49", **AWAY_ONLY),
    Row("transfer/what the agent says gets lost", "EITHER", cut_in_transfer(HERE, SENDERS), "S50", **AWAY_ONLY),
    Row("transfer/network cut for a moment", "ok", cut_for_a_moment, "S54", **AWAY_ONLY),
]
