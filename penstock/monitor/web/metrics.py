"""``/metrics``: the figures, as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import CollectorRegistry

from penstock.monitor.figures import Figures
from penstock.monitor.model import Model
from penstock.monitor.web.exchange import Answer, Request

__all__ = ["Metrics"]


class Metrics:
    """Answers a scrape.

    Args:
        model: What there is.
    """

    def __init__(self, model: Model) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Figures(model))

    def answer(self, request: Request) -> Answer:
        """Return all of it, in the format that is asked for."""
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Answer(200, encode(self._registry), kind)
