"""The core's logs in Prefect's dashboard, with the ids of the run and task that they belong to."""

import logging

from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging.handlers import APILogHandler


def forward_core_logs() -> None:
    """Send what `comfyfarm` logs inside a run to the Prefect API. Once, however often it is called.

    Not by PREFECT_LOGGING_EXTRA_LOGGERS: that works only when it was set before Prefect was imported.
    """
    core = logging.getLogger("comfyfarm")
    core.setLevel(min(core.level or logging.INFO, logging.INFO))
    if not any(isinstance(handler, APILogHandler) for handler in core.handlers):
        handler = APILogHandler()
        handler.addFilter(_is_in_run)
        core.addHandler(handler)


def _is_in_run(_record: logging.LogRecord) -> bool:
    """The process may go on without the flow: the API takes only what belongs to a run."""
    return FlowRunContext.get() is not None or TaskRunContext.get() is not None
