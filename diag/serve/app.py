"""The web side: one door in (the webhook), everything else only reads."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from diag.errors import DiagError
from diag.serve import pages
from diag.serve.exposition import exposition
from diag.serve.settings import Settings
from diag.serve.store import Incident, Store
from diag.serve.webhook import parsed
from diag.serve.worker import Counted

__all__ = ["application"]

_OPEN = frozenset({"/-/healthy", "/-/ready"})
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_LISTED, _MOST_LISTED = 200, 1000
_TOO_LARGE, _BUSY, _WRONG, _STRANGER = 413, 503, 400, 401
_Runbook = Callable[[str], str | None]


def application(
    store: Store,
    settings: Settings,
    counted: Counted,
    *,
    runbook: _Runbook,
    clock: Callable[[], float] = time.time,
) -> Starlette:
    """``runbook``: id -> Markdown, None where there is none."""
    served = _Served(store, settings, counted, runbook, clock)
    routes = [
        Route("/webhook", served.webhook, methods=["POST"]),
        Route("/api/v1/alerts/webhook", served.webhook, methods=["POST"]),
        Route("/", served.front),
        Route("/triage", served.triage),
        Route("/incidents/{id:int}", served.incident),
        Route("/incidents/{id:int}.json", served.verdict),
        Route("/api/verdicts", served.verdicts),
        Route("/api/verdicts/{id:int}", served.verdict),
        Route("/runbooks/{id}", served.runbook),
        Route("/metrics", served.metrics),
        Route("/-/healthy", served.healthy),
        Route("/-/ready", served.healthy),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(_Guard, settings=settings)
    return app


class _Guard:
    """Asks for the token, refuses bodies that are too large before they are read, adds safe headers."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        refused = self._refused(request)
        if refused is not None:
            await refused(scope, receive, send)
            return

        async def headed(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.lower().encode(), v.encode()) for k, v in _HEADERS.items()]
            await send(message)

        await self._app(scope, receive, headed)

    def _refused(self, request: Request) -> Response | None:
        if self._settings.token and request.url.path not in _OPEN and not self._known(request):
            return PlainTextResponse(
                "token needed\n", _STRANGER, headers={"WWW-Authenticate": 'Bearer, Basic realm="diag"'}
            )
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._settings.most_bytes:
            return PlainTextResponse(f"at most {self._settings.most_bytes} bytes\n", _TOO_LARGE)
        return None

    def _known(self, request: Request) -> bool:
        """A bearer token, or the password of basic authentication, which browsers can ask for."""
        import base64
        import binascii

        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode("utf-8").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(), self._settings.token.encode())


class _Served:
    """The handlers. Storage is asked and verdicts are read in threads, so that neither a slow disk nor a
    long list stops another caller."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        counted: Counted,
        runbook: _Runbook,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._settings, self._counted = store, settings, counted
        self._runbook, self._clock = runbook, clock

    async def webhook(self, request: Request) -> Response:
        """Keep the alerts, answer at once. 503 asks Alertmanager to come again, 400 to give up."""
        body = await _read(request, self._settings.most_bytes)
        if body is None:
            return PlainTextResponse(f"at most {self._settings.most_bytes} bytes\n", _TOO_LARGE)
        try:
            alerts = parsed(body)
        except DiagError as error:
            return PlainTextResponse(f"{error}\n", _WRONG)
        if (
            any(one.firing for one in alerts)
            and await self._off(self._store.waiting) >= self._settings.most_waiting
        ):
            return PlainTextResponse("too many questions wait; send again\n", _BUSY)
        new = await self._off(lambda: self._store.receive(alerts, self._clock()))
        return _json({"accepted": len(alerts), "new": new})

    async def front(self, _: Request) -> Response:
        incidents = await self._off(self._store.incidents)
        waiting = await self._off(self._store.waiting)
        total = await self._off(self._store.alerts)
        page = await self._off(lambda: pages.front(incidents, waiting, total, self._settings.refresh_seconds))
        return HTMLResponse(page)

    async def incident(self, request: Request) -> Response:
        found = await self._off(lambda: self._store.incident(request.path_params["id"]))
        if found is None:
            return PlainTextResponse("no such incident\n", 404)
        page = await self._off(lambda: pages.incident(found, self._settings.refresh_seconds))
        return HTMLResponse(page)

    async def triage(self, request: Request) -> Response:
        """Where an alert's link leads: the newest incident whose labels agree."""
        wanted = {k: v for k, v in request.query_params.items() if v}
        found = await self._off(lambda: self._store.newest(wanted))
        if found is None:
            return HTMLResponse(pages.unknown_alert(wanted), 404)
        return RedirectResponse(f"/incidents/{found}", 302)

    async def verdicts(self, request: Request) -> Response:
        """The newest alerts first; ``?limit=``: how many."""
        asked = request.query_params.get("limit", "")
        limit = min(int(asked), _MOST_LISTED) if asked.isdecimal() and len(asked) < 10 else _LISTED
        incidents = await self._off(lambda: self._store.incidents(limit))
        return _json(await self._off(lambda: [_told(one) for one in incidents]))

    async def verdict(self, request: Request) -> Response:
        found = await self._off(lambda: self._store.incident(request.path_params["id"]))
        if found is None or found.question.verdict is None:
            return PlainTextResponse("no verdict (yet)\n", 404)
        return Response(found.question.verdict, media_type="application/json")

    async def runbook(self, request: Request) -> Response:
        text = await self._off(lambda: self._runbook(request.path_params["id"]))
        if text is None:
            return PlainTextResponse("no such runbook\n", 404)
        return HTMLResponse(pages.runbook(request.path_params["id"], text))

    async def metrics(self, _: Request) -> Response:
        incidents = await self._off(self._store.incidents)
        waiting = await self._off(self._store.waiting)
        firing = await self._off(lambda: self._store.alerts(firing=True))
        body = await self._off(lambda: exposition(incidents, waiting, firing, self._counted))
        return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def healthy(self, _: Request) -> Response:
        await self._off(self._store.waiting)
        return PlainTextResponse("ok\n")

    async def _off(self, call: Callable[[], Any]) -> Any:
        return await run_in_threadpool(call)


async def _read(request: Request, most: int) -> bytes | None:
    """The body; None as soon as it grows beyond ``most`` bytes, whatever its head announced."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            return None
    return bytes(body)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _told(one: Incident) -> dict[str, Any]:
    verdict = pages.verdict_of(one)
    lead = next((a for a in verdict.assessments if a.id == verdict.leading), None) if verdict else None
    return {
        "id": one.id,
        "fingerprint": one.alert.fingerprint,
        "starts_at": one.alert.starts_at,
        "ends_at": one.alert.ends_at,
        "labels": dict(one.alert.labels),
        "state": one.question.state,
        "error": one.question.error,
        "leading": verdict.leading if verdict else None,
        "confidence": lead.confidence if lead else None,
        "summary": verdict.summary if verdict else None,
    }
