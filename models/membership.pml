/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who takes part: joins, leaves, and a catch-up that races with commits. Rules: RX-MEM-01…03, RX-COMMIT-03, -08, RX-ID-05,
 * RX-QUAR-02, C6, C13.
 *
 * Three slots. Slot 0 stays; the engine of slot 1 may die at any instant and another one may come up in its place, at any
 * instant too; slot 2 comes up when it likes. Two refits of two buckets each. Slot 2 is caught up outside of refits: it is given
 * the last committed version, which a record must confirm before ACTIVATE is sent, and ACTIVATE is some time under way. A refit
 * that begins ends the catch-up, and takes the joiner in if HOLD is answered; if not, an ACTIVATE may still be under way.
 *
 * Properties: what serves has the whole last committed version; a member at COMMIT has all buckets of this attempt; a catch-up
 * begins at most three times; the refits end whoever left (over).
 * Left out: two controllers (commit.pml), the router (router.pml), scaling down.
 * How to read it: each flag breaks one rule. GOES_ON is violated although its records compare the version: the record may come after
 * the HOLD that excludes the joiner and before COMMIT. NEVER_… negate what must be reached. */
#define N 3
mtype = { GONE, STALE, UPDATING, COMPLETE, SERVING };
mtype phase[N] = SERVING; byte holds[N]; byte got[N]; byte life[N]; byte member_life[N]; bit member[N];
byte com; byte activate; byte tries; bit refitting; bit over_now; bit catching;

#ifdef BY_SLOT  /* RX-ID-05: a member is a slot, whoever lives there */
#define SAME_LIFE(s) (1)
#else
#define SAME_LIFE(s) (life[s] == member_life[s])
#endif
#define PRESENT(s) (member[s] && phase[s] != GONE && SAME_LIFE(s))

inline take_in(s) { member[s] = 1; member_life[s] = life[s]; got[s] = 0; phase[s] = UPDATING }
inline bucket(s) { if :: PRESENT(s) -> got[s]++ :: else fi }
inline complete(s, v) {
#ifdef WAITS_FOR_ALL  /* RX-MEM-02, C6: a departed slot is waited for */
  atomic { !member[s] || PRESENT(s) };
#endif
  atomic { if :: PRESENT(s) -> phase[s] = COMPLETE; holds[s] = v :: else -> member[s] = 0 fi } }
inline settle(s) { atomic { if :: PRESENT(s) && phase[s] == COMPLETE -> phase[s] = SERVING :: else fi; member[s] = 0 } }

active proctype Controller() { byte v; byte s;
  phase[2] = GONE;
  do
  :: v < 2 -> v++;
     atomic { refitting = 1; take_in(0);
       if :: phase[1] != GONE -> take_in(1) :: else fi;
#ifndef GOES_ON  /* RX-MEM-02: the catch-up goes on beside the refit */
       catching = 0;
#endif
       if
       :: phase[2] != GONE -> activate = 0; catching = 0; take_in(2)  /* HOLD answered */
       :: skip                                                         /* no answer: not taken in */
       fi };
     atomic { bucket(0); bucket(1); bucket(2) };
#ifdef ADMITS  /* RX-MEM-02: who appears in the middle of an attempt is admitted */
     atomic { if :: !member[2] && phase[2] == STALE && !catching -> take_in(2) :: else fi };
#endif
     atomic { bucket(0); bucket(1); bucket(2) };
     complete(0, v); complete(1, v); complete(2, v);
     /* Whoever is not a member is out of traffic before the record: HOLD answered, or dead. */
     atomic { s = 1;
       do
       :: s < N ->
#ifndef NOT_OUT  /* RX-COMMIT-03 */
          if
          :: !member[s] && phase[s] == SERVING -> phase[s] = STALE
          :: !member[s] && s == 2 && phase[2] != GONE -> activate = 0;
#ifndef GOES_ON
             phase[2] = STALE
#else
             skip
#endif
          :: else
          fi;
#endif
          s++
       :: else -> break
       od };
     atomic { com = v; s = 0;
       do
       :: s < N -> assert(!PRESENT(s) || phase[s] != COMPLETE || got[s] == 2);
#if defined(NEVER_WITHOUT)
          assert(!(phase[1] == GONE && phase[2] == COMPLETE));
#endif
          s++
       :: else -> break
       od; s = 0 };
     settle(0); settle(1); settle(2);
     refitting = 0
  :: else -> break
  od;
  over_now = 1 }

#ifdef UNBOUNDED  /* RX-MEM-03: again and again */
#define MAY_TRY (1)
#else
#define MAY_TRY (tries < 3)
#endif

/* The catch-up of slot 2, in the same controller. */
active proctype CatchUp() { byte v;
endc: do
  :: atomic { !catching && !member[2] && phase[2] == STALE && !refitting ->
       if :: MAY_TRY -> tries++; assert(tries <= 3); catching = 1; v = com; phase[2] = UPDATING :: else -> break fi }
  :: atomic { catching && !member[2] && phase[2] == UPDATING -> phase[2] = COMPLETE; holds[2] = v }
  :: atomic { catching && !member[2] && phase[2] == UPDATING -> phase[2] = STALE; catching = 0 }  /* the transfer failed */
  :: atomic { catching && !member[2] && phase[2] == COMPLETE ->
       if :: v == com -> activate = v + 1 :: else -> phase[2] = STALE fi;  /* the record */
       catching = 0 }
  od }

/* The agent of slot 2 receives ACTIVATE(V). */
active proctype Agent() {
enda: do :: atomic { activate > 0 -> if :: phase[2] == COMPLETE && holds[2] == activate - 1 -> phase[2] = SERVING :: else fi; activate = 0 } od }

active proctype World() {
  phase[2] == GONE;
  do
  :: atomic { life[1] == 0 && phase[1] != GONE -> phase[1] = GONE }
  :: atomic { life[1] == 0 && phase[1] == GONE -> life[1] = 1; phase[1] = STALE; holds[1] = 9; got[1] = 0 }
  :: atomic { life[2] == 0 && phase[2] == GONE -> life[2] = 1; phase[2] = STALE; holds[2] = 9; got[2] = 0 }
  :: break
  od }

#define BAD(s) (phase[s] == SERVING && holds[s] != com)
active proctype Traffic() {
endt: do
  :: atomic { BAD(0) || BAD(1) || BAD(2) -> assert(!BAD(0)); assert(!BAD(1)); assert(!BAD(2)) }
#if defined(NEVER_CAUGHT_UP)
  :: atomic { phase[2] == SERVING && tries == 2 && com == 1 && !refitting -> assert(tries != 2) }
#endif
  od }

#define is_over (over_now == 1)
ltl over { <> is_over }
