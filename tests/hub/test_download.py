"""Downloads against faults: what is here afterwards is whole and right, or an error says why not."""

from __future__ import annotations

import hashlib
import threading

import pytest
from huggingface_hub import constants, hf_hub_download

from specgen.errors import DownloadError, ModelNotFoundError
from specgen.pairs import download, hub_cache
from specgen.pairs.download import State, fetch
from specgen.pairs.hub import RemoteFile
from specgen.pairs.sources import HubFile
from tests.fake_hub import COMMIT
from tests.hub.conftest import DATA, FILE, QUICK, REPO

SHA256 = hashlib.sha256(DATA).hexdigest()
PINNED = HubFile(REPO, FILE, COMMIT, len(DATA), SHA256)
REMOTE = RemoteFile(REPO, FILE, COMMIT, COMMIT, len(DATA), SHA256)

pytestmark = pytest.mark.usefixtures("home")


def get(file=PINNED):
    (path,) = fetch([file], patience=QUICK)
    return path


def leave_unfinished(data):
    path = hub_cache.unfinished_path(REMOTE)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def assert_nothing_is_here(kept=None):
    """No file under a final name; `kept` bytes of it for the next run, or none."""
    assert hub_cache.locate(PINNED) is None
    assert not hub_cache.blob_path(REMOTE).exists()
    path = hub_cache.unfinished_path(REMOTE)
    assert (path.stat().st_size if path.exists() else None) == kept


def test_a_pinned_file_comes_with_one_request_and_later_with_none(hub):
    hub.add(REPO, FILE, DATA)
    assert get().read_bytes() == DATA
    assert [seen.method for seen in hub.seen] == ["GET", "GET"]  # the second is the redirection's
    hub.seen.clear()
    assert get().read_bytes() == DATA
    assert hub.seen == []


def test_an_unpinned_file_costs_one_head_when_it_is_here(hub):
    hub.add(REPO, FILE, DATA)
    path = get(HubFile(REPO, FILE))
    hub.seen.clear()
    assert get(HubFile(REPO, FILE)) == path
    assert [seen.method for seen in hub.seen] == ["HEAD"]


def test_huggingface_hub_finds_what_was_fetched(hub, home):
    hub.add(REPO, FILE, DATA)
    path = get(HubFile(REPO, FILE))
    assert str(path) == hf_hub_download(REPO, FILE, cache_dir=home / "hub", local_files_only=True)
    assert path.is_symlink()
    assert not path.readlink().is_absolute()


def test_what_huggingface_hub_has_fetched_is_found(hub, home):
    hub.add(REPO, FILE, DATA)
    theirs = hf_hub_download(REPO, FILE, cache_dir=home / "hub", endpoint=hub.endpoint)
    hub.seen.clear()
    assert str(get()) == theirs
    assert hub.seen == []


def test_content_that_came_with_another_commit_is_linked(hub):
    hub.add(REPO, FILE, DATA)
    get()
    hub.seen.clear()
    other = HubFile(REPO, FILE, "f" * 40, len(DATA), SHA256)
    assert get(other).read_bytes() == DATA
    assert hub.seen == []


def test_it_goes_on_where_an_earlier_run_ended(hub):
    hub.add(REPO, FILE, DATA)
    leave_unfinished(DATA[:700_000])
    assert get().read_bytes() == DATA
    assert [seen.start for seen in hub.bodies()] == [700_000]


def test_a_whole_unfinished_file_needs_no_request(hub):
    hub.add(REPO, FILE, DATA)
    leave_unfinished(DATA)
    assert get().read_bytes() == DATA
    assert hub.seen == []


def test_an_unfinished_file_that_is_too_long_starts_over(hub):
    hub.add(REPO, FILE, DATA)
    leave_unfinished(DATA + b"more")
    assert get().read_bytes() == DATA


def test_a_server_that_ignores_range_is_read_from_the_start(hub):
    hub.add(REPO, FILE, DATA, ignores_range=True)
    leave_unfinished(DATA[:700_000])
    assert get().read_bytes() == DATA


def test_connections_that_break_off_are_taken_up_again(hub):
    hub.add(REPO, FILE, DATA, breaks=[300_000, 600_000, 900_000, 1_100_000])
    assert get().read_bytes() == DATA
    starts = [seen.start for seen in hub.bodies()]
    assert len(starts) == 5
    assert starts == sorted(starts)
    assert 0 < starts[1] < starts[4]


def test_a_stalled_body_is_left_and_asked_for_again(hub):
    content = hub.add(REPO, FILE, DATA, pause_at=600_000)

    def on_progress(transfer):
        if transfer.state is State.RETRYING:
            content.pause_at = None

    (path,) = fetch([PINNED], on_progress, QUICK)
    assert path.read_bytes() == DATA
    assert hub.bodies()[-1].start > 500_000


def test_a_body_that_stalls_for_good_is_an_error_and_kept(hub):
    hub.add(REPO, FILE, DATA, pause_at=655_360)
    with pytest.raises(DownloadError, match=r"no answer in time .*of model-Q4_K_M.gguf") as error:
        get()
    assert "kept" in error.value.hint
    assert_nothing_is_here(kept=655_360)


def test_damaged_bytes_of_equal_length_are_removed_and_both_hashes_named(hub):
    damaged = DATA[:500] + b"?" + DATA[501:]
    hub.add(REPO, FILE, DATA, sent=damaged)
    with pytest.raises(DownloadError) as error:
        get()
    assert SHA256 in error.value.message
    assert hashlib.sha256(damaged).hexdigest() in error.value.message
    assert_nothing_is_here()


def test_a_damaged_unfinished_file_is_removed_and_the_next_run_starts_afresh(hub):
    hub.add(REPO, FILE, DATA)
    leave_unfinished(b"?" + DATA[1:700_000])
    with pytest.raises(DownloadError, match="sha256"):
        get()
    assert_nothing_is_here()
    assert get().read_bytes() == DATA


@pytest.mark.parametrize("sent", [DATA[:-999], DATA + b"more"], ids=["shorter", "longer"])
def test_a_wrong_size_is_an_error_that_names_both(hub, sent):
    hub.add(REPO, FILE, DATA, sent=sent)
    with pytest.raises(DownloadError, match=f"{len(sent):,} bytes on the server, expected {len(DATA):,}"):
        get()
    assert_nothing_is_here(kept=0)


def test_status_416_where_bytes_are_missing_is_an_error(hub):
    hub.add(REPO, FILE, DATA, says_416=600_000)
    leave_unfinished(DATA[:700_000])
    with pytest.raises(DownloadError, match="700,000 bytes, expected"):
        get()
    assert_nothing_is_here()


def test_server_errors_that_pass_are_waited_for(hub):
    hub.add(REPO, FILE, DATA)
    hub.failures += [503, 500]
    assert get().read_bytes() == DATA


def test_server_errors_that_stay_are_an_error(hub):
    hub.add(REPO, FILE, DATA)
    hub.failures += [503] * 9
    with pytest.raises(DownloadError, match="status 503"):
        get()
    assert len(hub.failures) == 9 - QUICK.n_attempts


def test_gated_files_say_where_to_accept(hub):
    hub.add(REPO, FILE, DATA)
    hub.gated.add(REPO)
    for file in (PINNED, HubFile(REPO, FILE)):
        with pytest.raises(DownloadError, match="gated") as error:
            get(file)
        assert f"{hub.endpoint}/{REPO}" in error.value.hint
        assert "hf auth login" in error.value.hint
    assert_nothing_is_here(kept=0)


def test_the_token_goes_to_the_hub_and_to_nobody_else(hub, monkeypatch):
    hub.add(REPO, FILE, DATA)
    hub.gated.add(REPO)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert get(HubFile(REPO, FILE)).read_bytes() == DATA
    assert {seen.authorization for seen in hub.bodies()} == {None}
    assert {seen.authorization for seen in hub.seen if not seen.is_body} == {f"Bearer {hub.token}"}


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (HubFile(REPO, "none.gguf"), "no file none.gguf"),
        (HubFile(REPO, "none.gguf", COMMIT, 5, "a" * 64), "no file none.gguf"),
        (HubFile(REPO, FILE, "f" * 40), "no revision 'ffff"),
        (HubFile("owner/none", FILE), "no repository owner/none"),
    ],
)
def test_what_the_hub_does_not_have_is_named(hub, file, words):
    hub.add(REPO, FILE, DATA)
    with pytest.raises(ModelNotFoundError, match=words) as error:
        get(file)
    assert error.value.hint


def test_offline_is_said_and_makes_no_request(hub, monkeypatch):
    hub.add(REPO, FILE, DATA)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for file in (PINNED, HubFile(REPO, FILE)):
        with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
            get(file)
    assert hub.seen == []


def test_offline_finds_what_was_last_seen(hub, monkeypatch):
    hub.add(REPO, FILE, DATA)
    path = get(HubFile(REPO, FILE))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert get(HubFile(REPO, FILE)) == path


def test_a_disk_that_is_too_small_is_said_before(hub, monkeypatch):
    hub.add(REPO, FILE, DATA)
    monkeypatch.setattr(download, "disk_free", lambda: 1_000_000)
    with pytest.raises(DownloadError, match=r"1.0 MB free, the download needs 1.2 MB"):
        get()
    assert hub.seen == []


def test_a_disk_that_becomes_full_keeps_what_was_written(hub):
    """/dev/full, in place of the unfinished file, takes nothing."""
    hub.add(REPO, FILE, DATA)
    path = leave_unfinished(b"")
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(DownloadError, match="No space left on device") as error:
        get()
    assert "free some space" in error.value.hint
    assert hub_cache.locate(PINNED) is None


def test_a_cache_that_cannot_be_written(hub, home):
    hub.add(REPO, FILE, DATA)
    (home / "hub").write_text("not a folder")
    with pytest.raises(DownloadError, match="cannot be written") as error:
        get()
    assert "HF_HOME" in error.value.hint


def test_a_file_system_without_links_gets_the_content_itself(hub, monkeypatch):
    hub.add(REPO, FILE, DATA)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    path = get()
    assert not path.is_symlink()
    assert path.read_bytes() == DATA


def test_two_that_want_the_same_file_share_the_work(hub):
    hub.add(REPO, FILE, DATA, pause_at=600_000)
    states, is_waiting, paths = [], threading.Event(), []

    def second():
        def on_progress(transfer):
            states.append(transfer.state)
            is_waiting.set()

        paths.extend(fetch([PINNED], on_progress, QUICK))

    slow = download.Patience(timeout_s=30)
    threads = [threading.Thread(target=lambda: paths.extend(fetch([PINNED], patience=slow)))]
    threads[0].start()
    assert hub.paused.wait(10)
    threads.append(threading.Thread(target=second))
    threads[1].start()
    assert is_waiting.wait(10)
    hub.go.set()
    for thread in threads:
        thread.join(10)
    assert states[0] is State.WAITING
    assert len(hub.bodies()) == 1
    assert len(paths) == 2
    assert paths[0] == paths[1]
    assert paths[0].read_bytes() == DATA


def test_all_shards_come_and_the_first_stands_for_them(hub):
    names = [f"big/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for i, name in enumerate(names):
        hub.add(REPO, name, DATA[i * 1000 : i * 1000 + 900])
    path = get(HubFile(REPO, names[0]))
    assert path.name == "m-00001-of-00003.gguf"
    assert [path.with_name(name.split("/")[1]).stat().st_size for name in names] == [900, 900, 900]
    assert hub_cache.locate(HubFile(REPO, names[0])) == path


def test_a_missing_shard_is_named(hub):
    hub.add(REPO, "m-00001-of-00002.gguf", DATA)
    with pytest.raises(ModelNotFoundError, match=r"m-00002-of-00002\.gguf"):
        get(HubFile(REPO, "m-00001-of-00002.gguf"))


def test_one_failure_ends_the_others(hub):
    hub.add(REPO, FILE, DATA, pause_at=600_000)
    missing = HubFile(REPO, "none.gguf", COMMIT, 5, "a" * 64)
    with pytest.raises(ModelNotFoundError):
        fetch([PINNED, missing], patience=download.Patience(timeout_s=20))


def test_progress_never_goes_backwards(hub, monkeypatch):
    monkeypatch.setattr(download, "_REPORT_INTERVAL_S", 0.0)
    hub.add(REPO, FILE, DATA, breaks=[300_000, 600_000])
    leave_unfinished(DATA[:100_000])
    seen = []
    fetch([PINNED], lambda transfer: seen.append(transfer.n_bytes), QUICK)
    assert seen == sorted(seen)
    assert seen[-1] == len(DATA)


@pytest.mark.parametrize("file", ["../x.gguf", "/x.gguf", "a/../../x.gguf", "a\\x.gguf", ""])
def test_names_cannot_leave_the_cache(hub, file):
    with pytest.raises(download.DownloadError.__mro__[1], match="not the name of a file"):
        get(HubFile(REPO, file))
