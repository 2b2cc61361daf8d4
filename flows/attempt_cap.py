"""A run that takes its process down each time must not start for ever."""

from prefect.runtime import flow_run

from comfyfarm.errors import UsageError

STARTS = 3


def refuse_endless_restart(run_count: int | None = None, *, cap: int = STARTS) -> None:
    """Fail a run that has been started more than `cap` times: the restart automation has no limit.

    Args:
        run_count: starts of this run, this one included; default: what Prefect says of it.
        cap: the most.

    Raises:
        UsageError: too often. The run ends Failed, which nothing starts again.
    """
    count = run_count if run_count is not None else int(flow_run.run_count or 0)
    if count > cap:
        raise UsageError(
            f"this run has been started {count} times, and its process died each time: "
            "see its logs, then start a new run (finished jobs are not repeated)"
        )
