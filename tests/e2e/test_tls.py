"""TLS from the client to the edge: HTTPS at the door, mutual TLS between proxy and edge, each a real process."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack
from tests.e2e.test_faults import wait_until
from tests.kit.certificates import Authority

pytestmark = pytest.mark.e2e

BODY = {"text": "Good morning, how are you?", "source": "en", "target": "de", "tier": "edge"}


def test_a_request_over_tls_all_the_way(tmp_path: Path) -> None:
    public, ours = Authority(), Authority()
    ca = ours.write_ca(tmp_path / "ours.pem")
    doors = {}
    for name, authority in (("proxy", public), ("edge", ours)):
        cert, key = authority.write_pair(tmp_path, f"{name}-door")
        doors[name] = {"tls_cert": str(cert), "tls_key": str(key)}
    cert, key = ours.write_pair(tmp_path, "proxy-peer")
    peers = {"peer_ca": str(ca), "peer_cert": str(cert), "peer_key": str(key)}
    stack = Stack(tmp_path)

    def ask(proxy: str) -> tuple[int, dict[str, Any]]:
        url = f"https://127.0.0.1:{stack[proxy].port}/v1/translate"
        request = urllib.request.Request(url, json.dumps(BODY).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30, context=public.client()) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    try:
        edge = stack.add("edge", "edge_worker", {**doors["edge"], "tls_client_ca": str(ca), "pairs": ["en-de"]})
        edges = {"edges": [f"wss://127.0.0.1:{edge.port}/link"], "start_wait_s": 0.5}
        stack.add("known", "proxy", {**doors["proxy"], **peers, **edges})
        stack.add("stranger", "proxy", {**doors["proxy"], "peer_ca": str(ca), **edges})
        wait_until(lambda: ask("known")[0] == 200)
        assert "Guten" in ask("known")[1]["translations"][0]["text"]
        status, problem = ask("stranger")
        assert (status, problem["code"]) == (503, "edge_unavailable"), "without a certificate the edge doesn't talk"
    finally:
        stack.close()
