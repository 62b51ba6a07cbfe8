# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What runs out: memory, shared memory, descriptors, the journal's disk."""

import contextlib
import os
import resource
import socket
import time

import fleet as fleets
import processes
from others import in_transfer
from processes import wait_for
from rows import Row

CGROUPS = "/sys/fs/cgroup/memory"  # version 1
PAGE = resource.getpagesize()


def may_limit_memory():
    return os.access(f"{CGROUPS}/memory.limit_in_bytes", os.W_OK)


def read(*path):
    with open(os.path.join(*path), encoding="ascii") as file:
        return file.read()


def write(text, *path):
    with open(os.path.join(*path), "w", encoding="ascii") as file:
        file.write(str(text))


@contextlib.contextmanager
def no_more_memory(pid):
    """From now on the kernel kills this process when it needs another page. At the end it has."""
    group = f"{CGROUPS}/refit-faults-{os.getpid()}"
    os.mkdir(group)
    try:
        write(PAGE, group, "memory.limit_in_bytes")  # what it has stays charged elsewhere
        write(pid, group, "cgroup.procs")
        yield
        wait_for(lambda: not processes.running(pid), f"{pid} out of memory", 15)
        killed = dict(line.split() for line in read(group, "memory.oom_control").splitlines())
        assert int(killed["oom_kill"]) > 0, "killed by somebody else"
    finally:
        for left in read(group, "cgroup.procs").split():
            with contextlib.suppress(OSError):
                write(left, CGROUPS, "cgroup.procs")
        wait_for(lambda: not read(group, "cgroup.procs"), "the cgroup empty", 5)
        os.rmdir(group)


def ask_for_memory(address):
    """Connections, until there is nobody to take them."""
    host, port = address.rsplit(":", 1)
    with contextlib.ExitStack() as strangers, contextlib.suppress(OSError):
        for _ in range(1000):
            stranger = strangers.enter_context(socket.create_connection((host, int(port)), timeout=2))
            stranger.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")


def out_of_memory(role):
    """In the midst of a transfer, which then goes on."""
    def act(run):
        with contextlib.ExitStack() as stack:
            with in_transfer(run):
                pid = run.engine_pids[run.slot] if role == "engine" else run.fleet.role_of(role, run.slot).process.pid
                run.broken = time.time()
                stack.enter_context(no_more_memory(pid))
            if role == "policy":  # its buffers are all there
                ask_for_memory(run.fleet.role_of(role, run.slot).address)
        if role != "engine":
            run.start_again(role)
        run.end_sync()
        if role == "policy":
            run.links |= {slot for slot in range(fleets.ENGINES)
                          if run.fleet.feeder(slot) == run.fleet.feeder(run.slot)}
    return act


def shared_memory_full(run):
    """A policy worker comes back, and not a byte of /dev/shm is left for its load slots."""
    run.links = set(range(fleets.ENGINES))
    code, report = run.fleet.ask("shutdown")  # what the links had is given back
    assert code == 0, report
    with open("/dev/shm/full", "wb") as full:
        try:
            run.broken = run.fleet.kill("policy", run.slot)
            run.start_again("policy")
            space = os.statvfs("/dev/shm")
            os.posix_fallocate(full.fileno(), 0, space.f_bavail * space.f_frsize)
            run.sync(20.0)
            said = run.end_sync()["error"]["message"]
            assert "/dev/shm has 0.0 MiB free" in said, said
        finally:
            os.remove("/dev/shm/full")


def journal_that_is_full(run):
    old = run.fleet.controller
    with in_transfer(run):
        run.broken = time.time()
        resource.prlimit(old.process.pid, resource.RLIMIT_FSIZE, (4096, 4096))  # of the log's file, too
    assert old.process.wait(processes.DEADLINE) == 5
    run.start_again("controller")
    run.end_sync()


def descriptors_that_run_out(run):
    run.links = set(range(fleets.ENGINES))
    code, report = run.fleet.ask("shutdown")  # every link is needed anew
    assert code == 0, report
    pid = run.fleet.agents[run.slot].process.pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    run.broken = time.time()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), usual[1]))
    try:
        run.sync()
        run.end_sync()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)


ROWS = [
    Row("bind/descriptors run out", "EITHER", descriptors_that_run_out, "S67"),
    Row("bind/shared memory full", "SYSTEMIC", shared_memory_full, "S18 S66", needs=("namespaces",)),
    Row("transfer/engine out of memory", "Q", out_of_memory("engine"), "S65", needs=("memory cgroups",)),
    Row("transfer/agent out of memory", "Q", out_of_memory("agent"), "S65", needs=("memory cgroups",)),
    Row("transfer/policy out of memory", "FAIL/ok", out_of_memory("policy"), "S65", needs=("memory cgroups",)),
    Row("transfer/controller out of memory", "REDO", out_of_memory("controller"), "S65", needs=("memory cgroups",)),
    Row("decision/journal full", "REDO", journal_that_is_full, "S63"),
]
