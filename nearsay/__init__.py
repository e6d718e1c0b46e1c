"""Nearsay: self-hosted, low-latency machine translation. `from nearsay import Client, AsyncClient, errors`.

Names load when first used: every service imports this package for its wire messages, and none of them needs the SDK.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nearsay.client import AsyncClient, Client
    from nearsay.wire import errors

    __version__: str

__all__ = ["AsyncClient", "Client", "__version__", "errors"]


def __getattr__(name: str) -> Any:
    match name:
        case "Client" | "AsyncClient":
            return getattr(import_module("nearsay.client"), name)
        case "errors":
            return import_module("nearsay.wire.errors")
        case "__version__":
            return import_module("importlib.metadata").version("nearsay")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
