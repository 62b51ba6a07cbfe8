# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""An engine that answers badly: every way of not answering, and refusals, at every mutating call of a refit.

What must come of it is the table "Engine calls and their answers" of docs/failure-contract.md, family C, resilient.
"""

import os

import rows

ROUTES = {"pause": "pause", "flush": "pause", "begin": "pause", "update:2": "transfer", "end": "end",
          "label": "activate", "continue": "activate"}  # and their phases

# No answer: the call may have run, so that life is over (C2).
NO_ANSWER = ("hang", "http500", "broken-json", "drip", "echo", "close")

# A refusal, again and again, and once.
REFUSED = {"pause": "Q", "flush": "OUT", "begin": "Q", "update:2": "OUT", "end": "Q", "label": "Q", "continue": "Q"}
REFUSED_ONCE = {"flush": "ok", "begin": "ok", "label": "ok", "continue": "ok"}


def answer(fault):
    def act(run):
        fleet = run.fleet
        fleet.arm(run.slot, fault)
        try:
            run.sync()
            pid = fleet.await_hit(run.slot, fault)
            assert pid == run.engine_pids[run.slot], "another life was hit"
            run.broken = os.stat(fleet.fault_file(run.slot) + ".hits").st_mtime
            if not fault.endswith("*"):
                fleet.disarm(run.slot)  # the next life is not to meet it
            run.end_sync()
        finally:
            fleet.disarm(run.slot)
    return act


# S41: engines stay resident, so nothing but `label` and `continue` can be refused once a version is committed.
ROWS = [rows.Row(f"{phase}/{action} {route}", "Q", answer(f"{action}:{route}"), "S42 S43 S44")
        for action in NO_ANSWER for route, phase in ROUTES.items()
        if (action, route) != ("broken-json", "flush")]  # its answer is text
ROWS += [rows.Row(f"{ROUTES[route]}/refuse {route}", code,
                  answer(f"refuse:{route}" if ":" in route else f"refuse:{route}:*"), "S36 S38 S39 S40 S41")
         for route, code in REFUSED.items()]
ROWS += [rows.Row(f"{ROUTES[route]}/refuse {route} once", code, answer(f"refuse:{route}"), "S38")
         for route, code in REFUSED_ONCE.items()]
ROWS += [rows.Row("transfer/die update", "Q", answer("die:update:2"), "S20")]
