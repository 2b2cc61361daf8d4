"""The scripted faults that happen inside a running node.

Source of the out-of-memory text: [rec: error_torch_OutOfMemoryError] of ComfyUI 0.27.
"""

from collections.abc import Callable

from fake_server.comfy.execute import Call, NodeRaised
from fake_server.comfy.script import Behaviour

UNCACHED = frozenset({Behaviour.ERROR, Behaviour.OOM, Behaviour.HANG, Behaviour.DROP, Behaviour.SLOW})
"""Behaviours that need a node to run; they drop the cache first."""

_WAIT_S = 0.05
_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
    "1.20 GiB is free."
)
_TIPS = (
    "This error means you ran out of memory on your GPU.\n\nTIPS: If the workflow worked before you might "
    "have accidentally set the batch_size to a large number."
)
_MEMORY_TYPES = frozenset({"torch.OutOfMemoryError", "torch.AcceleratorError"})


async def strike(behaviour: Behaviour, call: Call, cut: Callable[[], None]) -> None:
    """Do what the script says to the node it has chosen; `cut` resets the submitter's socket.

    Raises:
        NodeRaised: on `error` and `oom`.
        Interrupted: on `hang`, once someone interrupts.
    """
    if behaviour is Behaviour.ERROR:
        raise NodeRaised("RuntimeError", "scripted error of the fake server")
    if behaviour is Behaviour.OOM:
        raise NodeRaised("torch.OutOfMemoryError", _OUT_OF_MEMORY)
    if behaviour is Behaviour.DROP:
        cut()
    while behaviour is Behaviour.HANG:
        await call.reporter.wait(_WAIT_S)


def tips(exc: NodeRaised) -> str:
    """What the real server adds to an out-of-memory message; empty for all others, whatever they say."""
    return _TIPS if exc.kind in _MEMORY_TYPES and "out of memory" in exc.message else ""
