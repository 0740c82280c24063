"""The Hugging Face Hub: which files a name means, and what is known of them without a download.

Resolving, tokens and gating are huggingface_hub's; bodies are read by `hub_http`. HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE are honoured by it.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from huggingface_hub import constants

from specgen.errors import ConfigError, DownloadError, ModelNotFoundError
from specgen.pairs.hub_errors import no_such_file, require_online, translated
from specgen.pairs.patience import QUESTION, Patience, ask
from specgen.pairs.sources import HubFile

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_REPO = re.compile(r"[\w.-]+/[\w.-]+")

Pick = Callable[[Sequence[str], str | None], str | None]
"""Chooses a model among the file names of a repository, for a quantisation or without a wish; None where none fits."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of the Hub at one commit, as it will be when it is here.

    Attributes:
        repo: owner/name.
        file: path inside the repository.
        commit: full hash.
        revision: what the user asked for; the commit itself, a branch or a tag.
        size: bytes.
        sha256: of its content.
    """

    repo: str
    file: str
    commit: str
    revision: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name, without folders."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Listed:
    """What the Hub says of a file; sha256 is None for one that Git keeps itself."""

    size: int
    sha256: str | None


def is_commit(revision: str) -> bool:
    """Whether a revision is pinned: the full hash of a commit."""
    return _COMMIT.fullmatch(revision) is not None


def resolve_file(file: HubFile, patience: Patience = QUESTION) -> HubFile:
    """The same file with its commit, size and hash. One HEAD; one more question for a split model.

    Raises:
        ModelNotFoundError: no such repository, revision or file.
        DownloadError: gated, offline, or the Hub cannot be reached.
    """
    parts = resolve_parts(file, patience)
    first = parts[0]
    return replace(file, revision=first.commit, size=sum(part.size for part in parts), sha256=first.sha256)


def resolve_parts(file: HubFile, patience: Patience = QUESTION) -> tuple[RemoteFile, ...]:
    """Every file of a model, the first shard first. No request where the revision is pinned and all is known.

    Raises:
        ModelNotFoundError, DownloadError: as `resolve_file`.
    """
    check_names(file)
    if is_commit(file.revision) and file.size is not None and file.sha256 and len(file.shards) == 1:
        return (RemoteFile(file.repo, file.file, file.revision, file.revision, file.size, file.sha256),)
    first = _head(file, patience)
    others = file.shards[1:]
    if not others:
        return (first,)
    listed = list_files(replace(file, revision=first.commit), others, patience)
    return (first, *(_part(first, name, listed.get(name)) for name in others))


def find_file(repo: str, quant: str | None, revision: str, pick: Pick, patience: Patience = QUESTION) -> HubFile:
    """The model of a repository that `pick` chooses, resolved. One question.

    Args:
        repo: owner/name.
        quant: wished quantisation, or None.
        revision: branch, tag or commit.
        pick: rule of choice.

    Raises:
        ModelNotFoundError: no such repository or revision, or none of its files fits.
        DownloadError: gated, offline, or the Hub cannot be reached.
    """
    from huggingface_hub import HfApi

    whole = HubFile(repo, "*.gguf", revision)
    check_names(whole)
    require_online(whole)

    def question() -> HubFile:
        with translated(whole):
            info = HfApi(endpoint=constants.ENDPOINT).model_info(
                repo, revision=revision, files_metadata=True, timeout=patience.timeout_s
            )
        siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
        models = sorted(name for name in siblings if name.lower().endswith(".gguf"))
        name = pick(models, quant)
        if name is None:
            wish = f" as {quant}" if quant else ""
            raise ModelNotFoundError(f"{repo} has no GGUF model{wish}", _choices(repo, revision, models))
        found = HubFile(repo, name, info.sha or revision)
        sizes = [siblings[shard].size for shard in found.shards if shard in siblings]
        lfs = siblings[name].lfs
        total = sum(size for size in sizes if size) if len(sizes) == len(found.shards) else None
        return replace(found, size=total, sha256=lfs.sha256 if lfs else None)

    return ask(question, patience)


def list_files(file: HubFile, names: Sequence[str], patience: Patience = QUESTION) -> dict[str, Listed]:
    """Size and hash of files in the repository of `file`, at its revision; those that are not there are left out.

    Raises:
        ModelNotFoundError, DownloadError: as `resolve_file`, but for missing files.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    check_names(file)
    require_online(file)

    def question() -> dict[str, Listed]:
        with translated(file):
            found = HfApi(endpoint=constants.ENDPOINT).get_paths_info(file.repo, list(names), revision=file.revision)
        return {
            entry.path: Listed(entry.size, entry.lfs.sha256 if entry.lfs else None)
            for entry in found
            if isinstance(entry, RepoFile)
        }

    return ask(question, patience)


def hub_file(word: str) -> HubFile:
    """The file that `hf:owner/repo/path@revision` names; without a revision, main.

    Raises:
        ConfigError: the word has another form.
    """
    path, _, revision = word.removeprefix("hf:").partition("@")
    owner, _, rest = path.partition("/")
    name, _, file = rest.partition("/")
    if not word.startswith("hf:") or not file:
        raise ConfigError(f"{word!r} is not a file of the Hub", "write hf:owner/repo/file.gguf, or add @revision")
    found = HubFile(f"{owner}/{name}", file, revision or "main")
    check_names(found)
    return found


def url_of(file: HubFile) -> str:
    """Where the Hub answers for a file."""
    revision, path = urllib.parse.quote(file.revision, safe=""), urllib.parse.quote(file.file)
    return f"{constants.ENDPOINT}/{file.repo}/resolve/{revision}/{path}"


def check_names(file: HubFile) -> None:
    """Names that could leave the cache folder, or ask for something else than they say, are refused.

    Raises:
        ConfigError: one of them.
    """
    if not _REPO.fullmatch(file.repo) or ".." in file.repo:
        raise ConfigError(f"{file.repo!r} is not the name of a repository", "write owner/name, as the Hub does")
    for what, path in (("file", file.file), ("revision", file.revision)):
        if not path or any(part in ("", ".", "..") for part in path.split("/")) or "\\" in path or "\0" in path:
            raise ConfigError(f"{path!r} is not the name of a {what} in a repository", "write it as the Hub does")


def _head(file: HubFile, patience: Patience) -> RemoteFile:
    from huggingface_hub import get_hf_file_metadata

    require_online(file)

    def question() -> RemoteFile:
        with translated(file):
            found = get_hf_file_metadata(
                url_of(file), timeout=patience.timeout_s, endpoint=constants.ENDPOINT, library_name="specgen"
            )
        if found.commit_hash is None or found.size is None:
            raise DownloadError(
                f"{constants.ENDPOINT} does not say what {file.repo}/{file.file} is",
                "check HF_ENDPOINT, and that no proxy removes headers",
            )
        size, sha256 = found.size, found.etag or ""
        first = RemoteFile(file.repo, file.file, found.commit_hash, file.revision, size, sha256)
        return _part(first, file.file, Listed(size, sha256))

    return ask(question, patience)


def _part(first: RemoteFile, name: str, listed: Listed | None) -> RemoteFile:
    if listed is None:
        raise no_such_file(HubFile(first.repo, name, first.revision))
    if not _SHA256.fullmatch(listed.sha256 or ""):
        raise DownloadError(
            f"the Hub has no sha256 for {first.repo}/{name}, so that a copy could not be checked",
            "fetch it by hand and give the path of the file",
        )
    return replace(first, file=name, size=listed.size, sha256=listed.sha256 or "")


def _choices(repo: str, revision: str, models: Sequence[str]) -> str:
    if not models:
        return f"choose a repository with .gguf files; see {constants.ENDPOINT}/{repo}/tree/{revision}"
    shown = ", ".join(models[:6]) + (f" and {len(models) - 6} more" if len(models) > 6 else "")
    return f"it has {shown}"
