"""Cancel, proven: repeated until the server has the prompt in neither queue nor execution."""

import logging

from comfyfarm.clock import Clock
from comfyfarm.comfy.client import ComfyClient
from comfyfarm.errors import ServerError
from comfyfarm.ids import JobId

logger = logging.getLogger(__name__)

_REPEAT_S = 0.25  # two in 300 cancels are swallowed by ComfyUI's own reset at the start of a prompt


async def cancel_prompt(client: ComfyClient, prompt_id: JobId, *, clock: Clock, deadline_s: float) -> bool:
    """Whether the server let go of the prompt in time. Unreachable counts as not let go."""
    end = clock.monotonic() + deadline_s
    while clock.monotonic() < end:
        try:
            if not (await client.prompt_state(prompt_id)).phase.is_live:
                return True
            await client.cancel(prompt_id)
        except ServerError as exc:
            logger.debug("cancel of %s: %s", prompt_id, exc)
        await clock.sleep(_REPEAT_S)
    logger.warning("%s will not let go of prompt %s", client.shown_url, prompt_id)
    return False
