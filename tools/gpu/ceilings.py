#!/usr/bin/env python3
# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What two GPUs of this host reach without refit: plain copies of a peer process's memory, and NCCL. Needs torch.

    ceilings.py [--bytes N] [--rounds N] [--cpu] [--out FILE]

Two processes, one a GPU (with one GPU or --cpu: both on it), each with one allocation that the other maps. Each
measurement is repeated after two rounds to warm up and checked; the times are of the reader, from the call until its
stream is empty. Prints one line a measurement and writes {"device", "torch", "ceilings": [...]}.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

# NVLink multicast can put a host's GPUs out of service for others; nothing here needs it.
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

BYTES = 1_503_264_768  # Qwen3-0.6B, untied, BF16
PIECE = 64 << 20
WARM_UP = 2


class Worker:
    def __init__(self, rank, options, queues, rendezvous):
        self.rank, self.options = rank, options
        self.gpu = not options.cpu
        self.device = torch.device(f"cuda:{rank % torch.cuda.device_count()}" if self.gpu else "cpu")
        if self.gpu:
            torch.cuda.set_device(self.device)
        self.alone = not self.gpu or torch.cuda.device_count() < 2
        backend = "gloo" if self.alone else "nccl"
        dist.init_process_group(backend, init_method=f"file://{rendezvous}", rank=rank, world_size=2,
                                **({} if self.alone else {"device_id": self.device}))
        count = options.bytes // 8
        self.mine = torch.arange(count, dtype=torch.int64, device=self.device) * 3 + rank
        self.landing = torch.zeros(count, dtype=torch.int64, device=self.device)
        if not self.gpu:
            self.mine.share_memory_()
        self.finish()
        queues[rank].put(self.mine)
        self.theirs = queues[1 - rank].get()
        self.results = []

    def finish(self):
        if self.gpu:
            torch.cuda.synchronize(self.device)

    def measure(self, name, action, expected_rank, piece=0, reports=True):
        """Both ranks call it; `action` may be None where this rank only waits."""
        samples = []
        for round_number in range(WARM_UP + self.options.rounds):
            self.landing.zero_()
            self.finish()
            dist.barrier()
            self.finish()
            start = time.perf_counter()
            if action is not None:
                action()
            self.finish()
            seconds = time.perf_counter() - start
            if round_number >= WARM_UP:
                samples.append(seconds)
        expected = torch.arange(len(self.landing), dtype=torch.int64, device=self.device) * 3 + expected_rank
        exact = action is None or bool(torch.equal(self.landing, expected))
        del expected
        dist.barrier()
        if reports:
            median = statistics.median(samples)
            self.results.append({
                "name": name, "into": str(self.device), "bytes": self.options.bytes, "piece_bytes": piece,
                "exact": exact, "seconds_median": round(median, 7), "gbps": round(self.options.bytes / median / 1e9, 1),
                "samples": [round(sample, 7) for sample in samples]})

    def copy(self, source, piece):
        step = piece // 8 or len(self.landing)
        for at in range(0, len(self.landing), step):
            self.landing[at:at + step].copy_(source[at:at + step], non_blocking=True)

    def run(self):
        reader = self.rank == 0
        for piece in (0, PIECE):
            self.measure("local copy", (lambda: self.copy(self.mine, piece)) if reader else None, 0, piece, reader)
            self.measure("peer copy", (lambda: self.copy(self.theirs, piece)) if reader else None, 1, piece, reader)
            self.measure("peer copy, both ways at once", lambda: self.copy(self.theirs, piece), 1 - self.rank, piece,
                         reader)
        if not self.alone or not self.gpu:  # NCCL wants a GPU for each rank
            label = dist.get_backend()
            for name, receive, send in (
                    ("broadcast", lambda: dist.broadcast(self.landing, src=1),
                     lambda: dist.broadcast(self.mine, src=1)),
                    ("send and receive", lambda: dist.recv(self.landing, src=1),
                     lambda: dist.send(self.mine, dst=0))):
                if reader:
                    self.measure(f"{label} {name}", receive, 1)
                else:
                    self.others_turn(send)
        return self.results

    def others_turn(self, action):
        """The sending half of a measurement: nothing to check."""
        for _ in range(WARM_UP + self.options.rounds):
            self.finish()
            dist.barrier()
            self.finish()
            action()
            self.finish()
        dist.barrier()


def work(rank, options, queues, rendezvous, answers):
    worker = Worker(rank, options, queues, rendezvous)
    results = worker.run()
    if rank == 0:
        answers.put(results)
    dist.barrier()
    del worker.theirs
    dist.barrier()  # the peer's memory goes after the mapping
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--cpu", action="store_true", help="without GPUs: proves the program, measures little")
    parser.add_argument("--out")
    options = parser.parse_args()
    options.cpu = options.cpu or not torch.cuda.is_available()
    context = mp.get_context("spawn")
    queues, answers = [context.Queue(), context.Queue()], context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=work, args=(rank, options, queues, f"{folder}/meet", answers))
                     for rank in range(2)]
        for process in processes:
            process.start()
        results = None
        while results is None and all(process.exitcode in (None, 0) for process in processes):
            try:
                results = answers.get(timeout=0.5)
            except Exception:  # nothing yet
                continue
        for process in processes:
            process.join(20 if results is not None else 1)
            process.kill()
    if results is None:
        print("ceilings.py: a process died (its words are above)", file=sys.stderr)
        return 1
    device = "cpu" if options.cpu else f"{torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    report = {"device": device, "torch": torch.__version__, "ceilings": results}
    for one in results:
        pieces = f"{one['piece_bytes'] >> 20} MiB pieces" if one["piece_bytes"] else "one piece"
        print(f"{one['name']} into {one['into']}, {pieces}: {one['seconds_median'] * 1e3:.2f} ms, {one['gbps']} GB/s"
              f"{'' if one['exact'] else ', NOT EXACT'}")
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)
    return 0 if all(one["exact"] for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
