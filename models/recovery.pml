/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Recovery as one attempt, from launch to the offload transition, with rollback. Rules: RC-REC-01…08, -10, RC-KILL-05,
 * RC-BIND-01, RC-SYNC-04, RX-MEM-02 (a slot's failure is its own).
 *
 * N slots, three syncs. An engine may die at any time while somebody serves or recovers; a launch may start nothing and say so
 * late, or start a process and then fail; any step may fail or be cancelled; a kill may stay unconfirmed. The profile `strict`
 * recovers all empty slots as one cohort; with SLOT (`resilient`) each slot is an attempt of its own.
 *
 * Properties: a failed attempt leaves slots and unbound set as they were, and readiness dropped; a failed rollback latches
 * (SLOT: makes that slot a zombie and no other); an empty slot's process is confirmed dead; no slot ever has two live ones;
 * nothing to recover touches nothing; a sync transfers only to engines that lived when it asked, all of them bound.
 * Left out: what a step does, and its time; the budget of restarts; ports (router.pml).
 * How to read it: each flag leaves out one rule, in the order of the table in expected.toml. */
#define N 2
mtype = { EMPTY, OLD, NEW, ZOMBIE };
mtype slot[N] = OLD;
byte alive[N] = 1;   /* processes that hold the slot's devices */
bit unbound[N] = 1;  /* startup reports the whole fleet */
bit ready; bit latched; bit paused;

mtype was[N]; bit was_unbound[N];  /* before this attempt */
mtype asked[N];                    /* survivors, as they were */
bit dead_before[N];                /* dead already when the sync asked */
bit tried[N];
byte syncs;
bit failed;

#define STEPS 4  /* wait, count, arm the grace, offload transition */

#ifdef RESTART_ALL  /* RC-REC-07: the rollback kills survivors too */
#define MINE(i) (slot[i] != EMPTY)
#else
#define MINE(i) (slot[i] == NEW)
#endif

inline kill_slot(i, confirmed) {
  if
  :: confirmed = 1; alive[i] = 0; slot[i] = EMPTY
  :: alive[i] > 0 -> confirmed = 0;
#ifdef CLEAR_UNCONFIRMED  /* RC-KILL-05: an unconfirmed kill empties the slot */
     slot[i] = EMPTY
#else
     slot[i] = ZOMBIE
#endif
  fi }

inline rollback(lo, hi) {
  atomic { failed = 0; j = lo;
  do
  :: j < hi ->
     if :: MINE(j) -> kill_slot(j, ok); if :: !ok -> failed = 1 :: else fi :: else fi;
#ifdef ZERO  /* RC-REC-04: the unbound set is cleared, not restored */
     unbound[j] = 0;
#else
     unbound[j] = was_unbound[j];
#endif
     j++
  :: else -> break
  od;
#ifndef KEEP_READY  /* RC-REC-06 */
  ready = 0;
#endif
#ifdef SLOT
  assert(!failed || slot[lo] == ZOMBIE);
#else
  if
  :: failed ->
#ifndef NO_LATCH  /* RC-REC-05 */
     latched = 1;
#endif
     assert(latched)  /* a failed rollback latches */
  :: else
  fi;
#endif
  j = 0;
  do
  :: j < N ->
     assert(failed || slot[j] == was[j]);  /* a failed attempt leaves the slots as they were */
     assert(unbound[j] == was_unbound[j]);
     j++
  :: else -> break
  od;
  assert(!ready) } }

/* One atomic attempt for the empty slots among lo … hi-1. */
inline attempt(lo, hi) {
  atomic { j = 0; do :: j < N -> was[j] = slot[j]; was_unbound[j] = unbound[j]; j++ :: else -> break od };
  i = lo; good = 1; started = 0; empties = 0;
  do
  :: good && i < hi ->
     if
     :: atomic { slot[i] == EMPTY -> empties++; tried[i] = 1;
        if
        :: alive[i]++; slot[i] = NEW; started++             /* launched */
        :: alive[i]++; slot[i] = NEW; good = 0              /* launched, and the step failed */
        :: good = 0                                         /* failed before there was a process */
        :: skip                                             /* started nothing, said nothing: RC-REC-08 */
        fi }
     :: else
     fi;
     i++
  :: else -> break
  od;
  step = 0;
  do
  :: good && step < STEPS ->
     if
     :: step == 1 ->
#ifndef NO_COUNT  /* RC-REC-08 */
        if :: started != empties -> good = 0 :: else fi
#endif
        skip
     :: step != 1
     :: step != 1 -> good = 0
     fi;
#ifdef NARROW  /* RC-REC-03: only the wait is guarded */
     if :: !good && step > 0 -> good = 2 :: else fi;
#endif
     step++
  :: else -> break
  od;
  if
  :: good == 0 -> rollback(lo, hi)
  :: good == 1 -> atomic { j = lo;
       do
       :: j < hi -> if :: slot[j] == NEW -> slot[j] = OLD; unbound[j] = 1 :: else fi;
          assert(slot[j] != EMPTY);                          /* success filled every empty slot */
          j++
       :: else -> break
       od; ready = 0 }
  :: good == 2 -> /* escaped the guard */
     atomic { j = 0; do :: j < N -> assert(slot[j] == was[j]); j++ :: else -> break od }
  fi }

active proctype Controller() { byte i; byte j; byte good; bit ok; byte started; byte empties; byte step; byte k; bit all;
sync:
  syncs++;
#ifndef NO_PAUSE  /* RC-REC-01 */
  atomic { paused = 1 };
#endif
  /* RC-REC-10: every agent is asked whether its process lives */
  atomic { i = 0;
    do
    :: i < N -> tried[i] = 0; dead_before[i] = (slot[i] == OLD && alive[i] == 0);
#ifndef NO_ASK
       if :: dead_before[i] -> kill_slot(i, ok) :: else fi;
#endif
       i++
    :: else -> break
    od;
    i = 0; all = 1; do :: i < N -> asked[i] = slot[i]; was_unbound[i] = unbound[i]; if :: slot[i] == EMPTY -> all = 0 :: else fi; i++ :: else -> break od };
  if
  :: all -> /* RC-REC-02: nothing to do touches nothing */
#ifdef NO_RETURN
     atomic { i = 0; do :: i < N -> unbound[i] = 0; i++ :: else -> break od };
#endif
     atomic { i = 0; do :: i < N -> assert(unbound[i] == was_unbound[i]); i++ :: else -> break od }
  :: else ->
#ifdef SLOT
     k = 0;
     do
     :: k < N ->
        if :: slot[k] == EMPTY -> attempt(k, k + 1) :: else fi;
#ifdef FIRST_STOPS  /* a slot that cannot be recovered stops the others */
        if :: good == 0 -> break :: else fi;
#endif
        k++
     :: else -> break
     od;
     atomic { i = 0; do :: i < N -> assert(asked[i] != EMPTY || tried[i]); i++ :: else -> break od }
#else
     attempt(0, N);
     if :: latched || good != 1 -> goto ended :: else fi
#endif
  fi;
  /* Bind consumes the unbound set only after it went well; then the transfer. */
  atomic { i = 0; all = 1; do :: i < N -> if :: unbound[i] -> all = 0 :: else fi; i++ :: else -> break od };
  if
  :: !all || !ready ->
     if
     :: atomic { i = 0; do :: i < N -> unbound[i] = 0; i++ :: else -> break od; ready = 1 }
     :: ready = 0; goto ended
     fi
  :: else
  fi;
  atomic { i = 0;
    do
    :: i < N -> assert(!dead_before[i] || slot[i] != OLD || tried[i]);  /* what was dead is replaced before the transfer */
#if defined(NEVER_BOTH)  /* both slots replaced after an attempt that was rolled back */
       assert(!(syncs == 3 && tried[0] && tried[1]));
#elif defined(NEVER_ZOMBIE)  /* transfer with one zombie and one replacement */
       assert(!(slot[0] == ZOMBIE && tried[1]));
#endif
       i++
    :: else -> break
    od };
ended:
  atomic { i = 0; do :: i < N -> dead_before[i] = 0; i++ :: else -> break od; paused = 0 };
  if :: syncs < 3 && !latched -> goto sync :: else fi }

/* Engines die by themselves, and the monitor kills what it finds dead, unless it is paused. */
active proctype World() {
endw: do
  :: atomic { slot[0] != EMPTY && alive[0] == 1 -> alive[0] = 0 }
  :: atomic { slot[1] != EMPTY && alive[1] == 1 -> alive[1] = 0 }
  :: atomic { !paused && slot[0] == OLD && alive[0] == 0 -> slot[0] = EMPTY }
  :: atomic { !paused && slot[1] == OLD && alive[1] == 0 -> slot[1] = EMPTY }
  od }

#define BOOKS(i) (alive[i] <= 1 && (slot[i] != EMPTY || alive[i] == 0))
active proctype Books() {
endb: do
  :: atomic { !BOOKS(0) -> assert(alive[0] <= 1); assert(slot[0] != EMPTY || alive[0] == 0) }
  :: atomic { !BOOKS(1) -> assert(alive[1] <= 1); assert(slot[1] != EMPTY || alive[1] == 0) }
  od }
