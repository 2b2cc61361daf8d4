"""`make ui`: drives the real form and dashboard in a headless Chromium; screenshots go to `.screenshots/`.

A control server, two fake ComfyUI servers that run out of memory once, a worker: started from the form,
the run must show its tasks, retries, logs and artifacts. Exits 2 where no Chromium is installed.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from prefect.settings import PREFECT_API_URL, temporary_settings
from pydantic import SecretStr

from comfyfarm.control.launch import use_control
from comfyfarm.control.state import ControlStatus
from deployments.deploy import deploy
from deployments.wanted import Wanted
from infra.chromium import NAMES, Page, UiError, find_chromium, open_page
from infra.comfy_servers import fake_comfy

ROOT = Path(__file__).resolve().parent.parent
SHOTS = ROOT / ".screenshots"
WORKFLOW = ROOT / "infra" / "demo_data" / "model_free.json"
HOST = "ui-check"
OVERRIDES = '{"1.color": 255}'
_RUN_S = 180.0


def main() -> int:
    """0 when all was there to be seen, 1 when something was not, 2 without a browser."""
    program = find_chromium()
    if program is None:
        print(f"ui_check: no Chromium is installed (looked for {', '.join(NAMES)})", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="comfyfarm-ui-", ignore_cleanup_errors=True) as made:
        work = Path(made)
        work.chmod(0o711)  # PostgreSQL may run as another user, and must get through
        with ExitStack() as stack:
            control = stack.enter_context(use_control(work / "state", on_line=print))
            _set_up(stack, control, work)
            page = stack.enter_context(open_page(program))
            try:
                Walk(page, str(control.ui_url)).all()
            except UiError as exc:
                page.screenshot(SHOTS / "failed.png")
                print(f"ui_check: {exc}; see {SHOTS / 'failed.png'}", file=sys.stderr)
                return 1
    print(f"Look at {SHOTS}: {len(list(SHOTS.glob('*.png')))} screenshots.")
    return 0


def _set_up(stack: ExitStack, control: ControlStatus, work: Path) -> None:
    """Servers, deployments and a worker."""
    for old in SHOTS.glob("*.png"):
        old.unlink()
    servers = [stack.enter_context(fake_comfy(script="oom,ok", prompt_seconds=0.5, log=work / "fakes.log"))
               for _ in range(2)]  # fmt: skip
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")},
        "PREFECT_API_URL": str(control.api_url),
        "PREFECT_HOME": str(work / "prefect"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "COMFYFARM_STATE_DIR": str(work / "state"),
    }
    wanted = Wanted(
        host=HOST,
        pool=HOST,
        servers=tuple(server.url for server in servers),
        ledger=SecretStr(control.ledger_url),
        out=str(work / "outputs"),
        state_dir=work / "state",
    )
    with temporary_settings({PREFECT_API_URL: str(control.api_url)}):
        print("\n".join(asyncio.run(deploy(wanted, look=False))))
    stack.enter_context(worker(HOST, environ=environ, log=work / "worker.log"))


@contextmanager
def worker(pool: str, *, environ: dict[str, str], log: Path) -> Iterator[None]:
    """A worker as a user starts it."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--name", "ui-check"]
    with log.open("wb") as words:
        process = subprocess.Popen(command, cwd=log.parent, env=environ, stdout=words, stderr=words)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


class Walk:
    """What a user does and must see, page by page."""

    def __init__(self, page: Page, ui_url: str) -> None:
        self._page = page
        self._ui = f"{ui_url}/v2"
        self._count = 0

    def all(self) -> None:
        """The whole walk.

        Raises:
            UiError: something was not there.
        """
        self._start_from_form()
        self._look_at_run()
        self._look_at_shard()
        self._look_at_artifacts()
        self._look_at_set_up()
        if self._page.errors:
            raise UiError(f"the page's own code failed: {self._page.errors[0]}")

    def _start_from_form(self) -> None:
        """Fill the form in, see a mistake refused, mend it, submit."""
        page = self._page
        page.go(f"{self._ui}/deployments")
        page.click_until("a", "render", "location.pathname.includes('/deployment/')")
        page.click("button", "Run")
        page.click("[role=menuitem]", "Custom run")
        page.wait("!!document.querySelector('.cm-content')", "the form")
        self._fields_are_plain()
        page.click("textarea")
        page.type(str(WORKFLOW))
        self._replace_overrides("[1]")
        page.click("button", "Submit")
        page.wait_text("is not of type", timeout_s=20)
        self._shot("form-refused")
        self._replace_overrides(OVERRIDES)
        self._shot("form")
        page.click_until("button", "Submit", "!location.pathname.endsWith('/run')")

    def _fields_are_plain(self) -> None:
        """No parameter hides behind a tab `None`."""
        tabs = self._page.js("[...document.querySelectorAll('[role=tab]')].map(tab => tab.innerText)")
        if "None" in tabs or tabs.count("Address") != 2:
            raise UiError(f"the form has the tabs {tabs}")

    def _replace_overrides(self, text: str) -> None:
        page = self._page
        page.click(".cm-content")
        page.select_all()
        page.type(text)

    def _look_at_run(self) -> None:
        page = self._page
        page.go(f"{self._ui}/deployments")
        page.click_until("a", "render", "location.pathname.includes('/deployment/')")
        # The only one: the server is new.
        page.click_until("a[href*='/runs/flow-run/']", "", "location.pathname.includes('/flow-run/')")
        page.wait_text("Completed", timeout_s=_RUN_S)
        page.wait_text("Completed", timeout_s=60)
        self._shot("run-logs")
        for tab, text in (
            ("Task Runs", "preflight"),
            ("Artifacts", "contact-sheet"),
            ("Parameters", "1.color"),
        ):
            page.click("[role=tab]", tab)
            page.wait_text(text)
            self._shot(f"run-{tab.lower().replace(' ', '-')}")

    def _look_at_shard(self) -> None:
        """Its tasks, the retry among them, and the core's logs."""
        page = self._page
        page.click("[role=tab]", "Subflow Runs")
        page.click_until("a", "model_free-", "document.body.innerText.includes('render-shard')", prefix=True)
        page.wait_text("succeeded")
        page.wait_text("tried again: ")
        self._shot("shard-logs")
        page.click("[role=tab]", "Task Runs")
        for task in ("lane-", "render-", "sync-"):
            page.wait_text(task)
        self._shot("shard-task-runs")
        task = "a[href*='/task-run/']"
        page.click_until(task, "render-", "document.body.innerText.includes('Run Count')", prefix=True)
        found = re.search(r"Run Count\s+(\d+)", page.text())
        if found is None or int(found[1]) < 2:
            raise UiError(f"the render task shows no retry: {found and found[1]}")
        self._shot("render-task")

    def _look_at_artifacts(self) -> None:
        page = self._page
        for kind, seen in (("contact-sheet", "img[src^='data:image']"), ("results", "table")):
            page.go(f"{self._ui}/artifacts")
            card = f"a[href*='/artifacts/key/{kind}'] h3"
            page.click_until(card, "", "document.body.innerText.includes('Flow run:')")
            link = "[...document.querySelectorAll('a')].find(a => /artifacts.artifact/.test(a.href))?.href"
            page.go(str(page.wait(link, f"the link to the {kind}")))
            page.wait(f'!!document.querySelector("{seen}")', f"the {kind}")
            self._shot(kind)

    def _look_at_set_up(self) -> None:
        page = self._page
        places = {
            "/automations": "start a crashed run again",
            "/blocks": "Comfy Host",
            "/concurrency-limits?tab=task-run": f"gpu:{HOST}",
            f"/work-pools/work-pool/{HOST}?tab=Work+Queues": "high",
        }
        for path, text in places.items():
            page.go(self._ui + path)
            page.wait_text(text)
            self._shot(re.sub(r"[^a-z]+", "-", path.partition("?")[0]).strip("-"))

    def _shot(self, name: str) -> None:
        self._count += 1
        self._page.settle()
        self._page.screenshot(SHOTS / f"{self._count:02}-{name}.png")
        print(f"  saw {name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
