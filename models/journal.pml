/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The journal, and a successor that acts on what it finds. Rules: RX-JRNL-01, -03, -04, RX-LEAD-01, -02, -04, RX-COMMIT-02, -07, -10,
 * RX-ONCE-01, RC-TERM-07 and the successor's table of §II.9.
 *
 * One engine with its agent, two controllers with the same code: term 1 refits, and may die or freeze at any instant (frozen it
 * goes on whenever it likes); term 2 takes over at any instant, replays, asks the agent, acts by the table, then serves the
 * same request again. An append goes well, fails, or fails though it is durable; a frozen one may land late. The agent refuses
 * lower terms. The engine may also be restarted (new life, checkpoint weights) once. Versions 0 and 1; every attempt carries the same bytes (RX-ONCE-03).
 *
 * Properties: nothing is done to the engine without INTENT; at most one COMMIT per version; nothing serves an uncommitted version, a
 * mix, or the old version after COMMIT; only what the table names is killed; an outcome is durable before it is reported, and
 * there is one (INV-7); every refit is settled (settled): outcome recorded and the engine serves what is committed.
 * Left out: more than one engine (commit.pml): a COMMIT without this one is the rest of the fleet's; the wire's losses (an answer that is lost is a dead controller here).
 * How to read it: each flag breaks one rule or one row of the table. */
mtype = { SERVING, OLD, MIXED, COMPLETE, UNKNOWN, STALE };
mtype = { NONE, SUCCESS, FAILURE };

/* The disk. */
byte term = 1; bit intent[4]; byte commits[4]; byte committed; mtype outcome = NONE;
/* The engine, and its agent. */
mtype phase = SERVING; byte holds; byte floor = 1;
/* The client. */
mtype told = NONE;
bit taken; bit settled_once;
#define V 1

#ifdef NO_TERM_CHECK  /* RX-LEAD-02: the agent takes any command */
#define TO_AGENT (1)
#else
#define TO_AGENT (me >= floor)
#endif
#ifdef CHECK_FIRST  /* RX-LEAD-02: the term is looked at, the record written in a later step */
#define HOLDS_TERM (1)
#else
#define HOLDS_TERM (term == me)
#endif

/* A command; refused for ever to a lower term (RX-LEAD-04: then the controller stops). */
#define COMMAND(effect) atomic { if :: TO_AGENT -> floor = (me > floor -> me : floor); effect :: else -> goto stop fi }

/* An append: lands, or does not, or lands and says it did not. A foreign term stops at once. */
#define APPEND(record) \
  if \
  :: atomic { HOLDS_TERM -> record } \
  :: atomic { me == 1 && HOLDS_TERM -> record; doubt = 1 } \
  :: atomic { me == 1 -> doubt = 1 } \
  :: atomic { !HOLDS_TERM -> goto stop } \
  fi

#ifdef RETRIES  /* RX-JRNL-03: a failed append is taken for one that did not happen */
#define STOP_IF_DOUBT skip
#else
#define STOP_IF_DOUBT if :: doubt -> goto stop :: else fi
#endif

inline serve(v) { assert(v == committed); assert(v == 0 || commits[v] == 1); assert(holds == v); phase = SERVING }
inline kill_it() { phase = STALE; holds = 9 }

/* A full set for the version v, from an engine that is paused or stale. */
inline full_set(v) {
  COMMAND(assert(intent[v]); phase = MIXED);
  COMMAND(if :: phase == MIXED -> phase = COMPLETE; holds = v :: else -> skip fi) }

inline refit() {
#ifndef EFFECT_FIRST  /* RX-JRNL-01 */
  APPEND(intent[V] = 1);
  STOP_IF_DOUBT;
#endif
  doubt = 0;
  COMMAND(assert(intent[V]); if :: phase == SERVING -> phase = OLD :: else fi);
  if
  :: atomic { phase == OLD && me == 1 -> skip };   /* given up before the first update: back to V-1 */
     COMMAND(if :: phase == OLD -> serve(0) :: else fi); APPEND(outcome = FAILURE); STOP_IF_DOUBT;
     atomic { told = FAILURE; assert(outcome == FAILURE) }; goto stop
  :: true
  fi;
#ifdef EFFECT_FIRST
  APPEND(intent[V] = 1);
#endif
  if
  :: atomic { phase == OLD && me == 1 }  /* excluded and held; the rest of the fleet commits */
  :: full_set(V);
     if :: atomic { phase == COMPLETE && holds == V } :: atomic { phase != COMPLETE -> goto again } fi
  fi;
  doubt = 0;
  APPEND(commits[V]++; committed = V);
  assert(commits[V] <= 1);
#ifdef RETRIES
  if :: doubt -> atomic { told = FAILURE; outcome = FAILURE; assert(!committed) }; goto stop :: else fi;
#endif
  STOP_IF_DOUBT }

active [2] proctype Controller() { byte me = 1; bit doubt;
  if
  :: _pid == 0
  :: _pid == 1 -> atomic { me = 2; term = 2; taken = 1 }
  fi;
  if :: me == 1 -> refit(); goto settle :: else fi;

again: /* the successor: replay, then ask the agent */
  COMMAND(skip);
#ifdef TRUSTS_JOURNAL  /* RX-JRNL-04: the agent is not asked */
  if :: !committed && intent[V] -> COMMAND(phase = OLD; serve(0)) :: else fi;
#endif
#ifdef RESTARTS_ALL  /* RX-JRNL-04 */
  COMMAND(assert(phase != SERVING || holds != committed); kill_it());
#endif
  if
  :: atomic { phase == SERVING && holds == committed }
  :: atomic { phase == SERVING && holds != committed };  /* excluded, or another digest: out of traffic, restarted */
     COMMAND(if :: holds != committed -> kill_it() :: else fi)
  :: atomic { phase == OLD && !committed };
     COMMAND(if :: phase == OLD -> serve(0) :: else fi)
  :: atomic { phase == OLD && committed }                /* never resumed: catch-up */
#ifdef RESUMES_OLD  /* the row COMMIT / kOld */
     ; COMMAND(serve(0))
#endif
  :: atomic { phase == MIXED || phase == STALE }         /* fenced and held: a new full set */
#ifdef RESUMES_MIXED  /* the row INTENT / kMixed */
     ; COMMAND(phase = SERVING; assert(holds == committed))
#endif
  :: atomic { phase == COMPLETE && committed };          /* ACTIVATE */
#ifdef NEVER_FORWARD
     assert(told == NONE && outcome != NONE);
#endif
     COMMAND(if :: phase == COMPLETE && holds == committed -> serve(committed) :: else fi)
  :: atomic { phase == COMPLETE && !committed }          /* held */
#ifdef ACTIVATES  /* the row INTENT / kComplete: no COMMIT, yet activated */
     ; COMMAND(serve(V))
#endif
  :: atomic { phase == UNKNOWN };
     COMMAND(kill_it())
  fi;
  if
  :: outcome != NONE -> skip                             /* the same id gets what was recorded */
#ifdef RUNS_TWICE  /* RX-ONCE-01 */
     ; refit()
#endif
  :: outcome == NONE && !committed -> refit()
  :: outcome == NONE && committed
  fi;

settle:
  if
  :: atomic { committed && phase == COMPLETE && holds == committed };
     COMMAND(if :: phase == COMPLETE && holds == committed -> serve(committed) :: else fi)
  :: atomic { committed && (phase == STALE || phase == MIXED || phase == OLD) };  /* catch-up */
     full_set(committed); goto settle
  :: atomic { committed && phase == COMPLETE && holds != committed }; COMMAND(kill_it()); goto settle
  :: atomic { phase == SERVING }
  :: atomic { phase == UNKNOWN }; COMMAND(kill_it()); goto settle
  :: atomic { !committed && phase != SERVING && phase != UNKNOWN }
  fi;
  if
  :: outcome == NONE ->
     doubt = 0;
#ifdef TELLS_FIRST  /* INV-7: reported before it is durable */
     atomic { told = (told == NONE -> (committed -> SUCCESS : FAILURE) : told); assert(outcome == told) };
#endif
     APPEND(outcome = (committed -> SUCCESS : FAILURE)); STOP_IF_DOUBT
  :: else
  fi;
  atomic { assert(outcome != NONE); assert(told == NONE || told == outcome); told = outcome };
  if :: me == 2 -> settled_once = 1 :: else fi;
stop:
  skip }

/* Death of the first controller needs no process: the second may take over at any instant, and the first then stop for good.
 * The engine loses an answer, or its life, once. */
active proctype Engine() {
  if
  :: atomic { (phase == MIXED || phase == OLD) && !taken -> phase = UNKNOWN }
  :: atomic { !taken -> phase = STALE; holds = 9 }
  :: skip
  fi }

#define is_settled (settled_once == 1 && outcome != NONE && told == outcome)
#define in_service (phase == SERVING && holds == committed)
ltl settled { <> is_settled }
ltl in_step { [] (in_service || phase != SERVING) }
