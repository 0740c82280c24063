"""`specgen worker`: lend this machine's devices to a specgen on another one, through llama.cpp's RPC server."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from typing import Annotated

import typer

from specgen.errors import BackendError, ConfigError

_LOOPBACK = "127."
_START_S = 10.0


def worker(
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than the loopback can be reached by anyone near.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 50052,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME[,NAME]", show_default="all GPUs, else CPU", help="Devices to lend."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", "-t", min=1, show_default="physical cores", help="CPU threads.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on stderr but errors and warnings.")] = False,
) -> int:
    """Lend this machine's devices to specgen on another machine, until Ctrl-C.

    Use them there with --rpc HOST:PORT. One program at a time is served. The connection is neither encrypted nor
    authenticated: listen on the loopback (through an SSH tunnel, for example) or in a network that you trust.
    """
    from specgen.cli._options import physical_cores
    from specgen.cli._output import Output, silence_stdout
    from specgen.llama import devices

    output = Output(is_quiet=quiet)
    names = [word.strip() for word in device.split(",")] if device else []
    local = [found for found in devices.gpus() if not found.is_remote]
    chosen = devices.find(names, "--device") if names else tuple(local) or devices.find(["CPU"], "--device")
    address = _free_address(host, port)
    if not address.startswith(_LOOPBACK):
        output.note(f"{host} can be reached from outside, and whoever reaches it can use and crash this worker")
    ended = threading.Event()
    signals = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    silence_stdout()  # llama.cpp prints about connections

    def serve() -> None:
        devices.serve(f"{address}:{port}", [found.name for found in chosen], threads or physical_cores())
        ended.set()

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    lent = ", ".join(f"{found.name} ({found.free_bytes / 2**30:,.1f} GiB free)" for found in chosen)
    if _answers(address, port, ended):
        output.line(f"worker on {host}:{port} lends {lent}; use it with --rpc {host}:{port}, end it with Ctrl-C")
    ended.wait()
    for number, handler in signals.items():
        signal.signal(number, handler)
    if not server.is_alive():
        raise BackendError(f"llama.cpp cannot serve {host}:{port}", "see its message above; try another --port")
    output.line("worker ended")
    # llama.cpp's server has no end: its thread waits for a connection, and a normal exit would wait for it.
    os._exit(0)


def _free_address(host: str, port: int) -> str:
    """The host as llama.cpp takes it, an IPv4 address, on which the port is free.

    Raises:
        ConfigError: no such address here, or the port is taken.
    """
    try:
        address = socket.gethostbyname(host)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason[:1].lower()}{reason[1:]}",
            "try another --port, or 127.0.0.1 or 0.0.0.0 as --host",
        ) from None
    return address


def _answers(address: str, port: int, ended: threading.Event) -> bool:
    """Wait until the server takes connections; False if it ended or never does."""
    if address == "0.0.0.0":
        address = "127.0.0.1"
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and not ended.wait(0.02):
        try:
            socket.create_connection((address, port), 1).close()
        except OSError:
            continue
        return True
    return False
