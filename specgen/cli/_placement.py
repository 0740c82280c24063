"""Options that say where models go and how precise their caches are, declared and understood once for all commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from specgen.choices import ALL_LAYERS, Placement
from specgen.errors import BackendError, ConfigError, UsageError

PANEL = "Machine"
_CONNECT_S = 5.0
_ANSWER_S = 10.0

KvTypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        show_default="f32 for 32-bit weights on CPUs, else f16",
        help="Precision of the target's cache: f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl.",
        rich_help_panel=PANEL,
    ),
]
DraftKvTypeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TYPE",
        show_default="as above, for the draft",
        help="Precision of the draft's cache; below f16 fewer drafts are accepted.",
        rich_help_panel=PANEL,
    ),
]
GpuLayersOption = Annotated[
    str,
    typer.Option(metavar="auto|all|N", help="Target layers on GPUs; auto is as many as fit.", rich_help_panel=PANEL),
]
DraftGpuLayersOption = Annotated[
    str | None,
    typer.Option(
        metavar="all|N", show_default="as --gpu-layers 0, or all", help="Draft layers on GPUs.", rich_help_panel=PANEL
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME]",
        show_default="all GPUs",
        help="GPUs to use, or CPU; specgen doctor names them.",
        rich_help_panel=PANEL,
    ),
]
DraftDeviceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[,NAME]", show_default="as --device", help="GPUs for the draft, or CPU.", rich_help_panel=PANEL
    ),
]
TensorSplitOption = Annotated[
    str | None,
    typer.Option(
        metavar="N,N",
        show_default="by free memory",
        help="Parts of the target for each GPU, such as 3,1.",
        rich_help_panel=PANEL,
    ),
]
RpcOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT", help="Use the devices of a specgen worker there. Repeatable.", rich_help_panel=PANEL
    ),
]
FitOption = Annotated[
    bool,
    typer.Option("--fit", help="Move layers to the CPU, the draft's first, until it fits.", rich_help_panel=PANEL),
]


@dataclass(frozen=True, slots=True)
class PlacementOptions:
    """Where both models go.

    Attributes:
        target, draft: placements as asked for.
        kv_type, draft_kv_type: precisions of the caches; None for what does each model justice.
        draft_flags: options among them that need a draft.
        note: about options without effect here; empty where there are none.
        is_auto: fewer target layers than asked for go to GPUs where all do not fit.
        is_fitted: layers of both models are moved until they fit.
    """

    target: Placement
    draft: Placement
    kv_type: str | None = None
    draft_kv_type: str | None = None
    draft_flags: tuple[str, ...] = ()
    note: str = ""
    is_auto: bool = False
    is_fitted: bool = False


def placement_options(
    *,
    gpu_layers: str,
    draft_gpu_layers: str | None,
    device: str | None,
    draft_device: str | None,
    tensor_split: str | None,
    kv_type: str | None,
    draft_kv_type: str | None,
    fit: bool,
    rpc: Sequence[str],
) -> PlacementOptions:
    """What the options mean on this machine; connects to workers. One GPU switch moves both models unless the draft has
    its own.

    Raises:
        UsageError: a value that is none of those allowed.
        ConfigError: no such device, or options that contradict each other.
        BackendError: no worker at an address.
    """
    from specgen.llama import devices

    for address in rpc:
        connect(address)
    chosen = _devices(device, "--device")
    draft_chosen = _devices(draft_device, "--draft-device") if draft_device is not None else chosen
    n_layers = ALL_LAYERS if gpu_layers == "auto" else _layers(gpu_layers, "--gpu-layers", "auto, all")
    if draft_gpu_layers is not None:
        n_draft_layers = _layers(draft_gpu_layers, "--draft-gpu-layers", "all")
    else:
        n_draft_layers = 0 if n_layers == 0 and draft_device is None else ALL_LAYERS
    target = Placement(n_layers, chosen)
    draft = Placement(n_draft_layers, draft_chosen)
    for flag, placement, layers in (
        ("--device", target, gpu_layers if n_layers > 0 else ""),
        ("--draft-device", draft, draft_gpu_layers if n_draft_layers > 0 else ""),
    ):
        if placement.devices == ("CPU",) and layers:
            raise ConfigError(f"{flag} CPU and {layers} layers on GPUs contradict each other", "leave out one of them")
    gpus = devices.gpus()
    if tensor_split is not None:
        n_devices = len(target.devices or gpus)
        target = Placement(target.n_gpu_layers, target.devices, _parts(tensor_split, n_devices))
    return PlacementOptions(
        target=target,
        draft=draft,
        kv_type=_kv_type(kv_type, "--kv-type"),
        draft_kv_type=_kv_type(draft_kv_type, "--draft-kv-type"),
        draft_flags=tuple(
            flag
            for flag, value in (
                ("--draft-gpu-layers", draft_gpu_layers),
                ("--draft-device", draft_device),
                ("--draft-kv-type", draft_kv_type),
            )
            if value is not None
        ),
        note="no GPU here: --gpu-layers and --draft-gpu-layers have no effect"
        if not gpus and (n_layers > 0 or n_draft_layers > 0)
        else "",
        is_auto=gpu_layers == "auto",
        is_fitted=fit,
    )


def connect(address: str) -> None:
    """Use a worker's devices.

    Raises:
        UsageError: not host:port.
        BackendError: nothing listens there, or it is no worker of this version.
    """
    import socket
    import threading

    from specgen.llama.devices import add_worker

    host, port = host_and_port(address, "--rpc")
    start = f"start one there: specgen worker --host {host} --port {port}"
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise BackendError(f"no worker answers at {address}: {reason[:1].lower()}{reason[1:]}", start) from None
    # llama.cpp waits without end for what accepts connections and says nothing, so another thread waits for it.
    failures: list[BackendError] = []

    def add() -> None:
        try:
            add_worker(address)
        except BackendError as error:
            failures.append(error)

    thread = threading.Thread(target=add, daemon=True)
    thread.start()
    thread.join(_ANSWER_S)
    if thread.is_alive():
        raise BackendError(
            f"what listens at {address} does not answer: a worker that serves another program, or no worker", start
        )
    if failures:
        raise failures[0]


def host_and_port(address: str, flag: str) -> tuple[str, int]:
    """The two parts of an address.

    Raises:
        UsageError: it has none, or no such port.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"{flag}: {address!r} is not host:port", "for example 192.168.0.7:50052")
    return host, int(port)


def _devices(text: str | None, flag: str) -> tuple[str, ...]:
    """Names of GPUs, or of the CPU alone; none for all GPUs."""
    from specgen.llama import devices

    chosen = devices.find([word.strip() for word in text.split(",") if word.strip()] if text else [], flag)
    for device in chosen:
        if not device.is_gpu and (len(chosen) > 1 or device.name != "CPU"):
            raise ConfigError(f"{flag}: {device.name} takes no layers beside others", "name GPUs, or CPU alone")
    return tuple(device.name for device in chosen)


def _layers(text: str, flag: str, words: str) -> int:
    if text == "all":
        return ALL_LAYERS
    if not text.isdecimal() or int(text) >= 2**31:
        raise UsageError(f"{flag} does not know {text!r}", f"use {words} or a number of layers")
    return int(text)


def _parts(text: str, n_devices: int) -> tuple[float, ...]:
    try:
        parts = tuple(float(word) for word in text.split(","))
    except ValueError:
        parts = ()
    if not parts or not all(0 <= part < float("inf") for part in parts) or not sum(parts):
        raise UsageError(f"--tensor-split: {text!r} is no list of parts", "give one number per GPU, such as 3,1")
    if len(parts) != n_devices:
        raise ConfigError(
            f"--tensor-split has {len(parts)} parts for {n_devices} GPUs",
            "give one part per GPU; --device chooses them",
        )
    return parts


def _kv_type(text: str | None, flag: str) -> str | None:
    from specgen.llama.context import KV_TYPES

    if text is not None and text not in KV_TYPES:
        raise UsageError(f"{flag} does not know {text!r}", f"use one of {', '.join(KV_TYPES)}")
    return text
