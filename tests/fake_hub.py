"""A Hub on localhost that speaks real HTTP, with the faults that real ones have.

Names are resolved at one origin (127.0.0.1) and redirected to another (localhost), as the Hub does it with its storage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_STORED = re.compile(r"/stored/([^/]+/[^/]+)/(.+)")
_PATHS = re.compile(r"/api/models/([^/]+/[^/]+)/paths-info/([^/]+)")
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?(?:\?.*)?")
_PIECE = 1 << 16


@dataclass
class Content:
    """A file and what is wrong with it.

    Attributes:
        data: its bytes, by which its size and hash are promised.
        sent: the bytes that really come, where they differ.
        pause_at: offset at which a body stops to come until `FakeHub.go` is set.
        breaks: offsets at which connections break off, one each.
        ignores_range: answers 200 with everything.
        says_416: answers 416 to everything that begins behind this offset.
    """

    data: bytes
    sent: bytes | None = None
    pause_at: int | None = None
    breaks: list[int] = field(default_factory=list)
    ignores_range: bool = False
    says_416: int | None = None

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Seen:
    """A request."""

    method: str
    path: str
    range: str | None
    authorization: str | None

    @property
    def start(self) -> int:
        """First byte that was asked for."""
        return int(self.range.removeprefix("bytes=").partition("-")[0]) if self.range else 0

    @property
    def is_body(self) -> bool:
        return self.method == "GET" and self.path.startswith("/stored/")


class FakeHub:
    """The server; files are added, refusals and failures queued, requests remembered.

    Attributes:
        files: by repository and path.
        gated: repositories that need `token`.
        failures: statuses of the next requests, whatever they are.
        seen: every request, in order.
        go: lets bodies go on that stopped at `pause_at`.
        paused: set when a body has stopped.
    """

    def __init__(self) -> None:
        self.files: dict[tuple[str, str], Content] = {}
        self.gated: set[str] = set()
        self.token = "hf_right"
        self.failures: list[int] = []
        self.seen: list[Seen] = []
        self.go = threading.Event()
        self.paused = threading.Event()
        self.lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, repo: str, file: str, data: bytes, **faults: Any) -> Content:
        self.files[repo, file] = content = Content(data, **faults)
        return content

    def bodies(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.is_body]

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are the point of some tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(self._resolve)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, answer: Callable[[], None]) -> None:
        hub = self.hub
        seen = Seen(self.command, self.path, self.headers.get("Range"), self.headers.get("Authorization"))
        with hub.lock:
            hub.seen.append(seen)
            failure = hub.failures.pop(0) if hub.failures else None
        with contextlib.suppress(ConnectionError):
            if failure is None:
                answer()
            else:
                self._say(failure, {})

    def _get(self) -> None:
        if _STORED.fullmatch(self.path):
            self._send_body()
        elif _RESOLVE.fullmatch(self.path):
            self._resolve()
        else:
            self._info()

    def _resolve(self) -> None:
        found = _RESOLVE.fullmatch(self.path)
        repo, revision, file = (unquote(part) for part in found.groups()) if found else ("", "", "")
        if self._refuses(repo, revision):
            return
        content = self.hub.files.get((repo, file))
        if content is None:
            self._say(404, {"X-Error-Code": "EntryNotFound"})
            return
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Size": str(len(content.data)),
            "X-Linked-Etag": f'"{content.sha256}"',
            "Location": f"http://localhost:{self.hub.port}/stored/{repo}/{file}",
        }
        self._say(302, headers)

    def _refuses(self, repo: str, revision: str) -> bool:
        if repo in self.hub.gated and self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            status = 403 if self.headers.get("Authorization") else 401
            self._say(status, {"X-Error-Code": "GatedRepo"})
        elif repo not in {name for name, _ in self.hub.files}:
            self._say(404, {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self._say(404, {"X-Error-Code": "RevisionNotFound"})
        else:
            return False
        return True

    def _send_body(self) -> None:
        found = _STORED.fullmatch(self.path)
        repo, file = (unquote(part) for part in found.groups()) if found else ("", "")
        content = self.hub.files[repo, file]
        data = content.data if content.sent is None else content.sent
        asked = None if content.ignores_range else self.headers.get("Range")
        first, _, last = (asked or "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(len(data), int(last) + 1) if last else len(data)
        if start >= (content.says_416 or len(data)) and asked:
            self._say(416, {"Content-Range": f"bytes */{len(data)}"})
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        end = content.breaks.pop(0) if content.breaks else None
        for at in range(start, stop, _PIECE):
            if content.pause_at is not None and at >= content.pause_at:
                self.hub.paused.set()
                self.hub.go.wait()
            if end is not None and at >= end:
                self.close_connection = True
                return
            self.wfile.write(data[at : min(at + _PIECE, stop)])

    def _post(self) -> None:
        found = _PATHS.fullmatch(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        repo, revision = (unquote(part) for part in found.groups()) if found else ("", "")
        if self._refuses(repo, revision):
            return
        names = parse_qs(body.decode())["paths"]
        known = [(name, self.hub.files[repo, name]) for name in names if (repo, name) in self.hub.files]
        self._say_json([{"type": "file", "path": name, **_listed(content)} for name, content in known])

    def _info(self) -> None:
        found = _INFO.fullmatch(self.path)
        repo, revision = (unquote(part or "main") for part in found.groups()) if found else ("", "")
        if self._refuses(repo, revision):
            return
        files = [(name, content) for (owner, name), content in self.hub.files.items() if owner == repo]
        siblings = [{"rfilename": name, **_listed(content)} for name, content in files]
        self._say_json({"id": repo, "sha": COMMIT, "siblings": siblings})

    def _say_json(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self._say(200, {"Content-Type": "application/json"}, data)

    def _say(self, status: int, headers: dict[str, str], data: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _listed(content: Content) -> dict[str, Any]:
    size = len(content.data)
    return {
        "size": size,
        "oid": "0" * 40,
        "lfs": {"sha256": content.sha256, "oid": content.sha256, "size": size, "pointerSize": 1},
    }
