"""Speak HTTP with stores and pages: credentials, retries, and one clear line for each failure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import sleep as real_sleep
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from diag.errors import (
    NotPrometheus,
    QueryTooExpensive,
    SourceRefused,
    SourceUnreachable,
    UsageError,
)

if TYPE_CHECKING:
    import requests

__all__ = ["Access", "Client", "Reply", "public_url"]

_RETRIES = 4
_LONGEST_WAIT_SECONDS = 15.0
_LONGEST_GET_CHARACTERS = 3000
_REDIRECTS = 3
_PARALLEL_CALLS = 8


@dataclass(frozen=True, slots=True, repr=False)
class Access:
    """How to get in. Never printed: ``repr`` is that of ``object``.

    ``headers`` go with every call (a tenant, say); ``basic`` is (user, password); certificate
    fields are paths of PEM files.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_token: str | None = None
    basic: tuple[str, str] | None = None
    client_cert: str | None = None
    client_key: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with its body read. ``status`` is below 300, or 400/422, which the caller judges."""

    status: int
    content: bytes
    content_type: str


def public_url(url: str) -> str:
    """``url`` without user, password, query and fragment: fit to be shown and stored."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise UsageError(f"the port in {parts.scheme}://{host} is not a number") from None
    return urlunsplit((parts.scheme, host + port, parts.path.rstrip("/"), "", ""))


class Client:
    """One server, spoken to politely: at most eight calls at once, bounded retries on 429 and 503.

    User and password in ``url`` become basic authentication. A redirect is followed on the same
    host only, since credentials must not travel to another.
    """

    def __init__(
        self, url: str, access: Access | None = None, *, sleep: Callable[[float], None] = real_sleep
    ) -> None:
        """Nothing is sent yet. ``UsageError`` if ``url`` is not http(s)."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{url.split('?')[0].rsplit('@', 1)[-1]!r} is not an http(s) address")
        self.url = public_url(url)
        self.query = parts.query
        self._access = access or Access()
        self._sleep = sleep
        self._basic = self._access.basic
        if parts.username is not None:
            self._basic = (unquote(parts.username), unquote(parts.password or ""))
        self._session: requests.Session | None = None

    def get(self, path: str = "", params: Mapping[str, str] | None = None) -> Reply:
        """Fetch ``url + path``. Long parameters go in a POST form, as the query API allows.

        Raises ``SourceUnreachable``, ``SourceRefused``, ``NotPrometheus`` or ``QueryTooExpensive``.
        """
        target = self.url + path
        if not path and self.query:
            target += "?" + self.query
        waits = iter(range(_RETRIES))
        while True:
            response = self._send(target, dict(params or {}))
            if response.status_code not in (429, 502, 503, 504):
                return self._judged(response)
            attempt = next(waits, None)
            if attempt is None:
                raise self._overloaded(response)
            self._sleep(_wait_seconds(response.headers.get("Retry-After"), attempt))

    def close(self) -> None:
        """Drop the connections."""
        if self._session is not None:
            self._session.close()

    def _send(self, target: str, params: dict[str, str]) -> requests.Response:
        import requests

        session = self._opened()
        timeout = (min(10.0, self._access.timeout_seconds), self._access.timeout_seconds)
        # Given with each call: a session's own would lose against REQUESTS_CA_BUNDLE.
        verify = self._access.ca_file or None
        long = sum(len(key) + len(value) for key, value in params.items()) > _LONGEST_GET_CHARACTERS
        try:
            for _ in range(_REDIRECTS):
                if long:
                    response = session.post(
                        target, data=params, timeout=timeout, allow_redirects=False, verify=verify
                    )
                else:
                    response = session.get(
                        target, params=params, timeout=timeout, allow_redirects=False, verify=verify
                    )
                if not response.is_redirect:
                    return response
                target, params = self._followed(target, response.headers.get("Location", "")), params
        except requests.exceptions.RequestException as error:
            raise self._unreachable(error) from None
        except (OSError, UnicodeError, ValueError) as error:
            raise SourceUnreachable(f"cannot ask {self.url}: {_plain(str(error))}") from None
        raise NotPrometheus(f"{self.url} redirects in circles", hint="give the address it should end at")

    def _followed(self, target: str, location: str) -> str:
        there = urljoin(target, location)
        if urlsplit(there).hostname != urlsplit(target).hostname:
            raise NotPrometheus(
                f"{self.url} redirects to {urlsplit(there).hostname}",
                hint="that is often a log-in page: give the address of the API itself, or a bearer token",
            )
        if urlsplit(target).scheme == "https" and urlsplit(there).scheme != "https":
            raise NotPrometheus(f"{self.url} redirects from https to http", hint="give the final address")
        # The parameters are sent again with the new target.
        return urlunsplit(urlsplit(there)._replace(query="")) if "?" not in target else there

    def _opened(self) -> requests.Session:
        if self._session is None:
            import requests
            from requests.adapters import HTTPAdapter

            session = requests.Session()
            adapter = HTTPAdapter(pool_connections=1, pool_maxsize=_PARALLEL_CALLS)
            session.mount("http://", adapter)
            session.mount("https://", adapter)
            session.headers["User-Agent"] = "llm-diag"
            session.headers.update(self._access.headers)
            if self._access.bearer_token is not None:
                # As an auth callable, so that a .netrc entry cannot take its place.
                session.auth = _Bearer(self._access.bearer_token)
            elif self._basic is not None:
                session.auth = self._basic
            if self._access.client_cert:
                key = self._access.client_key
                session.cert = (self._access.client_cert, key) if key else self._access.client_cert
            self._session = session
        return self._session

    def _judged(self, response: requests.Response) -> Reply:
        status = response.status_code
        reply = Reply(status, response.content, response.headers.get("Content-Type", ""))
        if status < 300 or status in (400, 405, 422):
            return reply
        if status in (401, 403, 407):
            raise SourceRefused(
                f"{self.url} refuses access ({status})",
                hint="give credentials: --bearer-token-file, --basic-auth-file or --header",
            )
        if status == 404:
            raise NotPrometheus(
                f"{self.url} answers 404",
                hint="is a path prefix missing, such as /prometheus or /select/0/prometheus?",
            )
        if status == 413:
            raise QueryTooExpensive(
                f"{self.url} calls the query too large (413)", hint="narrow it with --match"
            )
        said = _first_line(reply)
        raise SourceUnreachable(
            f"{self.url} answers {status}" + (f": {said}" if said else ""), hint="look into that server's log"
        )

    def _overloaded(self, response: requests.Response) -> SourceUnreachable:
        return SourceUnreachable(
            f"{self.url} still answers {response.status_code} after {_RETRIES} more tries",
            hint="it is overloaded, limits its callers or has no server behind it; wait and run again",
        )

    def _unreachable(self, error: Exception) -> SourceUnreachable:
        import requests

        if isinstance(error, requests.exceptions.SSLError):
            why, hint = _tls(str(error)), "give --ca-file for a private authority, or a client certificate"
        elif isinstance(error, requests.exceptions.ReadTimeout):
            why = f"no answer within {self._access.timeout_seconds:g} s"
            hint = "raise --timeout or ask for a shorter window"
        elif isinstance(error, requests.exceptions.Timeout):
            why, hint = "no connection in time", "is the address right, and reachable from here?"
        else:
            why, hint = _connection(str(error)), "is the address right, and is the server up?"
        return SourceUnreachable(f"cannot reach {self.url}: {why}", hint=hint)


class _Bearer:
    __slots__ = ("_token",)

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _wait_seconds(retry_after: str | None, attempt: int) -> float:
    """Seconds before the next try; a date in Retry-After is not worth a calendar here."""
    if retry_after and retry_after.strip().isdigit():
        return min(float(retry_after), _LONGEST_WAIT_SECONDS)
    return float(min(0.25 * 2.0**attempt, _LONGEST_WAIT_SECONDS))


def _tls(text: str) -> str:
    found = re.search(r"certificate verify failed: ([^(\[\]]+)", text)
    if found:
        return f"the TLS certificate is not trusted ({found.group(1).strip()})"
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text.lower():
        return "TLS failed: the server seems to speak plain http on this port"
    found = re.search(r"\[SSL: ([A-Z0-9_]+)\]", text)
    return f"TLS failed ({found.group(1).lower().replace('_', ' ')})" if found else "TLS failed"


def _connection(text: str) -> str:
    for sign, why in (
        ("NameResolutionError", "its name does not resolve"),
        ("Name or service not known", "its name does not resolve"),
        ("Connection refused", "connection refused"),
        ("No route to host", "no route to the host"),
        ("Network is unreachable", "the network is unreachable"),
        ("RemoteDisconnected", "it closed the connection without an answer"),
        ("Connection reset", "it reset the connection"),
        ("ProxyError", "the proxy does not answer"),
        ("invalid path", "a certificate file does not exist"),
    ):
        if sign in text:
            return why
    return "the connection failed"


def _first_line(reply: Reply) -> str:
    if "html" in reply.content_type:
        return ""
    return _plain(reply.content[:400].decode("utf-8", "replace"))


def _plain(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    line = re.sub(r"//[^/@\s]*@", "//", line)
    return re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", line)[:160]
