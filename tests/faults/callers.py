# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""Who asks: callers that ask twice or go away, workers of other versions, strangers at the door."""

import contextlib
import random
import signal
import socket
import subprocess
import time

import processes
from others import in_transfer
from rows import Row


def same_request_often(run):
    run.broken = time.time()
    clients = [run.fleet.start_sync(run.name, source=[]) for _ in range(8)]
    answers = [run.fleet.finish(client) for client in clients]
    assert {code for code, _ in answers} == {0}, answers
    assert len({report["version"] for _, report in answers}) == 1, answers
    run.committed += 1


def requests_at_once(run):
    run.broken = time.time()
    clients = [run.fleet.start_sync(f"{run.name}-{n}") for n in range(8)]
    codes = [run.fleet.finish(client)[0] for client in clients]
    assert 0 in codes and set(codes) <= {0, 4}, codes
    run.committed += codes.count(0)


def caller_that_goes(how):
    def act(run):
        with in_transfer(run):
            client, run.client = run.client, None
            run.broken = time.time()
            client.send_signal(how)
            client.communicate(timeout=processes.DEADLINE)
            assert client.returncode == (130 if how == signal.SIGINT else -how), client.returncode
        run.await_said("OUTCOME request={} ")
        run.committed += 1
        version = run.fleet.commits()[-1]
        code, report = run.fleet.finish(run.fleet.start_sync(run.name, source=[]))  # asks what became of it
        assert (code, report["version"]) == (0, version), report
    return act


def strangers(run):
    """Bytes that mean nothing, and promises that are not kept, at every port of the fleet."""
    chance = random.Random(run.name)
    addresses = [role.address for role in (run.fleet.controller, *run.fleet.policies, *run.fleet.agents)]
    addresses += [engine["url"].removeprefix("http://") for engine in run.fleet.engines()]
    run.broken = time.time()
    for address in addresses:
        host, port = address.rsplit(":", 1)
        for words in (chance.randbytes(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
                      b"POST /generate HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n{",
                      b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"POST /pause_generation HTTP/1.1\r\n\r\n"):
            with socket.create_connection((host, int(port)), timeout=5) as stranger, contextlib.suppress(OSError):
                stranger.sendall(words)
                stranger.shutdown(socket.SHUT_WR)
                stranger.settimeout(0.2)
                while stranger.recv(65536):
                    pass


def register_with_protocol(address, slot, protocol):
    """What the controller answers to an agent of that version; written by hand, no build of ours says it."""
    message = bytes([0x08, slot, 0x1a, 3]) + b"a:1" + bytes([0x58, protocol])  # slot, address, protocol
    done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--max-time", "5", "-H", "te: trailers", "-H",
                           "content-type: application/grpc", "--data-binary", "@-", "--output", "-",
                           f"http://{address}/refit.v1.Controller/RegisterAgent"],
                          input=bytes([0, 0, 0, 0, len(message)]) + message, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def workers_of_other_versions(run):
    """One version older, and one newer: refused by name, and the agent that is there is not taken for gone."""
    run.broken = time.time()
    for protocol in (0, 2):
        said = register_with_protocol(run.fleet.controller.address, run.slot, protocol)
        assert f"the agent of engine {run.slot} speaks control protocol {protocol}, this end 1" in said, said


ROWS = [
    Row("serving/strangers at every port", "ok", strangers, "S82"),
    Row("serving/workers of other versions", "ok", workers_of_other_versions, "S90", needs=("curl",)),
    Row("transfer/caller interrupted", "ok", caller_that_goes(signal.SIGINT), "S74"),
    Row("transfer/caller killed", "ok", caller_that_goes(signal.SIGKILL), "S75"),
    Row("transfer/one request, eight callers", "ok", same_request_often, "S73"),
    Row("transfer/eight requests at once", "ok", requests_at_once, "S73"),
]
