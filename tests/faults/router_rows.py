# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The router: stopped, or with a list that somebody else emptied. Its kills are with the others."""

import json
import time
import urllib.request

from processes import wait_for
from rows import Row


def stopped_in_a_refit(run):
    with run.fleet.frozen(run.fleet.status()["router"]["pid"]):
        run.broken = time.time()
        run.sync()
        run.end_sync()


def stopped_while_an_engine_dies(run):
    """Whoever is lost is confirmed dead, so nobody has to be asked whom the router lists."""
    fleet = run.fleet
    fleet.arm(run.slot, "hold:update:2")
    try:
        with fleet.frozen(fleet.status()["router"]["pid"]):
            run.sync()
            run.broken = fleet.kill("engine", run.slot, fleet.await_hit(run.slot, "update"))
            fleet.disarm(run.slot)
            run.end_sync()
    finally:
        fleet.disarm(run.slot)


def forgets_everybody(run):
    with urllib.request.urlopen(f"http://{run.fleet.router}/workers", timeout=5) as answer:
        workers = json.load(answer)["workers"]
    run.broken = time.time()
    for worker in workers:
        forget = urllib.request.Request(f"http://{run.fleet.router}/workers/{worker['id']}", method="DELETE")
        urllib.request.urlopen(forget, timeout=5).close()
    wait_for(lambda: run.fleet.router_lists() == [], "an empty list", 2, pause=0.005)


ROWS = [
    Row("serving/router forgets everybody", "ok", forgets_everybody, "S47", needs=("router",)),
    Row("transfer/router stopped", "ok", stopped_in_a_refit, "S47", needs=("router",)),
    Row("transfer/engine, router stopped", "Q", stopped_while_an_engine_dies, "S48", needs=("router",)),
]
