/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Load slots: shared memory whose count says who may still read. Rules: RC-PAY-05, -09, -10, RX-XFER-05, -12, D2, C7, S7.
 *
 * One agent with two load slots, an engine with TP rank processes. The count is 1 at rest; the agent adds TP right before each POST;
 * each rank opens the payload, reads, and gives its share back when its tensors are gone, which may be long after the reply. A
 * POST may be refused before any rank opened it. The server may die; its ranks die one by one, later. The manager of a dead
 * client unlinks the names that client had, later still. Three loads go out, then the attempt is fenced.
 *
 * Properties: nobody writes a load while a rank may read it; FENCED is answered only when no rank reads any load; a count is never
 * lost and never given back twice (S7); a new load's name is never unlinked by somebody else; the fence is reached (fenced).
 * Left out: what is in a load; hard links (a name is a number, never an object's); several engines, which never share load objects.
 * How to read it: each flag breaks one rule. A load slot is replaced by a new object under a new name; the old one stays with
 * whoever has it open. */
#define TP 2
#define OBJECTS 6
#define LOADS 3
byte count[OBJECTS] = 1;  /* objects in order of their making */
byte readers[OBJECTS];    /* ranks that have it open */
byte to_open[OBJECTS];    /* ranks that will open it */
byte slot[2]; byte made = 2; byte name[2]; byte names = 2;
bit server = 1; byte ranks = TP; bit dead; bit unlinks; byte had[2]; bit fence;
bit replied; bit refused; byte post = 255; byte last;

#define CURRENT(b) slot[b]
#define READ(x) (readers[x] > 0 || to_open[x] > 0)

inline renew(b) { slot[b] = made; made++; name[b] = names; names++ }

#ifdef ON_SERVER_DEATH  /* RX-XFER-12: the server's death taken for that of all its ranks */
#define CONFIRMED_DEAD (!server)
#else
#define CONFIRMED_DEAD dead
#endif

active proctype Agent() { byte b; byte loads;
  atomic { slot[0] = 0; slot[1] = 1; name[0] = 0; name[1] = 1 };
  do
  :: loads < LOADS && server ->
     b = loads % 2;
     if
#ifdef FREE_ON_REPLY  /* RC-PAY-05 */
     :: true
#else
     :: count[CURRENT(b)] == 1
#endif
     :: !server -> break
     fi;
     atomic { assert(!READ(CURRENT(b)));                    /* filled while nobody reads */
       replied = 0; refused = 0;
#ifdef ADD_LATER  /* RC-PAY-09: the count is added after the POST */
       post = CURRENT(b) };
     atomic {
       count[CURRENT(b)] = count[CURRENT(b)] + TP };
#else
       count[CURRENT(b)] = count[CURRENT(b)] + TP; post = CURRENT(b) };
#endif
     if
     :: atomic { replied && refused -> replied = 0;
#ifndef REFUSAL_WAITS  /* C7: a refused load waits for a count that never comes */
          renew(b);
#endif
          skip }
     :: atomic { replied && !refused -> replied = 0 }
     :: !server -> break
     fi;
     loads++
  :: else -> break
  od;
  /* FENCED: every count is back, or all rank processes are confirmed dead. */
  b = 0;
  do
  :: b < 2 ->
     if
#ifdef FENCE_EARLY  /* RX-XFER-12: a count is out */
     :: true
#else
     :: count[CURRENT(b)] == 1
#endif
     :: CONFIRMED_DEAD ->
#ifdef RESET  /* D2: the count is reset after a death, not the load slot renewed */
        count[CURRENT(b)] = 1
#else
        if :: count[CURRENT(b)] != 1 -> atomic { renew(b) } :: else fi
#endif
     fi;
     b++
  :: else -> break
  od;
  atomic { fence = 1;
    assert(!READ(slot[0]) && !READ(slot[1]));
    b = 0; do :: b < OBJECTS -> assert(!READ(b)); b++ :: else -> break od };
  atomic { assert(count[slot[0]] == 1 && count[slot[1]] == 1) };
  /* The next engine is given the load slots under names of its own; the dead one's manager may still unlink. */
  if
  :: unlinks ->
#ifndef SAME_NAME  /* RC-PAY-10: it sees the old ones */
     atomic { name[0] = names; name[1] = names + 1; names = names + 2 };
#endif
     atomic { assert(name[0] != had[0] && name[1] != had[1]) }
  :: !unlinks && server
  fi }

active proctype Server() {
ends: do
  :: atomic { server && post != 255 -> 
       if
       :: to_open[post] = ranks; refused = 0; last = post
       :: refused = 1; replied = 1          /* before any rank opened it */
       fi;
       post = 255 }
  :: atomic { server && !replied && !refused && post == 255 && to_open[last] == 0 -> replied = 1 }
  :: atomic { !server -> post = 255 }; break
  od;
  atomic { !server -> had[0] = name[0]; had[1] = name[1] };
  atomic { ranks > 0 -> ranks-- };  /* the rank processes end one by one */
  atomic { ranks > 0 -> ranks-- };
  atomic { post = 0; do :: post < OBJECTS -> readers[post] = 0; to_open[post] = 0; post++ :: else -> break od; post = 255; dead = 1 };
  unlinks = 1 }

active proctype Death() { if :: server = 0 :: skip fi }

#define SUM(a) (a[0] + a[1] + a[2] + a[3] + a[4] + a[5])
#define FIRST(a) x = 0; do :: a[x] == 0 -> x++ :: else -> break od

/* What the rank processes do with a payload: open it, and give it back. */
active proctype Open() { byte x;
endo: do
  :: atomic { !dead && SUM(to_open) > 0 -> FIRST(to_open); to_open[x]--; readers[x]++; x = 0 }
  od }
active proctype GiveBack() { byte x;
endg: do
  :: atomic { !dead && SUM(readers) > 0 -> FIRST(readers); readers[x]--; assert(count[x] > 1); count[x]--; x = 0 }
  od }

ltl fenced { <> (fence == 1) }
