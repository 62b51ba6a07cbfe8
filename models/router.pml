/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The router's entries, and the controller that reconciles them. Rules: RC-RTR-02…04, RC-REC-09, RX-COMMIT-03, -08, RX-LEAD-03, C9.
 *
 * Two slots. The controller refits twice, each time with any members; the others it takes out of traffic by the router's
 * list alone (the hardest way: such an engine goes on answering). Adds land late, those of a superseded controller too. The
 * engine of slot 1 restarts once: the new one answers with the weights of a checkpoint. The router forgets everything once.
 *
 * Properties: a request that is routed is answered by the last committed version, unless by an entry that a superseded controller
 * added (the documented residual); an entry that is stale when a pass of reconciling begins is gone when it ends; a paused
 * survivor stays registered; refits end, and in the end exactly the members are listed (converges).
 * Left out: HOLD (commit.pml), ids, labels, health checks.
 * How to read it: each flag breaks one rule. */
#define PORTS 3
bit listed[PORTS]; bit late[PORTS];       /* the router; written by a superseded controller */
bit pending[PORTS];
byte port[2]; bit member[2] = 1; bit answers[2] = 1; bit fresh[2] = 1;  /* fresh: has the last committed version */
bit up[2] = 1; bit mark[PORTS]; bit refits_over; bit forgot;

#define MEMBER(p) ((member[0] && port[0] == p) || (member[1] && port[1] == p))
#define ROUTED_BADLY(s) (listed[port[s]] && !late[port[s]] && up[s] && answers[s] && !fresh[s])

inline add(p) { if :: !listed[p] -> pending[p] = 1 :: else fi }
inline delete(p) { listed[p] = 0; late[p] = 0; mark[p] = 0 }

#ifdef CONFIRMS_EARLY  /* RC-RTR-04: confirmed with an add of ours pending */
#define OUT(p) (!listed[p])
#else
#define OUT(p) (!listed[p] && !pending[p])
#endif

inline exclude(s) {
  atomic { member[s] = 0;
#ifdef NOT_FOUND  /* RC-RTR-02: an entry that is not there cannot be deleted */
    listed[port[s]] ->
#endif
    delete(port[s]) };
  do :: atomic { OUT(port[s]) -> break } :: atomic { listed[port[s]] -> delete(port[s]) } od }

active proctype Controller() { byte n; bit take[2];
  atomic { port[0] = 0; port[1] = 1; listed[0] = 1; listed[1] = 1 };
  do
  :: n < 2 -> n++;
     atomic { if :: take[0] = 1 :: take[0] = 0 fi; if :: take[1] = 1 :: !take[0] -> take[1] = 1 :: take[0] -> take[1] = 0 fi };
     atomic { if :: take[0] -> answers[0] = 0 :: else fi; if :: take[1] && up[1] -> answers[1] = 0 :: else fi };  /* paused */
     if :: !take[0] -> exclude(0) :: else fi;
#ifndef NOT_EXCLUDED  /* RX-COMMIT-03: COMMIT though somebody left out is in traffic */
     if :: !take[1] -> exclude(1) :: else fi;
#endif
     atomic { fresh[0] = take[0]; fresh[1] = (take[1] && up[1]); member[0] = take[0]; member[1] = fresh[1];  /* COMMIT */
       if :: member[0] -> mark[port[0]] = 0 :: else fi; if :: member[1] -> mark[port[1]] = 0 :: else fi };
     atomic { if :: member[0] -> answers[0] = 1; add(port[0]) :: else fi };
     atomic { if :: member[1] -> answers[1] = 1; add(port[1]) :: else fi }
  :: n == 2 -> break
  od;
  refits_over = 1 }

active proctype Router() {
endr: do
  :: atomic { pending[0] -> pending[0] = 0; listed[0] = 1; late[0] = 0; mark[0] = 0 }
  :: atomic { pending[1] -> pending[1] = 0; listed[1] = 1; late[1] = 0; mark[1] = 0 }
  :: atomic { pending[2] -> pending[2] = 0; listed[2] = 1; late[2] = 0; mark[2] = 0 }
  :: atomic { !forgot && !refits_over -> forgot = 1; listed[0] = 0; listed[1] = 0; listed[2] = 0; late[0] = 0; late[1] = 0; late[2] = 0 }
  od }

/* A controller that was superseded wakes up, once, and adds what it knew. */
active proctype Old() {
  if
  :: atomic { port[0] != port[1] -> listed[0] = 1; late[0] = 1; mark[0] = 0 }
  :: atomic { port[0] != port[1] -> listed[1] = 1; late[1] = 1; mark[1] = 0 }
  :: skip
  fi }

/* The engine of slot 1 dies, and another one is launched. */
active proctype Fleet() {
  if
  :: atomic { port[0] != port[1] -> up[1] = 0; member[1] = 0 };
     atomic { up[1] = 1; fresh[1] = 0; answers[1] = 1;
#ifndef OLD_PORT  /* RC-REC-09: it listens where the one before it did */
       port[1] = 2;
#endif
#ifdef AT_LAUNCH  /* RX-COMMIT-08: registered when it boots */
       pending[port[1]] = 1;
#endif
       skip }
  :: skip
  fi }

active proctype Reconcile() { byte p;
  port[0] != port[1];
  do
  :: atomic { p = 0; do :: p < PORTS -> mark[p] = listed[p] && !MEMBER(p); p++ :: else -> break od; p = 0 };
     do
     :: p < PORTS ->
        atomic { if
#ifndef ADDS_ONLY  /* RC-RTR-04: nothing is deleted */
        :: listed[p] && !MEMBER(p) -> delete(p)
#endif
#ifdef DELETES_PAUSED  /* RC-RTR-04: survivors stay registered while they are paused */
        :: listed[p] && MEMBER(p) && !answers[(port[1] == p -> 1 : 0)] -> assert(!MEMBER(p)); delete(p)
#endif
#ifndef DELETES_ONLY  /* RC-RTR-04: a router that forgot is not told again */
        :: !listed[p] && MEMBER(p) && refits_over && !pending[p] -> pending[p] = 1
#endif
        :: else
        fi };
        p++
     :: else -> break
     od;
     atomic { p = 0; do :: p < PORTS -> assert(!mark[p] || !listed[p] || MEMBER(p)); p++ :: else -> break od; p = 0 }
  od }

/* Requests. */
active proctype Traffic() {
endt: do :: atomic { ROUTED_BADLY(0) || ROUTED_BADLY(1) -> assert(!ROUTED_BADLY(0)); assert(!ROUTED_BADLY(1)) } od }

#define LISTED(s) (!member[s] || listed[port[s]])
#define STRAY(p) (listed[p] && !MEMBER(p))
#define as_it_should (refits_over && LISTED(0) && LISTED(1) && !STRAY(0) && !STRAY(1) && !STRAY(2))
ltl converges { <> [] (as_it_should) }
