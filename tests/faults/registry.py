# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""A router that is up and does not do as it says: what stands here answers as sglang-router's registry does."""

import http.server
import json
import threading
import time
import uuid

import fleet as fleets
from processes import edited, wait_for
from rows import Row


class Registry:
    """GET, POST and DELETE /workers. `keeps`: URLs that it says to have deleted, and goes on delivering to."""

    def __init__(self):
        registry = self
        self.workers = {}  # id -> entry
        self.keeps = set()
        self.kept = []     # when a delete was accepted and not done
        self.forgets = 0   # so many of the next adds it accepts and does not do

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                entries = list(registry.workers.values())
                self.reply(200, {"workers": entries, "total": len(entries)})

            def do_POST(self):
                registry.add(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.reply(202, {"status": "accepted"})

            def do_DELETE(self):
                registry.delete(self.path.rsplit("/", 1)[1])
                self.reply(202, {"status": "accepted"})

            def reply(self, status, answer):
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def add(self, asked):
        if self.forgets > 0:
            self.forgets -= 1
        else:
            name = str(uuid.uuid4())
            self.workers[name] = {"id": name, "url": asked["url"], "metadata": asked.get("labels", {})}

    def delete(self, name):
        if name in self.workers and self.workers[name]["url"] in self.keeps:
            self.kept.append(time.time())
        else:
            self.workers.pop(name, None)

    def urls(self):
        return sorted(entry["url"] for entry in list(self.workers.values()))


class RegistryFleet(fleets.FaultFleet):
    def __init__(self):
        self.registry = Registry()
        super().__init__(with_router=False)
        self.callback(self.registry.stop)

    def write_job(self, policies, engines):
        super().write_job(policies, engines)
        with edited(self.job) as job:
            job["generation"]["sglang_router_config"] = {"use_external_router": True, "sglang_router_ip": "127.0.0.1",
                                                         "sglang_router_port": self.registry.server.server_port}
        return self.job

    def consistent(self):
        return super().consistent() and self.registry.urls() == sorted(engine["url"] for engine in self.engines())


def goes_on_delivering(run):
    """Whoever is lost lives and cannot be held, since its agent is stopped: nothing is published while it is listed."""
    fleet, registry = run.fleet, run.fleet.registry
    url = fleet.engines()[run.slot]["url"]
    fleet.arm(run.slot, "hold:end")
    try:
        run.sync(20.0)
        fleet.await_hit(run.slot, "end")
        with fleet.frozen(fleet.agents[run.slot].process.pid):
            registry.keeps.add(url)
            run.broken = time.time()
            fleet.disarm(run.slot)
            wait_for(lambda: registry.kept, "a delete accepted and not done", 15)
            time.sleep(2)  # the fault itself
            assert url in registry.urls() and not run.said("COMMIT request={} ")
            registry.keeps.clear()
            unlisted = time.time()
            run.end_sync()
            assert run.said("COMMIT request={} ") > unlisted - 0.001
    finally:
        registry.keeps.clear()
        fleet.disarm(run.slot)


def forgets_what_it_accepts(run):
    """An engine is replaced, and what the router said to have added it lists only the third time."""
    fleet = run.fleet
    fleet.registry.forgets = 2
    run.broken = fleet.kill("engine", run.slot)
    wait_for(lambda: fleet.registry.forgets == 0, "two adds accepted and not done", 15)


ROWS = [
    Row("serving/router accepts and forgets", "Q", forgets_what_it_accepts, "S13 S47", fleet=RegistryFleet),
    Row("decision/router goes on delivering", "Q", goes_on_delivering, "S48", fleet=RegistryFleet),
]
