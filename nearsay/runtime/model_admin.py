"""The models of a service on its admin port: which are served, which are not and why; and to look at the disk again.

GET /models, POST /models/reload. A reload answers 200 when all is as it should be, 422 when a model could not be taken
(what served its pair before goes on), 409 while another one runs, 503 before the service is ready, 403 to a web page.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec
from aiohttp import web

from nearsay.runtime.lifecycle import Lifecycle
from nearsay.runtime.tasks import Tasks
from nearsay.wire.messages import ServedTier

Standing = Literal["serving", "draining", "left_out"]
ModelProblem = Literal[
    "",
    "memory",  # it does not fit into what is left of the memory that models may take
    "damaged",  # its files are missing, other than their digests, or no model
    "not_finite",  # its weights or first logits are no numbers
    "vocabulary",  # edges that are connected can't read the ids of its new vocabulary
    "version_reused",  # other files than those that are served, under the same version
    "draining",  # it was replaced a moment ago, and its last work has not ended
    "limits",  # its largest request exceeds a limit of the config
    "unavailable",  # its engine is not installed, or can't run here
    "broken",  # anything else that went wrong while it was loaded
    "gone",  # it is served, but its files are no longer found
]


class ModelState(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model. `problem` and `detail`: what is wrong with it, for programs and for people."""

    name: str
    pair: str
    tier: ServedTier
    standing: Standing
    bytes: int = 0
    problem: ModelProblem = ""
    detail: str = ""


class ModelsReport(msgspec.Struct, frozen=True):
    """`swapped`: (old, new) names of the last reload, "" where there was none before. `notes`: what was found beside
    models."""

    service: str
    models: tuple[ModelState, ...]
    swapped: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Nothing is wrong with any model."""
        return not any(model.problem for model in self.models)


def standings(report: ModelsReport) -> dict[str, object]:
    """What /readyz and /stats say of models: names of those served, and what is wrong with those that are not."""
    return {
        "models": [model.name for model in report.models if model.standing == "serving"],
        "models_left_out": {model.name: model.problem for model in report.models if model.standing == "left_out"},
    }


class ModelKeeper(Protocol):
    """Whoever holds a service's models."""

    def report(self) -> ModelsReport:
        """How things stand."""

    async def reload(self) -> ModelsReport:
        """Look at the disk again; what is new there takes the place of what is served. Called one at a time."""


def model_routes(keeper: ModelKeeper, lifecycle: Lifecycle, tasks: Tasks) -> list[web.RouteDef]:
    """Routes of the admin port. `keeper` is asked for nothing before the service is ready."""
    running: list[asyncio.Task[ModelsReport]] = []

    async def models(_: web.Request) -> web.Response:
        if lifecycle.state == "starting":
            return _answer({"code": lifecycle.state}, 503)
        return _answer(keeper.report(), 200)

    async def reload(request: web.Request) -> web.Response:
        if "Origin" in request.headers:  # a page in a browser of this machine can send this, and has no business here
            return _answer({"code": "forbidden"}, 403)
        if lifecycle.state != "ready":
            return _answer({"code": lifecycle.state}, 503)
        if running and not running[0].done():
            return _answer({"code": "reload_running"}, 409)
        running[:] = [tasks.spawn(keeper.reload(), name="reload models")]
        report = await asyncio.shield(running[0])  # goes on when whoever asked leaves
        return _answer(report, 200 if report.good else 422)

    return [web.get("/models", models), web.post("/models/reload", reload)]


def _answer(content: object, status: int) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status, content_type="application/json")
