"""What all edges together serve: languages, pairs, models.

Decides: whether a pair and tier can be served at all, and how language codes are spelt.
Must not know: links, HTTP, which edge is up: one that is away still counts, or its restart would make a 503 a 400.
Invariants: a pair listed here is served by at least one known edge; codes compare without regard to case, `_` or `-`.
"""

from __future__ import annotations

from collections.abc import Iterable

from nearsay.wire.errors import InvalidRequest
from nearsay.wire.messages import ModelInfo, ServedTier, Tier
from proxy.core.endpoint import Endpoint, pair_name
from proxy.core.languages import display_name

# What a tier can't do without; `auto` takes what there is.
NEEDED: dict[Tier, ServedTier] = {"edge": "edge", "origin": "origin", "refine": "origin"}


class Catalogue:
    """Immutable view of what is served; rebuilt when an edge says something new."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        models: dict[str, ModelInfo] = {}
        tiers: dict[str, set[ServedTier]] = {}
        for endpoint in endpoints:
            models.update((model.name, model) for model in endpoint.models)
            for pair in endpoint.edge_pairs:
                tiers.setdefault(pair, set()).add("edge")
            for pair in endpoint.origin_pairs:
                tiers.setdefault(pair, set()).add("origin")
        self.models = tuple(models[name] for name in sorted(models))
        self._tiers = tiers
        self._targets: dict[str, list[str]] = {}
        self._codes: dict[str, str] = {}
        for pair in sorted(tiers):
            source, target = _split(pair, self.models)
            self._targets.setdefault(source, []).append(target)
            self._codes[_fold(source)] = source
            self._codes[_fold(target)] = target

    def __bool__(self) -> bool:
        """False while no edge has said yet what it serves."""
        return bool(self._tiers)

    def languages(self) -> list[dict[str, object]]:
        """`[{"code": "en", "name": "English", "targets": [{"code": "de", "name": "German", "tiers": ["edge"]}]}]`,
        sorted by code."""
        return [
            {
                "code": source,
                "name": display_name(source),
                "targets": [
                    {
                        "code": target,
                        "name": display_name(target),
                        "tiers": sorted(self._tiers[pair_name(source, target)]),
                    }
                    for target in targets
                ],
            }
            for source, targets in sorted(self._targets.items())
        ]

    def resolve(self, source: str, target: str, tier: Tier) -> tuple[str, str]:
        """The codes as the models spell them.

        Raises InvalidRequest: unknown_language, unsupported_pair, tier_unavailable.
        """
        source, target = self._known("source", source), self._known("target", target)
        tiers = self._tiers.get(pair_name(source, target))
        if tiers is None:
            known = ", ".join(self._targets.get(source, ())) or "nothing"
            detail = f"{source} to {target} is not served; from {source} there is: {known}"
            raise InvalidRequest(detail, code="unsupported_pair")
        needed = NEEDED.get(tier)
        if needed is not None and needed not in tiers:
            detail = f"{source} to {target} has no {needed} model, which tier '{tier}' needs"
            raise InvalidRequest(detail, code="tier_unavailable")
        return source, target

    def _known(self, field: str, code: str) -> str:
        try:
            return self._codes[_fold(code)]
        except KeyError:
            known = ", ".join(sorted(self._codes.values()))
            raise InvalidRequest(f"{field}: '{code}' is not one of {known}", code="unknown_language") from None


def _fold(code: str) -> str:
    return code.lower().replace("_", "-")


def _split(pair: str, models: tuple[ModelInfo, ...]) -> tuple[str, str]:
    """Source and target of a pair name; a code may hold `-` itself, then a model's own fields tell."""
    for model in models:
        if pair_name(model.source, model.target) == pair:
            return model.source, model.target
    source, _, target = pair.partition("-")
    return source, target
