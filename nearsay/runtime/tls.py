"""Certificates of a door and of the links that we open, read again when their files change.

A door listens with one context for good; each handshake moves to the newest one as it begins, so that a new certificate
is shown from the next connection on and no open one is touched. What can't be read leaves the last good one in place.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

from nearsay.runtime.config import ConfigError, ServiceConfig

WATCH_S = 1.0
HANDSHAKE_TIMEOUT_S = 10.0  # for a client that connects and says nothing, or very slowly
SHUTDOWN_TIMEOUT_S = 2.0  # for one that doesn't answer our goodbye
_log = logging.getLogger(__name__)

Files = tuple[Path, ...]


class _Watched:
    """A context made of files. `fresh` makes it anew if they changed since it was last tried."""

    def __init__(self, files: Files, make: Callable[[], ssl.SSLContext]) -> None:
        """Raises ConfigError when the files can't be used."""
        self._files = files
        self._make = make
        self._seen = _state(files)
        try:
            self.context = make()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ConfigError([_problem(files, error)]) from error

    def fresh(self) -> ssl.SSLContext:
        """The newest good context."""
        if (state := _state(self._files)) != self._seen:
            self._seen = state
            try:
                self.context = self._make()
            except (OSError, ValueError) as error:
                _log.warning("kept the last good certificate: %s", _problem(self._files, error))
            else:
                _log.warning("a changed certificate is in use: %s", self._files[0].name)
        return self.context


class DoorTls:
    """TLS of a door. `context` is what to listen with."""

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """`client_ca`: clients must show a certificate that it signed. Raises ConfigError."""
        files = (cert, key) if client_ca is None else (cert, key, client_ca)
        self._watched = _Watched(files, lambda: _door_context(cert, key, client_ca))
        self.context = _door_context(cert, key, client_ca)
        self.context.sni_callback = self._newest

    @classmethod
    def of(cls, config: ServiceConfig) -> DoorTls | None:
        """What a config says, None for a plain door. Raises ConfigError."""
        if config.tls_cert is None or config.tls_key is None:
            return None
        return cls(config.tls_cert, config.tls_key, config.tls_client_ca)

    def reload(self) -> None:
        """Look at the files now."""
        self._watched.fresh()

    async def watch(self) -> None:
        """Look at them every WATCH_S."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.reload()

    def _newest(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._watched.context


class LinkTls:
    """TLS of the links that we open to wss:// addresses."""

    def __init__(self, ca: Path | None, cert: Path | None, key: Path | None) -> None:
        """`ca`: who vouches for them, None = whom the system trusts. Raises ConfigError."""
        files = tuple(file for file in (cert, key, ca) if file is not None)
        self._watched = _Watched(files, lambda: _link_context(ca, cert, key))

    @classmethod
    def of(cls, config: ServiceConfig) -> LinkTls | None:
        """What a config says, None when it says nothing. Raises ConfigError."""
        if config.peer_ca is None and config.peer_cert is None:
            return None
        return cls(config.peer_ca, config.peer_cert, config.peer_key)

    def context(self) -> ssl.SSLContext:
        """What the next connection is made with."""
        return self._watched.fresh()


def check_tls(config: ServiceConfig) -> list[str]:
    """What is wrong between the files that a config names."""
    problems = []
    if (config.tls_cert is None) != (config.tls_key is None):
        problems.append("'tls_cert' and 'tls_key' go together")
    if config.tls_client_ca is not None and config.tls_cert is None:
        problems.append("'tls_client_ca' needs 'tls_cert': only a door with TLS can ask for certificates")
    if (config.peer_cert is None) != (config.peer_key is None):
        problems.append("'peer_cert' and 'peer_key' go together")
    return problems


def _door_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(cert, key, password=_no_password)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
        context.options |= ssl.OP_NO_TICKET  # a ticket would outlive the authority that vouched for its holder
        context.num_tickets = 0
    return context


def _link_context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if cert is not None:
        context.load_cert_chain(cert, key, password=_no_password)
    return context


def _no_password() -> str:
    raise ValueError("the key asks for a password, and nobody is there to type it")


def _state(files: Files) -> tuple[tuple[int, int, int] | None, ...]:
    return tuple(_stat(file) for file in files)


def _stat(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _problem(files: Files, error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{', '.join(file.name for file in files)}: {reason}"
