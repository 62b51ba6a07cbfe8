# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Which process is killed in which phase, and what must come of it (specs/reliability.md §3, profile resilient)."""

import dataclasses

PHASES = ("serving", "recover", "bind", "pause", "transfer", "end", "decision", "activate", "shutdown")

# The outcome of kill -9 of each role in each phase; CODES says what a code demands. Where the table of the
# specification is coarser than docs/failure-contract.md, the latter's word stands here:
# - a policy worker's death is noticed when it is told to send, so one that is killed in `bind` or `pause` may cost more
#   than PRE, which is what is to be: LATE;
# - a policy worker that is killed in `end` had sent everything, but not said what: FAIL, or the decision if it had;
# - a controller that is killed before it recorded the decision: the successor begins anew (REDO), and whoever waited
#   gets one answer from it;
# - an engine or agent that is killed in `shutdown` (every link is closed; engines serve on) is replaced like one that
#   serves; `refit shutdown` itself does not look for a successor.
KILLS = {
    #              serving recover bind     pause   transfer end        decision activate shutdown
    "engine":     ("Q",    "Q",    "Q",     "Q",    "Q",    "Q",       "Q",    "Q",    "Q"),
    "agent":      ("Q",    "Q",    "Q",     "Q",    "Q",    "Q",       "Q",    "Q",    "Q"),
    "policy":     ("ok",   "WAIT", "LATE*", "LATE", "FAIL", "FAIL/ok", "FWD",  "ok",   "ok"),
    "controller": ("HOLD", "REDO", "REDO",  "REDO", "REDO", "REDO",    "REDO", "FWD",  "AGAIN"),
}


@dataclasses.dataclass(frozen=True)
class Code:
    says: str
    sync: tuple            # exit codes that the sync of that phase may have
    replaced: object       # the victim's engine, and no other; None: that one may be
    then: str = "consistent"  # what the fleet comes to before anybody syncs again


CODES = {
    "Q": Code("its life is over, the others commit in the same attempt, its slot comes back", (0,), True),
    "ok": Code("nothing visible", (0,), False),
    "LATE": Code("the sync fails; engines go on at V-1, but who was opened stays paused until the next sync",
                 (1,), False, "either"),
    "LATE*": Code("as LATE; an engine whose link to the dead one failed twice may be replaced", (1,), None, "either"),
    "FAIL": Code("the sync fails, who was opened stays paused until the next sync", (1,), False, "paused"),
    "FAIL/ok": Code("as FAIL, or committed where everything had been sent and told", (0, 1), False, "either"),
    "WAIT": Code("the new engine waits for the policy worker, or for the next refit (C13)", (0,), False, "launched"),
    "HOLD": Code("engines go on as they are until a controller is back", (0,), False),
    "REDO": Code("the successor begins a new attempt; whoever asked gets one answer", (0,), False),
    "FWD": Code("what was decided is carried out", (0,), False),
    "AGAIN": Code("whoever asked hears that nobody answers; asked again, the successor does it", (1,), False),
}


@dataclasses.dataclass(frozen=True)
class KillRow:
    role: str
    phase: str

    @property
    def name(self):
        return f"{self.phase}/{self.role}"

    @property
    def code(self):
        return KILLS[self.role][PHASES.index(self.phase)]


def kill_rows():
    return [KillRow(role, phase) for phase in PHASES for role in KILLS]
