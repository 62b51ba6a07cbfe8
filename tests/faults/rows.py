# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What a row is, what each outcome demands, and what must come of a kill (reliability.md §3, profile resilient)."""

import dataclasses

PHASES = ("serving", "recover", "bind", "pause", "transfer", "end", "decision", "activate", "shutdown")

# The outcome of kill -9 of each role in each phase; CODES says what a code demands. Where the table of the
# specification is coarser than docs/failure-contract.md, the latter's word stands here:
# - a policy worker that is killed in `end` had sent everything, but not said what: FAIL, or the decision if it had;
# - a controller that is killed before it recorded the decision: the successor begins anew (REDO), and whoever waited
#   gets one answer from it;
# - an engine or agent that is killed in `shutdown` (every link is closed; engines serve on) is replaced like one that
#   serves; `refit shutdown` itself does not look for a successor.
KILLS = {
    #              serving recover bind     pause   transfer end        decision activate shutdown
    "engine":     ("Q",    "Q",    "Q",     "Q",    "Q",    "Q",       "Q",    "Q",    "Q"),
    "agent":      ("Q",    "Q",    "Q",     "Q",    "Q",    "Q",       "Q",    "Q",    "Q"),
    "policy":     ("ok",   "ok",   "PRE",   "PRE",  "FAIL", "FAIL/ok", "FWD",  "ok",   "ok"),
    "controller": ("HOLD", "REDO", "REDO",  "REDO", "REDO", "REDO",    "REDO", "FWD",  "AGAIN"),
    "router":     ("ok",   "ok",   "ok",    "ok",   "ok",   "ok",      "ok",   "ok",   "ok"),
}


@dataclasses.dataclass(frozen=True)
class Code:
    says: str
    sync: tuple = (0,)        # exit codes that the row's sync may have
    replaced: object = False  # the engines that the row breaks, and no other; None: they may be
    then: str = "consistent"  # what the fleet comes to before anybody syncs again


CODES = {
    "Q": Code("its life is over, the others commit in the same attempt, its slot comes back", replaced=True),
    "OUT": Code("left out of that version; keeps its life and catches up"),
    "ok": Code("nothing visible"),
    "PRE": Code("the sync fails before the first update, every engine goes on at V-1", sync=(1,), then="as before"),
    "FAIL": Code("the sync fails, who was opened stays paused until the next sync", sync=(1,), then="paused"),
    "FAIL/ok": Code("as FAIL, or committed where everything had been sent and told", sync=(0, 1), then="either"),
    "SYSTEMIC": Code("the sync fails, nobody is blamed, the next sync repairs", sync=(1,), then="sync"),
    "DEATHS": Code("the update kills: whoever died is launched again, and given nothing before the next request",
                   sync=(0, 1), replaced=True, then="asked"),
    "EITHER": Code("fails or commits with the others by its deadline; what broke comes back", sync=(0, 1),
                   replaced=None, then="sync"),
    "HOLD": Code("engines go on as they are until a controller is back"),
    "REDO": Code("the successor begins a new attempt; whoever asked gets one answer"),
    "FWD": Code("what was decided is carried out"),
    "AGAIN": Code("whoever asked hears that nobody answers; asked again, the successor does it", sync=(1,)),
}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str              # phase/what is broken
    code: str              # of CODES
    act: object            # called with the Run; breaks something, and sets `broken` to the instant of it
    numbers: str = ""      # of reliability.md §4
    recovers: bool = False  # the engine is replaced already before the fault: it happens within that
    needs: tuple = ()      # of suite.NEEDS: where that is not to be had, the row is skipped
    fleet: object = None   # the class of the fleet that it breaks; None: the usual one
    slot: object = None    # of the engine that is broken, where it must be that one
