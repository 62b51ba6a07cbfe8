/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The envelope around one engine's session: the agent against the server, FAMILY 1 = A (no sessions), 2 = B (a wrong session call
 * kills the server), 3 = C (a wrong one gets 400). Rules: RC-SESS-01…04, -06, -07, -14, -15, RC-RPC-06, RX-COMMIT-01, -07, -11,
 * RX-XFER-09, -10, and the tables C1, C2, C8 of settled.md.
 *
 * Up to three attempts at one version. Every call may be answered OK or refused; or it gets no answer, and then it may have been
 * carried out, or not, or be carried out at any later time while that process lives. A full set is two updates. The controller
 * decides (commits) or not once the engine is complete. The pool of the KV cache was released before and is loaded again
 * before the resume; loading may be refused.
 *
 * Properties: no update outside a session, no nested begin, no end without a session (family C: after a refusal only); no call
 * but kill after a missing answer; no resume before the KV pool; an engine that was touched resumes only when committed, and
 * complete; a serving engine never holds a mix.
 * Left out: the fleet's barriers, labels, digests (commit.pml); the policy side (bucket.pml).
 * How to read it: each flag breaks one rule and is run on the families where it matters. BLIND looks
 * at the consequences of GOES_ON only. ATTACH begins with an engine of unknown contents. NEVER_… negate what must be reached. */
#ifndef FAMILY
#define FAMILY 3
#endif
#define HAS_SESSION (FAMILY != 1)
mtype = { PAUSE, FLUSH, BEGIN, UPDATE, END, KV, RESUME, NO_CALL };
mtype = { ANSWER_OK, REFUSED, SILENT };
mtype = { OLD, MIXED, COMPLETE };

/* The server. */
bit alive = 1; bit serving = 1; bit flushed; bit session; bit kv; byte halves; bit touched; mtype late = NO_CALL; bit lost;
/* The agent and its controller. */
mtype answer; bit begun; bit committed; byte attempts; byte updates; bit refused_before; mtype residue = OLD;

#define CONTENTS (!touched -> OLD : (halves == 2 && !session -> COMPLETE : MIXED))

inline effect(what) {
  if
  :: what == PAUSE -> serving = 0
  :: what == FLUSH -> flushed = 1
  :: what == BEGIN -> if :: HAS_SESSION && session -> alive = (FAMILY == 2 -> 0 : alive) :: HAS_SESSION && !session -> session = 1 :: else fi
  :: what == UPDATE -> touched = 1; halves = (updates == 1 -> 1 : (halves == 1 -> 2 : halves))
  :: what == END -> session = 0
  :: what == KV -> kv = 1
  :: what == RESUME -> serving = 1
  :: what == NO_CALL
  fi }

/* One call with all that may become of it, in one step. */
inline call(what) {
  atomic {
#ifndef BLIND
    assert(!lost);                          /* after a missing answer nothing but kill */
#endif
    if
    :: what == UPDATE -> assert(!HAS_SESSION || session); assert(!serving && flushed)
    :: what == BEGIN -> assert(HAS_SESSION || !session); assert(!session); assert(!serving && flushed)
    :: what == END -> assert(HAS_SESSION); assert(session || (FAMILY == 3 && refused_before))
    :: what == KV -> assert(!kv)            /* only what this agent released: the server dies otherwise */
    :: what == RESUME -> assert(kv); assert(CONTENTS == OLD && !committed || CONTENTS == COMPLETE && committed)
    :: else
    fi;
    if
    :: effect(what); answer = ANSWER_OK
    :: what != END || session -> answer = REFUSED; refused_before = 1;  /* in part, if it was an update */
       if :: what == UPDATE -> touched = 1 :: else fi
    :: effect(what); answer = SILENT; lost = 1
    :: answer = SILENT; lost = 1; late = what  /* on its way */
    fi;
    assert(!serving || CONTENTS != MIXED) } }

#ifdef GOES_ON  /* RC-RPC-06: no answer is taken for a refusal */
#define NO_ANSWER (false)
#else
#define NO_ANSWER (answer == SILENT)
#endif
#define SEND(what) call(what); if :: NO_ANSWER -> goto kill :: else fi

active proctype Agent() {
#ifdef ATTACH  /* an engine that somebody else fed: its contents are unknown, it is not routed, a session may be open */
  atomic { residue = MIXED; touched = 1; serving = 0; if :: session = HAS_SESSION :: skip fi };
#if FAMILY == 2 && !defined(TRUSTS)
  goto done;  /* "restart the engine" */
#endif
#endif
#ifndef NO_PAUSE  /* RC-SESS-02 */
  SEND(PAUSE);
  if :: answer != ANSWER_OK -> goto back :: else fi;
#endif
#ifndef NO_FLUSH  /* RC-SESS-03 */
  SEND(FLUSH);
  if :: answer != ANSWER_OK -> goto back :: else fi;
#endif
#if defined(ATTACH) && FAMILY == 3 && !defined(TRUSTS)  /* TRUSTS: no session is expected */
  atomic { if :: session = 0; answer = ANSWER_OK :: answer = SILENT; lost = 1; goto kill fi };  /* 200, or 400: there was none */
#endif
attempt:
  attempts++; updates = 0;
#ifdef NO_BEGIN  /* RC-SESS-01 */
  begun = 1;
#endif
  if
  :: HAS_SESSION && !begun ->
     SEND(BEGIN);
     if
     :: answer == ANSWER_OK -> begun = 1
     :: answer != ANSWER_OK && FAMILY == 2 ->
#ifdef END_ALWAYS  /* RC-SESS-04: end in the outer guard, also where begin did not succeed */
        SEND(END);
#endif
        goto kill
     :: answer != ANSWER_OK && FAMILY == 3 ->       /* end, begin once more */
        SEND(END); SEND(BEGIN);
        if :: answer == ANSWER_OK -> begun = 1 :: answer != ANSWER_OK -> goto kill fi
     fi
  :: else
  fi;
  if :: residue == OLD && attempts == 1 -> goto abandoned :: true fi;  /* others failed: resume at V-1 */
  residue = MIXED;
  do
  :: updates < 2 -> updates++; SEND(UPDATE);
     if
     :: answer != ANSWER_OK -> goto refused
     :: answer == ANSWER_OK
     :: answer == ANSWER_OK -> goto refused  /* a link or sender failed, every call answered */
     fi
  :: updates == 2 -> break
  od;
  if
  :: HAS_SESSION -> SEND(END); begun = 0; if :: answer != ANSWER_OK -> goto kill :: else fi
  :: else
#ifdef A_ENDS  /* RC-SESS-04: end on a family without sessions */
     -> SEND(END)
#endif
  fi;
  residue = COMPLETE;
#ifdef SERVES_COMPLETE  /* RX-COMMIT-01: serves after its last update */
  SEND(KV); SEND(RESUME);
#endif
  if :: committed = 1 :: goto hold fi;
activate:
  SEND(KV);
#ifndef KV_IGNORED  /* RC-SESS-07: resumes though the KV pool was refused */
  if :: answer != ANSWER_OK -> goto hold :: else fi;
#endif
  SEND(RESUME);
  goto served;

refused:  /* an update: by family */
  if :: attempts >= 3 -> goto hold :: else fi;
#ifdef RESUMES_MIXED  /* RC-SESS-08: resumed in a cleanup */
  SEND(KV); SEND(RESUME);
#endif
#ifdef BEGINS_BLINDLY  /* RX-XFER-09 */
  begun = 0; goto attempt;
#endif
  if
  :: FAMILY == 1
  :: FAMILY == 2 ->
#ifdef ROW_OF_C  /* RC-SESS-14: the row of family C used on B */
     begun = 0; SEND(BEGIN)
#else
     goto kill
#endif
  :: FAMILY == 3 -> SEND(END); begun = 0; if :: answer != ANSWER_OK -> goto kill :: else fi
  fi;
#ifdef HALF_SET  /* RX-XFER-10: goes on where it stopped */
  committed = 1; goto activate;
#endif
  goto attempt;

abandoned:
  if :: HAS_SESSION && begun -> SEND(END); begun = 0; if :: answer != ANSWER_OK -> goto kill :: else fi :: else fi;
back:     /* kOld: KV, then resume at V-1 */
  if :: residue != OLD -> goto hold :: else fi;
#ifdef RESUMES_FIRST  /* RC-SESS-07 */
  SEND(RESUME);
#endif
  SEND(KV);
  if :: answer != ANSWER_OK -> goto hold :: else fi;
  SEND(RESUME);
  goto served;

kill:
#if defined(NEVER_KILLED)
  assert(attempts < 2);
#endif
  atomic { alive = 0; serving = 0; late = NO_CALL }; goto done;
served:
#if defined(NEVER_AGAIN)
  assert(!(committed && attempts == 3));
#elif defined(NEVER_BACK)
  assert(committed);
#endif
hold: skip;
done: skip }

/* A call that nobody waits for any more, carried out under whatever came after it. */
active proctype Late() {
endl: do
  :: atomic { late != NO_CALL && alive -> assert(late != UPDATE || !serving); effect(late); late = NO_CALL; assert(!serving || CONTENTS != MIXED) }
  od }
