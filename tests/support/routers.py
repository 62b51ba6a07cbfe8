# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The real sglang-router, for tests in Python: one of the test's own, and what any of them lists and answers.

REFIT_ROUTER_PYTHON names a Python that has the package (tools/router/fetch.sh installs and prints one).
"""

import json
import os
import subprocess
import urllib.error
import urllib.request

from processes import free_port, wait_for

PYTHON = os.environ.get("REFIT_ROUTER_PYTHON", "")


def call(url, path, body=None, timeout=10.0):
    """(status, the answer as JSON); status 0 where nobody answered."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, None
    except (OSError, ValueError):
        return 0, None


def listed(url):
    """URL of each listed engine -> its labels; None where the router does not answer."""
    status, answer = call(url, "/workers", timeout=2)
    if status != 200:
        return None
    return {worker["url"]: worker["metadata"] for worker in answer["workers"]}


def generate(url, prompt=(1, 2, 3), tokens=2):
    return call(url, "/generate", {"input_ids": list(prompt),
                                   "sampling_params": {"max_new_tokens": tokens, "temperature": 0}})


class Router:
    """A router that is not the controller's. It remembers nothing: started again it lists nobody."""

    def __init__(self, folder, port=None):
        self.folder = folder
        self.port = port or free_port()
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        with open(os.path.join(self.folder, "external-router.log"), "ab") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(self.port),
                 "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()), "--policy", "round_robin",
                 "--worker-startup-timeout-secs", "5", "--worker-startup-check-interval", "1", "--log-level", "warn"],
                stdout=log, stderr=log)
        wait_for(lambda: listed(self.url) is not None, "the router answers")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def block(self):
        """Of the job's file: generation.sglang_router_config."""
        return {"use_external_router": True, "sglang_router_ip": "127.0.0.1", "sglang_router_port": self.port}
