"""The fake ComfyUI: everything put together, with what tests ask it and tell it."""

import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiohttp import web

from fake_server.comfy import script
from fake_server.comfy.answers import mishaps, origins
from fake_server.comfy.behaviours import AT_ONCE
from fake_server.comfy.cache import CachePolicy, ResultCache
from fake_server.comfy.conditions import Conditions
from fake_server.comfy.extra_nodes import ExtraNodes
from fake_server.comfy.folders import ModelFolders
from fake_server.comfy.journal import Journal
from fake_server.comfy.life import Life, lifetime
from fake_server.comfy.places import Places
from fake_server.comfy.prompts import Prompts
from fake_server.comfy.routes_fake import FakeRoutes
from fake_server.comfy.routes_files import FileRoutes
from fake_server.comfy.routes_lists import ListRoutes
from fake_server.comfy.routes_prompt import PromptRoutes
from fake_server.comfy.schema import NodeClasses
from fake_server.comfy.script import Script
from fake_server.comfy.shown_files import ShownFiles
from fake_server.comfy.sockets import Sockets
from fake_server.comfy.spoiling import BadAnswers
from fake_server.comfy.stage import Stage
from fake_server.comfy.validate import Validator
from fake_server.comfy.worker import Worker

_MAX_BODY_BYTES = 104857600
_HISTORY_LAG_S = 0.002
_PAGE = "<!doctype html><html><head><title>ComfyUI</title></head><body>A fake ComfyUI server.</body></html>"


class FakeComfy:
    """One life of a fake ComfyUI server. Serve `app` once; a restart is a new object.

    Args:
        models_dir: what the loaders offer; default an empty folder.
        extra_model_paths: an `extra_model_paths.yaml`.
        input_dir: default in the server's own temporary folder, as the next two.
        output_dir: where files are saved.
        temp_dir: where previews are saved.
        prompt_seconds: how long a prompt takes; spread over its samplers, else over its nodes.
        busy: how many prompts of other people are in the queue at the start.
        script: what is to go wrong; see `fake_server.comfy.script`.
        journal: a file for the log; an earlier life's entries are read from it.
        device: the name that /system_stats gives the GPU; `cpu` for none.
        history_lag_s: the time between the last message and the history entry.
        first_number: the number of the first prompt, as if others had run before.
        extra_nodes: classes beyond the shipped schema.
        cache: which results a new prompt finds.
    """

    def __init__(
        self,
        *,
        models_dir: Path | None = None,
        extra_model_paths: Path | None = None,
        input_dir: Path | None = None,
        output_dir: Path | None = None,
        temp_dir: Path | None = None,
        prompt_seconds: float = 0.0,
        busy: int = 0,
        script: script.Spec = "",
        journal: Path | None = None,
        device: str = "cpu",
        history_lag_s: float = _HISTORY_LAG_S,
        first_number: int = 0,
        extra_nodes: ExtraNodes | None = None,
        cache: CachePolicy = CachePolicy.CLASSIC,
        argv: list[str] | None = None,
    ) -> None:
        own = Path(tempfile.mkdtemp(prefix="fake-comfy-"))
        self.clean_up = weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
        self.places = Places(
            input_dir=_made(input_dir or own / "input"),
            output_dir=_made(output_dir or own / "output"),
            temp_dir=_made(temp_dir or own / "temp"),
        )
        self.models_dir = _made(models_dir or own / "models")
        extra = extra_nodes or ExtraNodes(classes={})
        folders = ModelFolders(self.models_dir, extra_model_paths)
        classes = NodeClasses(folders, self.places, extra=extra.classes)
        self._journal = Journal(journal)
        self._prompts = Prompts()
        self._conditions = Conditions()
        self._bad_answers = BadAnswers(self._conditions)
        self._sockets = Sockets(self._prompts.remaining, self._conditions)
        self._prompts.on_change = self._sockets.send_status
        self._shown_files = ShownFiles(self.places)
        self._stage = Stage(
            classes=classes,
            places=self.places,
            sockets=self._sockets,
            behaviours=extra.behaviours,
            asynchronous=extra.asynchronous,
            is_changed=extra.is_changed,
            conditions=self._conditions,
            shown_files=self._shown_files,
            cache=ResultCache(cache),
        )
        self._worker = Worker(
            self._prompts,
            self._stage,
            journal=self._journal,
            prompt_seconds=prompt_seconds,
            history_lag_s=history_lag_s,
        )
        self._prompt_routes = PromptRoutes(
            prompts=self._prompts,
            worker=self._worker,
            stage=self._stage,
            validator=Validator(classes, self.places, custom=extra.checks),
            journal=self._journal,
        )
        self._lists = ListRoutes(classes=classes, folders=folders, device=device, argv=argv or ["main.py"])
        self._busy = busy
        self._prompts.number = first_number
        self.script(script)
        self.app = self._application()

    def on_fatal(self, act: Callable[[], None]) -> None:
        """Say what ends the true process; default: the port closes, and what ran is dropped."""
        self._life.on_exit = act

    @property
    def log(self) -> list[dict[str, Any]]:
        """One object for each accepted prompt, as GET /fake/log gives them."""
        return self._journal.entries()

    @property
    def output_dir(self) -> Path:
        """Where files are saved."""
        return self.places.output_dir

    @property
    def input_dir(self) -> Path:
        """Where uploads go, and where loaders look."""
        return self.places.input_dir

    def script(self, spec: script.Spec) -> None:
        """Replace the script by a new one; prompts that are queued keep what they were given.

        What its `now` holds is switched on; what is done once, such as `exit`, takes POST /fake/script.

        Raises:
            BadScript: it names an unknown behaviour.
        """
        wish = script.read_wish(spec)
        for acts in wish.now:
            if (word := acts.any_of(AT_ONCE)) is not None:
                raise script.BadScript(f"{word!r} is done at once: send it to POST /fake/script")
            self._conditions.switch_on(acts)
        if wish.replaces or not wish.now:
            self._prompt_routes.script = script.Script(spec)

    def _application(self) -> web.Application:
        middlewares = (mishaps, origins, self._bad_answers.middleware())
        app = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY_BYTES)
        self._life = Life(
            app, prompts=self._prompts, stage=self._stage, worker=self._worker, conditions=self._conditions
        )
        own = FakeRoutes(
            life=self._life,
            prompts=self._prompts,
            sockets=self._sockets,
            conditions=self._conditions,
            log=self._journal.entries,
            set_script=self._set_script,
        )
        routes = [
            *self._prompt_routes.routes(),
            *FileRoutes(self.places, self._shown_files, self._conditions).routes(),
            *self._lists.routes(),
            web.get("/ws", self._sockets.handle),
            web.get("/", _front_page),
        ]
        app.add_routes(routes)
        app.add_routes([_prefixed(route) for route in routes])
        app.add_routes([*own.routes(), web.get("/internal/logs", self._stage.log.show)])
        app.router.add_get("/{tail:.*}", _not_found)
        app.cleanup_ctx.append(lifetime(self._life, self._put_other_peoples))
        app.on_shutdown.append(self._shut_down)
        app.on_cleanup.append(self._close_journal)
        return app

    def _set_script(self, new: Script) -> None:
        self._prompt_routes.script = new

    async def _put_other_peoples(self) -> None:
        for _ in range(self._busy):
            await self._prompts.put(_other_peoples(self._prompts.number))
            self._prompts.number += 1

    async def _shut_down(self, _app: web.Application) -> None:
        self._bad_answers.release()
        await self._sockets.close()

    async def _close_journal(self, _app: web.Application) -> None:
        self._journal.close()


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _prefixed(route: web.RouteDef) -> web.RouteDef:
    return web.RouteDef(route.method, f"/api{route.path}", route.handler, {})


async def _front_page(_request: web.Request) -> web.Response:
    return web.Response(body=_PAGE.encode(), headers={"Content-Type": "text/html"})


async def _not_found(_request: web.Request) -> web.Response:
    return web.Response(status=404, content_type="application/octet-stream")


def _other_peoples(number: int) -> tuple[int, str, dict[str, Any], dict[str, Any], list[str]]:
    inputs = {"width": 16, "height": 16, "batch_size": 1, "color": number}
    graph = {
        "1": {"class_type": "EmptyImage", "inputs": inputs},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    extra = {"client_id": uuid.uuid4().hex, "create_time": int(time.time() * 1000)}
    return number, str(uuid.uuid4()), graph, extra, ["2"]
