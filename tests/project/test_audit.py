import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOLE = {
    "id": "TEST-1",
    "modified": "2026-01-01T00:00:00Z",
    "published": "2026-01-01T00:00:00Z",
    "summary": "a hole",
    "affected": [{"package": {"ecosystem": "PyPI", "name": "jinja2"}}],
}


class Service(BaseHTTPRequestHandler):
    asked: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        names = [query["package"]["name"] for query in queries]
        self.asked.update(names)
        self._answer({"results": [{"vulns": [HOLE]} if name == "jinja2" else {} for name in names]})

    def do_GET(self) -> None:
        self._answer(HOLE)

    def _answer(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def audit(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), *arguments]
    environment = os.environ | dict.fromkeys(("no_proxy", "NO_PROXY"), "127.0.0.1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_known_vulnerability_fails_and_is_named(service: str) -> None:
    code, said = audit("--service-url", service)
    assert code == 1
    assert "TEST-1: a hole" in said
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE)
    assert Service.asked == set(locked)
