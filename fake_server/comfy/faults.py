"""The scripted faults that happen inside a running node.

Source of the out-of-memory text: [rec: error_torch_OutOfMemoryError] of ComfyUI 0.27.
"""

import asyncio
from typing import NoReturn

from fake_server.comfy.behaviours import Acts, Behaviour
from fake_server.comfy.execute import Call, NodeRaised
from fake_server.comfy.stage import Stage

_WAIT_S = 0.05
_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which "
    "1.20 GiB is free."
)


async def strike(acts: Acts, call: Call, stage: Stage) -> None:
    """Do what the script says to the node it has chosen.

    Raises:
        NodeRaised: on `error` and `oom`.
        Interrupted: on `hang`, once someone interrupts.
    """
    sockets = stage.sockets
    if Behaviour.DROP in acts:
        sockets.cut(sockets.client_id)
    if Behaviour.FORGET_CLIENT in acts:
        sockets.forget(sockets.client_id)
    if Behaviour.EXIT_NODE in acts:
        await die(stage)
    if Behaviour.RESTART in acts:
        await stage.restart(acts.number(Behaviour.RESTART, 0.0))
    if Behaviour.WORKER_STUCK in acts:
        await silence()
    if Behaviour.ERROR in acts:
        raise NodeRaised("RuntimeError", "scripted error of the fake server")
    if Behaviour.OOM in acts:
        raise NodeRaised("torch.OutOfMemoryError", _OUT_OF_MEMORY)
    while Behaviour.HANG in acts:
        await call.reporter.wait(_WAIT_S)


async def die(stage: Stage) -> NoReturn:
    """End the process; where there is none to end, at least everything that it did."""
    await stage.sockets.flush()
    await stage.exit()
    await silence()


async def silence() -> NoReturn:
    """Do nothing more, for ever."""
    while True:
        await asyncio.Event().wait()
