"""What goes wrong between this machine and the Hub, as specgen's own errors: the only place that knows both.

The Hub says why it refuses in a status and an `X-Error-Code`; huggingface_hub's exceptions carry them in a response,
those of urllib themselves. Exceptions of the HTTP library below are not told apart by class: it changes with
huggingface_hub's releases.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants

from specgen.errors import ConfigError, DownloadError, ModelNotFoundError, SpecgenError
from specgen.pairs.sources import HubFile

_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
AGAIN = "check the network and run the command again: what was fetched is kept"


class TransientError(DownloadError):
    """A failure that the next attempt may not meet.

    Attributes:
        retry_after_s: what the server asked for, 0 where it said nothing.
    """

    def __init__(self, message: str, hint: str = AGAIN, retry_after_s: float = 0.0) -> None:
        super().__init__(message, hint)
        self.retry_after_s = retry_after_s


class OfflineError(DownloadError):
    """HF_HUB_OFFLINE forbids requests."""


def require_online(file: HubFile) -> None:
    """No request while HF_HUB_OFFLINE is set.

    Raises:
        OfflineError: it is.
    """
    if constants.HF_HUB_OFFLINE:
        raise OfflineError(
            f"{file.repo}/{file.file} is not on this machine, and HF_HUB_OFFLINE is set", "unset it to fetch the file"
        )


@contextmanager
def translated(file: HubFile) -> Iterator[None]:
    """Around calls to the Hub about `file`: whatever they raise leaves as an error of specgen."""
    try:
        yield
    except SpecgenError:
        raise
    except Exception as error:
        raise _translate(error, file) from error


def _translate(error: Exception, file: HubFile) -> SpecgenError:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if isinstance(error, urllib.error.HTTPError):
        return _refusal(error.code, dict(error.headers.items()), file)
    if isinstance(error, HfHubHTTPError):
        return _refusal(error.response.status_code, dict(error.response.headers), file)
    if isinstance(error, HFValidationError):
        return ConfigError(f"{file.repo!r} is not the name of a repository", "write owner/name, as the Hub does")
    return TransientError(f"{constants.ENDPOINT} cannot be reached: {_reason(error)}")


def _refusal(status: int, headers: dict[str, str], file: HubFile) -> SpecgenError:
    """The Hub's answer to a request that it did not grant."""
    headers = {name.lower(): value for name, value in headers.items()}
    code = headers.get("x-error-code", "")
    page = f"{constants.ENDPOINT}/{file.repo}"
    if code == "GatedRepo":
        return DownloadError(
            f"{file.repo} is gated: its licence has to be accepted first",
            f"accept it at {page}, then run `hf auth login` or set HF_TOKEN",
        )
    if code == "RevisionNotFound":
        return ModelNotFoundError(f"{file.repo} has no revision {file.revision!r}", f"see {page}/commits/main")
    if code == "EntryNotFound":
        return no_such_file(file)
    if code == "RepoNotFound" or (status == 401 and "x-error-message" not in headers):
        return ModelNotFoundError(
            f"there is no repository {file.repo}, or it is private",
            f"check the name at {page}; for a private one run `hf auth login` or set HF_TOKEN",
        )
    if status in (401, 403):
        return DownloadError(
            f"the Hub refuses {file.repo} with this token: {headers.get('x-error-message', f'status {status}')}",
            "run `hf auth login`, or set HF_TOKEN to a token that may read the repository",
        )
    if status in _TRANSIENT:
        return TransientError(
            f"{constants.ENDPOINT} answers with status {status}",
            "try again later: what was fetched is kept",
            _seconds(headers.get("retry-after", "")),
        )
    return DownloadError(f"the Hub answers with status {status} for {file.repo}/{file.file}", f"see {page}")


def no_such_file(file: HubFile) -> ModelNotFoundError:
    """A repository that is there, without the file."""
    return ModelNotFoundError(
        f"{file.repo} has no file {file.file} at revision {file.revision}",
        f"see what there is at {constants.ENDPOINT}/{file.repo}/tree/{file.revision}",
    )


def _reason(error: Exception) -> str:
    """A few words for an exception whose own are often none, or a tuple."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({inner.verify_message})"
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if isinstance(inner, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror
    if isinstance(inner, http.client.HTTPException):
        return "the connection broke off"
    return str(inner).partition("\n")[0] or type(inner).__name__


def _seconds(retry_after: str) -> float:
    try:
        return max(0.0, float(retry_after))
    except ValueError:  # it may also be a date, which nobody sends here
        return 0.0
