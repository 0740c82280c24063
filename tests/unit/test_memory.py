"""Which limit binds: of the machine, of the process, of a control group and those around it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from specgen.llama.memory import ram

MIB = 2**20
FREE = "from specgen.llama.memory import ram; limit = ram().limits[0]; print(limit.name, limit.free_bytes, sep='|')"


def group(folder, limit, used, cache=0, *, version=2):
    """The files of a control group."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    key = "inactive_file" if version == 2 else "total_inactive_file"
    (folder / "memory.stat").write_text(f"anon {used - cache}\n{key} {cache}\n")


def limits(tmp_path, own):
    (tmp_path / "own").write_text(own)
    return ram(tmp_path / "cgroup", tmp_path / "own").limits


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_leaves_its_limit_less_what_is_used_and_cannot_be_dropped(tmp_path, version):
    where = tmp_path / "cgroup" / ("memory" if version == 1 else "") / "box"
    group(where, 100 * MIB, 70 * MIB, cache=30 * MIB, version=version)
    tightest = limits(tmp_path, "4:memory:/box\n" if version == 1 else "0::/box\n")[0]
    assert tightest.free_bytes == 60 * MIB
    assert "100 MiB" in tightest.name
    assert not tightest.counts_mappings


def test_the_tightest_of_the_groups_around_it_binds(tmp_path):
    group(tmp_path / "cgroup" / "outer" / "inner", "max", 1 * MIB)
    group(tmp_path / "cgroup" / "outer", 50 * MIB, 20 * MIB)
    assert limits(tmp_path, "0::/outer/inner\n")[0].free_bytes == 30 * MIB


def test_in_a_container_the_mount_is_the_group_whatever_its_path(tmp_path):
    group(tmp_path / "cgroup", 40 * MIB, 10 * MIB)
    assert limits(tmp_path, "0::/kubepods/pod7\n")[0].free_bytes == 30 * MIB


def test_no_limit_leaves_what_the_machine_has(tmp_path):
    group(tmp_path / "cgroup" / "memory", 9223372036854771712, 10, version=1)
    group(tmp_path / "cgroup" / "unified", "max", 10)
    found = limits(tmp_path, "4:memory:/\n0::/\n")
    assert "machine" in found[0].name
    assert all("control group" not in limit.name for limit in found)


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path):
    group(tmp_path / "cgroup", 10 * MIB, 20 * MIB)
    assert limits(tmp_path, "0::/\n")[0].free_bytes == 0


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
@pytest.mark.parametrize(("flag", "kib"), [("v", 3_000_000), ("d", 1_000_000)])
def test_ulimit_binds_less_what_the_process_has(flag, kib):
    script = f'ulimit -{flag} {kib} && exec "$0" -c "$1"'
    shown = subprocess.run(["sh", "-c", script, sys.executable, FREE], capture_output=True, text=True, check=True)
    name, free = shown.stdout.strip().split("|")
    assert name == f"ulimit -{flag} {kib}"
    assert 0 < int(free) < kib * 1024
