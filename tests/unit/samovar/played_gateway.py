#!/usr/bin/env python3
"""Stands in for `python -m gateway` in the tests of `samovar up`: announces itself, is ready, notes what is deployed.

Ends with 0 on SIGINT and SIGTERM; with SIGTERM_CODE or FAIL_CODE in its environment it ends with that code.
"""

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

arguments = sys.argv[sys.argv.index("gateway") + 1 :]
data = Path(arguments[arguments.index("--data") + 1])
assert "--die-with-parent" in arguments
data.mkdir(parents=True, exist_ok=True)
if "FAIL_CODE" in os.environ:
    sys.stderr.write("another gateway uses this directory\n")
    sys.exit(int(os.environ["FAIL_CODE"]))
state = data / "functions.json"
live = json.loads(state.read_text()) if state.exists() else {}
started = time.monotonic()
one_at_a_time = threading.Lock()


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/readyz":
            # Not ready at once, as a real one.
            self.answer(200 if time.monotonic() - started > 0.2 else 503, b"{}")
        elif self.path != "/api/v1/functions":
            self.answer(404, b"{}")
        else:
            rows = [{"namespace": "default", "name": name, "live": number} for name, number in live.items()]
            self.answer(200, json.dumps(rows).encode())

    def do_POST(self):
        import gzip
        import io
        import tarfile
        import tomllib

        body = self.rfile.read(int(self.headers["content-length"]))
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(body))) as tar:
            name = tomllib.loads(tar.extractfile("function.toml").read().decode())["name"]
        if name == "broken":
            last = {"event": "failed", "phase": "proof", "error": {"code": "x", "message": "does not start"}}
        else:
            with one_at_a_time:
                live[name] = live.get(name, 0) + 1
                state.write_text(json.dumps(live))
            last = {"event": "deployed", "namespace": "default", "function": name, "revision": live[name]}
        self.answer(200, json.dumps(last).encode() + b"\n")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)


def end(number, frame):
    with (data / "signals").open("a") as file:
        file.write(f"{signal.Signals(number).name}\n")
    if "DEAF" not in os.environ:
        os._exit(int(os.environ.get("SIGTERM_CODE", "0")) if number == signal.SIGTERM else 0)


signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
(data / "pid").write_text(str(os.getpid()))
announced = {
    "url": f"http://127.0.0.1:{server.server_port}",
    "token": "smv_played",
    "pid": os.getpid(),
    "data": str(data),
    "started_at": time.time(),
}
new = data / ".local.json"
new.write_text(json.dumps(announced))
new.chmod(0o600)
new.replace(data / "local.json")
server.serve_forever()
