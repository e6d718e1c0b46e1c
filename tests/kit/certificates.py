"""Certificates for tests: authorities of their own, written where a config names them."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import trustme

HOST = "127.0.0.1"


class Authority:
    """One that vouches for servers at loopback and for clients."""

    def __init__(self) -> None:
        self._ca = trustme.CA()

    def write_ca(self, path: Path) -> Path:
        """The authority's own certificate."""
        return _replace(path, self._ca.cert_pem.bytes())

    def write_pair(self, folder: Path, name: str) -> tuple[Path, Path]:
        """A new certificate and its key, as `name`.pem and `name`.key. Returns their paths."""
        issued = self._ca.issue_cert(HOST, "localhost")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        cert = _replace(folder / f"{name}.pem", chain)
        return cert, _replace(folder / f"{name}.key", issued.private_key_pem.bytes())

    def client(self, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """What a client of ours trusts and shows."""
        context = ssl.create_default_context()
        self._ca.configure_trust(context)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context


def _replace(path: Path, content: bytes) -> Path:
    """As operators' tools do: the new file appears whole under the old name."""
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_bytes(content)
    os.replace(fresh, path)
    return path
