/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The version commit with two controllers. Rules: RX-COMMIT-01…04, -07, -08, RX-ID-01…04, RX-LEAD-02, -03, RC-RPC-07, RC-REC-09,
 * RC-RTR-04, RX-MEM-03.
 *
 * Versions 0, 1, 2, two engines with their agents, commands OPEN, GO, ACTIVATE, RESUME, HOLD with (term, seq): each may arrive
 * never, late, or after its successors. C1 (term 1) does a refit and the catch-up of a joiner; C2 (term 2) takes over at any
 * instant, rolls forward, resumes or activates what it finds, does the next refit. With SOLO one controller does refit,
 * catch-up, refit. A refit may stop before its first update and resume at V-1. Engine 1 may crash and restart once, anywhere.
 * INTENT, COMMIT and the record before a catch-up's ACTIVATE are conditional on the term; the router is not fenced and adds
 * land late. Cells hold the seq of an undelivered command, 0 = none or refused for ever. Attempts: 1, 2 = refits of C1,
 * 3 = refit of C2, 4 = catch-up by C1. A weight set is two halves.
 *
 * Property: an engine that is routed and serves has both halves of the last committed version. Exempt is a router entry
 * added after its writer was superseded, the documented residual of RC-RTR-04 (R1 counts it).
 * Left out: the data path (bucket.pml), the unique key on COMMIT (journal.pml), commands older than the newest of their kind.
 * How to read it: M1, M3, M4, M5, M7, M10…M13 are single points of failure. M2, M6, M8, M9 may each be missing alone, not in the
 * pairs that expected.toml lists, so all stay. NEVER_… negate what must be reachable. */
#define N 2
mtype = { SERV, OLD, MIX, UPD, COMPL, OPENED, DONE, ACTED, HELD, WAITS, NONE };
mtype ph[N] = SERV; mtype ans[4] = NONE;
byte h0[N]; byte h1[N]; byte ea[N]; byte eterm[N] = 1; bit inc[N];
byte rt[N] = 1; bit late[N];  /* router: incarnation+1; written by a superseded term */
byte o[4]; byte g[4]; byte a[4]; byte r[4]; byte h[4];  /* OPEN GO ACT RESUME HOLD, seq */
byte oA[4]; byte gA[4]; byte aA[4]; byte rW[4]; byte sq[4]; bit tg[4]; byte pend[4];
byte cw[2]; byte jterm = 1; byte com = 0; bit crashed = 0;
#define K(c,i) ((c-1)*N+(i))
#define W(x) (x <= 3 -> x : cw[x-4])
#ifdef R1  /* count the residual of the router too */
#define LATE(i) 0
#else
#define LATE(i) late[i]
#endif
#define BAD(i) (rt[i] == inc[i]+1 && ph[i] == SERV && !LATE(i) && (h0[i] != com || h1[i] != com))
#ifdef M1  /* agent ignores terms */
#define TERM(c,i) 1
#define KILLT(i) skip
#else
#define TERM(c,i) (c >= eterm[i])
#define KILLT(i) KILL(i)
#endif
#ifdef M2  /* agent ignores the incarnation */
#define TO(k,i) 1
#define DEAD(i) skip
#else
#define TO(k,i) (tg[k] == inc[i])
#define DEAD(i) KILL(i); KILL(N+i)
#endif
#define KILL(k) o[k]=0; g[k]=0; a[k]=0; r[k]=0; h[k]=0; sq[k]=0; oA[k]=0; gA[k]=0; aA[k]=0; rW[k]=0
#ifdef M3  /* replacement admitted when it boots */
#define BOOT(i) ph[i] = SERV; rt[i] = inc[i]+1; late[i] = 0
#elif defined(PORT)  /* old port used again */
#define BOOT(i) ph[i] = MIX; rt[i] = (rt[i] -> 2 : 0)
#else
#define BOOT(i) ph[i] = MIX
#endif
#ifdef M5  /* records not fenced by term */
#define MINE(c) 1
#else
#define MINE(c) (jterm == c)
#endif
#ifdef M6  /* ACTIVATE not bound to attempt, digest */
#define SAME(k,i) 1
#else
#define SAME(k,i) (ea[i] == aA[k] && h0[i] == W(aA[k]) && h1[i] == W(aA[k]))
#endif
#ifdef M7  /* serves after its last update */
#define FULL(i) ph[i] = SERV
#else
#define FULL(i) ph[i] = COMPL
#endif
#ifdef M8  /* ACTIVATE to whoever is there */
#define LOOKUP(k,i) tg[k] = inc[i]
#else
#define LOOKUP(k,i) skip
#endif
#ifdef M9  /* term floor 0 */
#define FLOOR 0
#else
#define FLOOR jterm
#endif
#ifdef M10  /* seq not compared */
#define SEQ(k,s) skip
#else
#define SEQ(k,s) if :: s == sq[k] -> KILL(k) :: else -> \
  if :: o[k] <= s -> o[k]=0; oA[k]=0 :: else fi; if :: g[k] <= s -> g[k]=0; gA[k]=0 :: else fi; \
  if :: a[k] <= s -> a[k]=0; aA[k]=0 :: else fi; if :: r[k] <= s -> r[k]=0; rW[k]=0 :: else fi; \
  if :: h[k] <= s -> h[k]=0 :: else fi fi
#endif
#ifdef M11  /* RESUME whatever the version */
#define VEQ(k,i) 1
#else
#define VEQ(k,i) (h0[i] == rW[k])
#endif
#ifdef M12  /* RESUME after the first update */
#define REST(i) (ph[i] != SERV)
#else
#define REST(i) (ph[i] == OLD)
#endif
#ifdef M13  /* own pending add not waited for */
#define SETTLED(k) 1
#else
#define SETTLED(k) (pend[k] == 0)
#endif
#define ACC(c,k,s) eterm[i] = c; if :: c == 2 -> KILLT(i) :: else fi; SEQ(k,s)
#define REP(k,s,x) if :: s == sq[k] && ans[k] == WAITS -> ans[k] = x :: else fi  /* only the last answer counts */
#if defined(M1) || defined(M10)
#define WHO wk
#define WSEQ (sq[wk] == 0 -> 0 : ws)
#define NOTE(k) wk = k; ws = g[k]
#else
#define WHO K(eterm[i],i)
#define WSEQ 0
#define NOTE(k) skip
#endif
#define CMDS(c,k) \
  :: atomic { o[k] && TERM(c,i) -> ea[i] = oA[k]; REP(k,o[k],OPENED); \
       if :: ph[i] == SERV -> ph[i] = OLD :: ph[i] == UPD || ph[i] == COMPL -> ph[i] = MIX :: else fi; ACC(c,k,o[k]) } \
  :: atomic { g[k] && TERM(c,i) && (ph[i] == OLD || ph[i] == MIX) && ea[i] == gA[k] -> ph[i] = UPD; wr = 0; NOTE(k); ACC(c,k,g[k]) } \
  :: atomic { a[k] && TERM(c,i) && ((ph[i] == COMPL && SAME(k,i)) || (ph[i] == SERV && ea[i] == aA[k])) -> \
       ph[i] = SERV; REP(k,a[k],ACTED); ACC(c,k,a[k]) } \
  :: atomic { r[k] && TERM(c,i) && REST(i) && VEQ(k,i) -> ph[i] = SERV; ACC(c,k,r[k]) } \
  :: atomic { h[k] && TERM(c,i) -> REP(k,h[k],HELD); \
       if :: ph[i] == SERV -> ph[i] = OLD :: ph[i] == UPD -> ph[i] = MIX :: else fi; ACC(c,k,h[k]) }
active [N] proctype Engine() { byte i = _pid; byte wr; byte wk; byte ws;
endE: do
  CMDS(1,i)
  CMDS(2,N+i)
  :: atomic { ph[i] == UPD && wr == 0 -> h0[i] = W(ea[i]); wr = 1 }
  :: atomic { ph[i] == UPD && wr == 1 -> h1[i] = W(ea[i]); wr = 0; FULL(i); REP(WHO,WSEQ,DONE) }
  :: atomic { i == 1 && !crashed -> crashed = 1; inc[i] = 1; eterm[i] = FLOOR; h0[i] = 7; h1[i] = 7; wr = 0;
       ea[i] = 0; DEAD(i); BOOT(i) }
  :: atomic { pend[i] -> rt[i] = pend[i]; late[i] = (jterm > 1); pend[i] = 0 }
  :: atomic { pend[N+i] -> rt[i] = pend[N+i]; late[i] = 0; pend[N+i] = 0 }
  od }
#define SND(c,k,i,cell) ans[k] = WAITS; if :: TO(k,i) && TERM(c,i) -> sq[k]++; cell[k] = sq[k] :: else fi
#define OPEN(c,i,x) tg[K(c,i)] = inc[i]; SND(c,K(c,i),i,o); oA[K(c,i)] = (o[K(c,i)] -> x : 0)
#define GO(c,i,x)   SND(c,K(c,i),i,g); gA[K(c,i)] = (g[K(c,i)] -> x : 0)
#define ACT(c,i,x)  ans[K(c,i)] = WAITS; LOOKUP(K(c,i),i); if :: TO(K(c,i),i) && TERM(c,i) -> sq[K(c,i)]++; a[K(c,i)] = sq[K(c,i)]; aA[K(c,i)] = x :: else fi
#define RES(c,i)    SND(c,K(c,i),i,r); ans[K(c,i)] = NONE; rW[K(c,i)] = (r[K(c,i)] -> b : 0)
#define HOLD(c,i)   SND(c,K(c,i),i,h)
#define ADD(c,i)    if :: m[i] && ans[K(c,i)] == ACTED && rt[i] != tg[K(c,i)]+1 -> pend[K(c,i)] = tg[K(c,i)]+1 :: 1 fi; ans[K(c,i)] = NONE
#define WAIT(c,i,what) if :: m[i] && ans[K(c,i)] == what :: m[i] = 0 fi; ans[K(c,i)] = NONE
#define IF(i,what) if :: m[i] -> what :: else fi
#define UNLESS(i,what) if :: m[i] :: else -> what fi
inline excl(c,i) {  /* out of traffic, or the refit fails */
#ifndef M4
  if :: m[i] || ans[K(c,i)] == HELD
     :: tg[K(c,i)] != inc[i]  /* death confirmed */
#ifndef HOLDONLY
     :: atomic { !m[i] -> rt[i] = 0; late[i] = 0 }; atomic { rt[i] == 0 && SETTLED(K(c,i)) }
#endif
     :: m[i] = 0; goto fin fi
#else
  skip
#endif
  }
inline refit(c,x) {
  if :: atomic { MINE(c) -> b = com } :: !MINE(c) -> goto fin fi;  /* INTENT */
  atomic { m[0] = 1; m[1] = 1; OPEN(c,0,x); OPEN(c,1,x) };
  atomic { WAIT(c,0,OPENED); WAIT(c,1,OPENED) };
  if :: atomic { 1 -> IF(0,RES(c,0)); IF(1,RES(c,1)); goto fin }  /* back to V-1 */
     :: atomic { 1 -> IF(0,GO(c,0,x)); IF(1,GO(c,1,x)) } fi;
  atomic { WAIT(c,0,DONE); WAIT(c,1,DONE); UNLESS(0,HOLD(c,0)); UNLESS(1,HOLD(c,1)) };
  excl(c,0); excl(c,1);
  atomic { ans[K(c,0)] = NONE; ans[K(c,1)] = NONE;
           if :: MINE(c) && (m[0] || m[1]) -> com = x; b = x :: else -> goto fin fi };  /* COMMIT */
  atomic { IF(0,ACT(c,0,x)); IF(1,ACT(c,1,x)) };
  atomic { ADD(c,0); ADD(c,1) } }
inline catchup(c,i,x) {  /* of engine i; given up at any point */
  atomic { ph[i] != SERV -> cw[x-4] = b }; atomic { m[i] = 1; OPEN(c,i,x) };
  atomic { WAIT(c,i,OPENED); IF(i,GO(c,i,x)) };
  atomic { WAIT(c,i,DONE); if :: m[i] && MINE(c) :: else -> m[i] = 0 fi };
  atomic { IF(i,ACT(c,i,x)) }; atomic { ADD(c,i); m[i] = 0 } }
inline forward(c,i) {  /* a successor and the state it finds */
  if :: atomic { ph[i] == COMPL && ea[i] && h0[i] == com && h1[i] == com -> tg[K(c,i)] = inc[i]; x = ea[i]; m[i] = 1 };
        atomic { ACT(c,i,x); x = 0 }; atomic { ADD(c,i); m[i] = 0 }
     :: atomic { ph[i] == OLD && h0[i] == com -> tg[K(c,i)] = inc[i]; RES(c,i) }
     :: 1 fi }
active proctype C1() { bit m[N]; byte n = 1; byte b;
again: refit(1,n);
fin: m[0] = 0; m[1] = 0; if :: n == 2 -> n = 0; goto stop :: n == 1 fi;
  if :: catchup(1,1,4) :: 1 fi;
#ifdef SOLO
  n = 2; goto again;
#endif
stop: b = 0 }
#ifndef SOLO
active proctype C2() { bit m[N]; byte x; byte b;
  jterm = 2; b = com;  /* takeover at any instant */
  forward(2,0); forward(2,1);
  refit(2,3);
fin: b = 0 }
#endif
#define AT(i,v) (ph[i] == SERV && rt[i] == inc[i]+1 && h0[i] == v && h1[i] == v)
#if defined(NEVER_BOTH)  /* both engines serve the version of C2 */
#define REACHED (com == 3 && AT(0,3) && AT(1,3))
#elif defined(NEVER_CAUGHT_UP)  /* a replacement serves after its catch-up */
#define REACHED (com == 1 && inc[1] && ea[1] == 4 && AT(1,1))
#elif defined(NEVER_REJOINED)  /* and after the refit that follows */
#define REACHED (com == 2 && inc[1] && AT(0,2) && AT(1,2))
#elif defined(NEVER_WITHOUT)  /* COMMIT with one engine excluded */
#define REACHED (com == 3 && rt[1] == 0 && !crashed)
#elif defined(NEVER_BACK)  /* a successor resumes at V-1 what its predecessor opened */
#define REACHED (com == 0 && eterm[0] == 2 && ea[0] == 1 && AT(0,0))
#else
#define REACHED (BAD(0) || BAD(1))
#endif
active proctype Monitor() { endm: do :: REACHED -> assert(0) od }
