/* Copyright 2026 The refit authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The bucket protocol with an abandoned attempt. Rules: RX-XFER-01…05, RX-ASM-T1…T3.
 *
 * One sender, one receiver, two staging buffers on each side, NB buckets per attempt. Attempt 1 may be abandoned at any step
 * by either side; attempt 2 must then deliver exactly its own buckets, in order. Control messages and completion notes
 * survive an abandoned attempt (the sockets are kept open). The one-sided READ is split in post and land; a read posted by
 * an abandoned attempt may land at any later time. Value in a buffer: epoch*16+bucket.
 *
 * Property: each buffer handed to the consumer holds exactly the current attempt's expected bucket.
 * Left out: lost links and a third attempt; tensors (a bucket is one value); several pairs.
 * How to read it: E1…E5 leave out one rule each, RX-XFER-01…05 in this order, and each is violated, so each rule is needed by
 * itself. A run that stops because the other side gave up for good is no error here (pan -E). */
#define NB 3
#define V(e,k) ((e)*16+(k))
chan ctl  = [8] of { byte, byte, bit };  /* epoch, bucket, sender buffer */
chan note = [8] of { byte, byte };  /* epoch, bucket */
byte sbuf[2]; byte rbuf[2];
byte aborted = 0;  /* highest abandoned epoch */
/* reads in flight: at most one current and one orphan */
bit fly = 0; byte fe; byte fk; bit fs; bit fr;  /* current */
bit orp = 0; byte oe; byte ok_; bit os; bit or_;  /* orphan */
#ifdef E1  /* bucket messages carry no epoch */
#define MSG_OK(e,me) 1
#else
#define MSG_OK(e,me) (e == me)
#endif
#ifdef E2  /* completion notes carry no epoch */
#define NOTE_OK(e,k,me,mk) (k == mk)
#else
#define NOTE_OK(e,k,me,mk) (e == me && k == mk)
#endif
#ifdef E3  /* no landing fence before reuse */
#define FENCE true
#else
#define FENCE (!orp)
#endif
#ifdef E4  /* announce before previous read is over */
#define WAITPREV 0
#else
#define WAITPREV 1
#endif
bit rfenced = 0;  /* receiver has quiesced attempt 1 */
#ifdef E5  /* sender restarts without the receiver's fence ack */
#define SHAKE true
#else
#define SHAKE rfenced
#endif
active proctype Sender() { byte me = 1; byte k; byte e; byte n; bit b; byte w;
again: k = 0; b = 0;
  do
  :: k < NB ->
     sbuf[b] = V(me,k);  /* fill */
     if :: WAITPREV && k > 0 ->  /* previous bucket must be read */
           do :: note?e,n -> if :: NOTE_OK(e,n,me,k-1) -> break :: else fi
              :: aborted >= me -> goto gone od
        :: else fi;
     ctl!me,k,b; b = 1-b; k++
  :: k == NB -> do :: note?e,n -> if :: NOTE_OK(e,n,me,NB-1) -> break :: else fi
                   :: aborted >= me -> goto gone od; break
  :: me == 1 -> aborted = 1; goto gone  /* give up, any point */
  od; goto done;
gone: SHAKE; me = 2; goto again;
done: skip }
active proctype Receiver() { byte me = 1; byte k; byte e; byte n; bit sb; bit b;
again: k = 0; b = 1;
  do
  :: k < NB ->
     do :: ctl?e,n,sb -> if :: MSG_OK(e,me) -> break :: else fi
        :: aborted >= me -> goto gone od;
     atomic { fly = 1; fe = e; fk = n; fs = sb; fr = b };
     do :: atomic { fly -> rbuf[fr] = sbuf[fs]; fly = 0; note!fe,fk }; break
        :: me == 1 -> aborted = 1; goto gone
        :: aborted >= me -> goto gone od;
     assert(rbuf[b] == V(me,k));  /* what the consumer is handed */
     b = 1-b; k++
  :: k == NB -> break
  od; goto done;
gone: atomic { if :: fly -> orp = 1; oe = fe; ok_ = fk; os = fs; or_ = fr; fly = 0 :: else fi };
  FENCE; rfenced = 1; me = 2; goto again;
done: skip }
active proctype Nic() {  /* orphan reads land late */
end: do :: atomic { orp -> rbuf[or_] = sbuf[os]; orp = 0; if :: len(note) < 8 -> note!oe,ok_ :: else fi } od }
