# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold after every row, whatever was broken (specs: the standard oracle)."""

import os

import fleet as fleets
from processes import wait_for

SLACK = 6      # descriptors of connections that come and go
PATIENCE = 10  # seconds until what ends has ended


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def listeners():
    """Inodes of listening sockets."""
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/net/{table}", encoding="ascii") as file:
            found |= {line.split()[9] for line in list(file)[1:] if line.split()[3] == "0A"}
    return found


def listening(pid, sockets):
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            link = os.readlink(f"/proc/{pid}/fd/{name}")
        except (FileNotFoundError, ProcessLookupError):
            continue
        count += link.startswith("socket:[") and link[8:-1] in sockets
    return count


def is_zombie(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "Z"


def shared_memory():
    """Objects of all refit processes of this host, by pid."""
    found = {}
    for name in os.listdir("/dev/shm"):
        if name.startswith("refit-"):
            found.setdefault(int(name.split("-")[1]), []).append(name)
    return found


class Holdings:
    """What every long-lived role of the fleet holds: kinds of things, counted."""

    def __init__(self, fleet):
        sockets = listeners()
        memory = shared_memory()
        self.of = {}
        for name, pid in fleet.role_pids().items():
            below = fleets.children(pid)
            self.of[name] = {"processes": len(below), "zombies": sum(is_zombie(child) for child in below),
                             "ports": sum(listening(one, sockets) for one in [pid, *below]),
                             "shared memory": len(memory.get(pid, []))}
        self.descriptors = {name: (pid, descriptors(pid)) for name, pid in fleet.role_pids().items()}
        # Names of processes that are no more, of ours: what we started is known by its number.
        self.of["the dead"] = {"shared memory": sum(len(names) for pid, names in memory.items()
                                                    if pid in fleet.past_pids and not os.path.exists(f"/proc/{pid}"))}
        self.of["the temporary folder"] = {"files": len(fleet.temporary_files())}

    def excess(self, before):
        """What there is more than before, in words."""
        more = []
        for name, kinds in self.of.items():
            for kind, count in kinds.items():
                if count != before.of[name][kind]:
                    more.append(f"{name}: {kind} {before.of[name][kind]} -> {count}")
        for name, (pid, count) in self.descriptors.items():
            known_pid, known = before.descriptors[name]
            if pid == known_pid and count > known + SLACK:
                more.append(f"{name}: descriptors {known} -> {count}")
        return more


def await_no_leak(fleet, before):
    excess = ["never looked"]

    def clean():
        try:
            excess[:] = Holdings(fleet).excess(before)
        except (FileNotFoundError, ProcessLookupError):  # one ended while it was looked at
            excess[:] = ["somebody came or went"]
        return not excess
    try:
        wait_for(clean, "everything as before", PATIENCE, pause=0.1)
    except AssertionError:
        raise AssertionError(f"left behind: {'; '.join(excess)}") from None
