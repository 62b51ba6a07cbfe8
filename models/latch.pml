/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The terminal latch of one run, profile `strict`. Rules: RC-TERM-01…07, RC-SYNC-05, -07, RC-SESS-08, -10, RX-ONCE-01.
 *
 * Two callers, each with three calls out of init, sync and shutdown; a refit may fail or be cancelled at every step, its
 * cleanup may fail as well; the controller may die and restart once, between two calls. Errors are numbered by the
 * step where they arose: 1 rollback, 2 bind, 3 transfer, 4 end; what may be retried has none.
 *
 * Properties: after the latch no call is sent to anybody, ever, by anybody (also by a restarted controller); the first error is
 * the one that is stored and returned; exactly the four steps latch; then engines and monitor stay paused; and every call
 * that was begun returns (returns).
 * Left out: death in the middle of a call (journal.pml); what a step does; several engines (envelope.pml). `resilient` latches only EQUIVOCATION and CORRUPT, in this way.
 * How to read it: each flag breaks one rule. The latch's record is durable before anybody hears of it. */
mtype = { NOTHING, INIT, SYNC, SHUTDOWN };
bit busy; byte latched; byte record; bit ready; bit crashed;
bit engines_paused; bit monitor_paused = 1;
byte first;        /* ghost: the first terminal error of this run */
byte calls_left[2] = 3;
bit inside[2];

#define FOUR(e) (e >= 1 && e <= 4)
#define RPC assert(!first)
#ifdef OVERWRITE  /* RC-TERM-02: the last error wins */
#define STORE(e) record = e; latched = e
#else
#define STORE(e) record = (record -> record : e); latched = record
#endif
#define LATCH(e) atomic { first = (first -> first : e); STORE(e) }

/* A call out of this process. It goes well, fails, or the operator cancels while it is under way. */
inline call(how) { atomic { RPC; if :: how = 0 :: how = 1 :: how = 2 fi } }

#ifdef ESCAPES  /* RC-TERM-06: a guard that cancellation passes by */
#define CAUGHT(how) (how == 1)
#else
#define CAUGHT(how) (how >= 1)
#endif

inline bind() {
  call(how);
  if
  :: how == 0 -> ready = 1
  :: CAUGHT(how) -> LATCH(2); goto raise
  :: how == 2 && !CAUGHT(how) -> first = (first -> first : 2); goto raise
  fi }

active [2] proctype Caller() { byte how; mtype what;
again:
  if :: calls_left[_pid] == 0 -> goto done :: else -> calls_left[_pid]-- fi;
  if :: what = INIT :: what = SYNC :: what = SHUTDOWN fi;
  inside[_pid] = 1;
#ifdef PROBE_FIRST  /* RC-TERM-02: a look at the engines before the latch is looked at */
  if :: what == SYNC -> RPC :: else fi;
#endif
  if
  :: atomic { busy
#ifndef NO_BUSY  /* RC-SYNC-07 */
       -> inside[_pid] = 0 }; goto again
#else
       -> skip }
#endif
  :: atomic { !busy -> busy = 1 }
  fi;
  if
  :: latched ->
     atomic { assert(latched == first);  /* what is raised chains the first error */
     if :: what == SHUTDOWN -> ready = 0
#ifdef SHUTDOWN_FINALIZES  /* RC-TERM-04 */
           ; RPC
#endif
#ifdef INIT_BINDS  /* RC-SYNC-05: init does not look at the latch */
        :: what == INIT -> RPC
#endif
        :: else fi };
     goto raise
  :: else
  fi;
  if
  :: what == SHUTDOWN -> monitor_paused = 1; if :: ready -> call(how); ready = 0 :: !ready fi; goto raise
  :: what == INIT -> if :: ready :: !ready -> bind() fi; goto raise
  :: what == SYNC
  fi;
  monitor_paused = 1;
  call(how);                                    /* recovery */
  if
  :: how == 0
  :: how >= 1 -> call(how);                     /* its rollback */
     ready = 0;
     if :: how >= 1 -> LATCH(1) :: else fi;
     goto raise
  fi;
  if :: !ready -> bind() :: ready fi;
  atomic { call(how); engines_paused = (how == 0 -> 1 : engines_paused) };  /* pause, flush, begin */
  if
  :: how == 0
  :: how >= 1 ->
#ifdef LATCH_EARLY  /* RC-TERM-01: a failure before the transfer latches too */
     LATCH(5);
#else
     atomic { call(how); engines_paused = 0; monitor_paused = 0 };
#endif
     goto raise
  fi;
  call(how);                                    /* transfer */
  if
  :: how == 0
  :: CAUGHT(how) -> call(how);                  /* the session is closed, once; that it fails is secondary */
#ifdef RESUMES  /* RC-SESS-08: resumed in a cleanup */
     atomic { engines_paused = 0 };
#endif
#ifdef END_ERROR  /* RC-SESS-10: an error of the cleanup replaces the primary one */
     if :: how -> atomic { first = (first -> first : 3); STORE(4) } :: else -> LATCH(3) fi;
#else
     LATCH(3);
#endif
     if :: how -> STORE(4) :: else fi;          /* reported again by whoever saw it: never stored */
#ifdef FINALIZES  /* RC-TERM-03: release_after_refit though latched */
     RPC;
#endif
     goto raise
  :: how == 2 && !CAUGHT(how) -> first = (first -> first : 3); goto raise
  fi;
  call(how);                                    /* end */
  if :: how == 0 :: how >= 1 -> LATCH(4); goto raise fi;
  atomic { call(how); engines_paused = (how == 0 -> 0 : 1); monitor_paused = engines_paused };  /* COMMIT; KV, resume */
raise:
  atomic {
    if :: first -> assert(latched == first); assert(FOUR(first)); assert(monitor_paused); assert(first <= 2 || engines_paused)
    :: else -> assert(!latched) fi;
    busy = 0; inside[_pid] = 0; how = 0 };
#if defined(NEVER_BOTH)  /* reached: both callers see the latch after a restart */
  assert(!(crashed && latched && calls_left[0] == 0 && calls_left[1] == 0));
#endif
  goto again;
done: skip }

/* The process dies: what was in memory is gone; callers ask the next one. */
active proctype Crash() {
  atomic { !busy && !crashed -> crashed = 1; ready = 0; monitor_paused = 1;
#ifdef MEMORY_ONLY  /* RC-TERM-07 */
    latched = 0 }
#else
    latched = record }
#endif
}

#define is_inside (inside[0] == 1)
ltl returns { [] (is_inside -> <> (!is_inside)) }
