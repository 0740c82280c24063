"""How the native library is set up, seen from a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SHOW = "import os; from specgen.llama import library; library.load(); print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
    ids=["nothing", "a count", "a policy"],
)
def test_threads_spin_for_microseconds_unless_the_user_says_otherwise(given, expected):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "OMP_"))}
    shown = subprocess.run([sys.executable, "-c", SHOW], env=env | given, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == expected
