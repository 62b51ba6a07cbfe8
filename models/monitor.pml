/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The health monitor of one slot. Rules: RC-MON-02…07, -10, -11, RX-QUAR-07.
 *
 * The controller goes round: load the KV pool, resume the engine, let the monitor probe, pause the monitor, release the memory.
 * It may stop the monitor at any time, and joins the thread for a bounded time only. A probe answers well, badly, or hangs until
 * its outer bound. The slot may be refilled by others at any time, also between a probe and the kill that it causes. Time comes
 * in ticks; between two of them the thread has had its turn. A fresh engine loads for less than the grace, F ticks.
 *
 * Properties: no probe and no kill is in flight when memory is released, nor begins before the next resume; only a loaded,
 * serving engine is probed; only the incarnation that was probed is killed; what the thread touches is alive; once stopped the
 * thread exits (exits); rounds that are each shorter than F do not keep the monitor in grace for ever (probed).
 * Left out: several slots, counting failures (RX-QUAR-06), real clocks.
 * How to read it: each flag breaks one rule; `exits` and `probed` are checked under weak fairness. ROUNDS never stops. */
#define F 5
bit monitor_paused = 1; bit probing; bit killing; bit stopping; bit exited; bit freed; bit probes;
bit released = 1; bit serving; bit loaded_kv;
byte inc; byte loading = F - 1; byte grace = F;
bit due; bit pause_done = 1;

#ifdef SLEEPS_PAUSED  /* RC-MON-07: stop does not wake a paused thread */
#define STOPS (stopping && !monitor_paused)
#else
#define STOPS stopping
#endif

active proctype Thread() { byte mine;
  do
  :: atomic { STOPS -> break }
  :: atomic { !stopping && due && (monitor_paused || grace > 0) -> due = 0 }
  :: atomic { !stopping && due && !monitor_paused && grace == 0 -> due = 0; probing = 1; probes = 1; mine = inc;
       assert(!released); assert(serving && loaded_kv); assert(!pause_done); assert(loading == 0) };
     if
     :: atomic { probing = 0 }                         /* healthy */
     :: atomic { probing = 0; killing = 1 };           /* failed, or the outer bound is over */
        assert(!freed);
        atomic {
#ifdef KILL_BY_SLOT  /* RC-MON-10 */
          assert(mine == inc); inc = 1 - inc; loading = F - 1; grace = F;
#else
          if :: mine == inc -> inc = 1 - inc; loading = F - 1; grace = F :: else fi;
#endif
          killing = 0 }
#ifdef NO_BOUND  /* RC-MON-02: a probe of a hung engine never ends */
     :: true -> do :: due = due od
#endif
     fi;
     assert(!freed)
  od;
  assert(!freed);
  exited = 1 }

inline tick() {
  atomic { due = 1;
    if :: loading > 0 -> loading-- :: else fi;
    if :: grace > 0 -> grace-- :: else fi };
  !due || STOPS || exited }

active proctype Controller() {
  do
  :: /* a round: generate, then hand the memory over */
     atomic { released = 0;  /* the weights are loaded */
#ifdef ON_WEIGHTS  /* RC-MON-03: that enables probing */
       monitor_paused = 0; pause_done = 0
#endif
     };
     tick();
     atomic { loaded_kv = 1;
#ifdef BEFORE_RESUME  /* RC-MON-11: probing is enabled before the engine is resumed */
       monitor_paused = 0; pause_done = 0
#endif
     };
     tick();
     atomic { serving = 1; monitor_paused = 0; pause_done = 0;
#ifdef REARM  /* RC-MON-05: each resume arms the grace anew */
       grace = F
#endif
     };
     tick();
     if :: tick() :: skip fi;
     atomic { monitor_paused = 1;
#ifdef NO_WAIT  /* RC-MON-04: pause sets the flag and returns */
       true
#elif defined(WAIT_PROBE_ONLY)  /* RC-MON-04: the kill that a probe caused is not waited for */
       };
     atomic { !probing
#else
       };
     atomic { !probing && !killing
#endif
       -> pause_done = 1; serving = 0 };
     atomic { assert(!probing && !killing); released = 1; loaded_kv = 0 };
     tick()
  od }

#ifndef ROUNDS
active proctype Stopper() {
  stopping = 1;
  if
  :: exited -> freed = 1  /* joined */
  :: true ->              /* the join's time is over: warn, keep what the thread may touch */
#ifdef FREE_AFTER_JOIN  /* RC-MON-07 */
     freed = 1
#else
     skip
#endif
  fi }
#endif

/* Somebody else refills the slot: the agent reported a death. The new engine loads, and has its own grace. */
active proctype Fleet() {
  do
  :: atomic { !released -> inc = 1 - inc; loading = F - 1;
#ifndef OLD_GRACE  /* RC-MON-06, -11: the grace of the engine before it */
       grace = F;
#endif
       break }
  :: break
  od }

#define is_exited (exited == 1)
#define is_stopping (stopping == 1)
#define has_probed (probes == 1)
ltl exits { [] (is_stopping -> <> is_exited) }
ltl probed { <> has_probed }
