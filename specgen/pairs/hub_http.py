"""Bodies from the Hub, by Range, over plain HTTP.

Not through the Hub library's own client, which copies each byte several times: from a fast server it reaches a third of
this one's speed. Proxies come from the environment, as everywhere.
"""

from __future__ import annotations

import email.message
import functools
import http.client
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from huggingface_hub import constants

from specgen import __version__
from specgen.pairs.hub import RemoteFile, check_names, url_of
from specgen.pairs.hub_errors import TransientError, require_online, translated
from specgen.pairs.patience import QUESTION, Patience, ask
from specgen.pairs.sources import HubFile

CHUNK_BYTES = 1 << 20
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")
_AUTHORIZATION = "Authorization"


@dataclass(frozen=True, slots=True)
class Body:
    """A file's bytes from `start` on; `start` is 0 where the server ignores Range.

    Attributes:
        start: offset of the first byte that `read` gives.
        size: of the whole file, None where the server does not say.
    """

    start: int
    size: int | None
    _file: HubFile
    _response: http.client.HTTPResponse | None

    @property
    def is_beyond_end(self) -> bool:
        """Whether the server says that nothing is left (status 416)."""
        return self._response is None

    def read(self, n_bytes: int = CHUNK_BYTES) -> bytes:
        """What has come, up to so many bytes; empty at the end, or where the connection was closed.

        Raises:
            TransientError: the connection failed, or nothing came in time.
        """
        with translated(self._file):
            return self._response.read1(n_bytes) if self._response else b""

    def close(self) -> None:
        """Stop reading; what the server still sends is lost."""
        if self._response:
            self._response.close()


@contextmanager
def open_body(file: HubFile, start: int, stop: int | None = None, timeout_s: float = 10.0) -> Iterator[Body]:
    """A file from byte `start` to before `stop`. Where nothing is left (status 416) the body is empty.

    Raises:
        TransientError: the connection failed.
        ModelNotFoundError, DownloadError: the Hub refuses.
    """
    require_online(file)
    with translated(file):
        request = urllib.request.Request(url_of(file), headers=_headers())
        if start or stop is not None:
            request.add_header("Range", f"bytes={start}-{'' if stop is None else stop - 1}")
        body = _open(file, request, start, timeout_s)
    try:
        yield body
    finally:
        body.close()


def _open(file: HubFile, request: urllib.request.Request, start: int, timeout_s: float) -> Body:
    try:
        response = _opener().open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            error.close()  # what it says is in its headers
            raise
        with error:
            return Body(start, _ranged(error.headers)[1], file, None)
    if response.status != 206:
        return Body(0, _length(response.headers), file, response)
    begin, total = _ranged(response.headers)
    if begin is None or begin > start:
        response.close()
        raise TransientError(f"{constants.ENDPOINT} answers with another part of the file than was asked for")
    return Body(begin, total, file, response)


class RemoteSource:
    """A file of the Hub, read in pieces without being fetched; a `ByteSource`.

    Attributes:
        size: bytes, None until it is known.
    """

    def __init__(self, file: HubFile, patience: Patience = QUESTION) -> None:
        check_names(file)
        self.size = file.size if len(file.shards) == 1 else None
        self._file = file
        self._patience = patience

    def read(self, start: int, n: int) -> bytes:
        """Bytes `start` to `start + n`, fewer where the file ends. Stops reading by itself if the server does not.

        Raises:
            ModelNotFoundError, DownloadError: the Hub refuses, or cannot be reached.
        """
        return ask(lambda: self._read(start, start + n), self._patience) if n > 0 else b""

    def _read(self, start: int, stop: int) -> bytes:
        with open_body(self._file, start, stop, self._patience.timeout_s) as body:
            self.size = body.size if body.size is not None else self.size
            at, pieces = body.start, []
            while at < stop and (piece := body.read(min(CHUNK_BYTES, stop - at))):
                pieces.append(piece[max(0, start - at) :])
                at += len(piece)
        data = b"".join(pieces)
        expected = stop if self.size is None else min(stop, self.size)
        if at < expected:
            raise TransientError(f"{constants.ENDPOINT} cannot be read: the connection broke off")
        return data


def remote(file: HubFile) -> RemoteSource:
    """The bytes of a file of the Hub, to read a header from."""
    return RemoteSource(file)


def as_hub_file(part: RemoteFile) -> HubFile:
    """What to ask the Hub for, pinned."""
    return HubFile(part.repo, part.file, part.commit, part.size, part.sha256)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; the token goes to no other server than the one it was meant for."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if request is not None and _origin(request.full_url) != _origin(req.full_url):
            request.remove_header(_AUTHORIZATION)
        return request


@functools.cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Redirects, urllib.request.HTTPSHandler(context=_tls()))


def _tls() -> ssl.SSLContext:
    """The certificates that the Hub library's own client trusts: the system's, or certifi's."""
    try:
        import truststore
    except ImportError:
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def _headers() -> dict[str, str]:
    """The user's token, and who asks. The Hub library's own headers cost a request for a list of coding agents."""
    from huggingface_hub import get_token

    token = get_token()
    agent = {"User-Agent": f"specgen/{__version__}"}
    return agent | {_AUTHORIZATION: f"Bearer {token}"} if token else agent


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


def _ranged(headers: email.message.Message) -> tuple[int | None, int | None]:
    """First byte and total size as Content-Range says them."""
    found = _RANGE.fullmatch(headers.get("Content-Range", ""))
    if not found:
        return None, None
    start, total = found.groups()
    return (int(start) if start else None), (int(total) if total != "*" else None)


def _length(headers: email.message.Message) -> int | None:
    value = headers.get("Content-Length", "")
    return int(value) if value.isdigit() else None
