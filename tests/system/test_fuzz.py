"""The ports of tracker, block server and page under attacks; `make fuzz`: for ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.fuzz.attacks import Proof
from tests.system.fuzz.campaign import Campaign
from tests.system.fuzz.http_attacks import WAYS
from tests.system.fuzz.http_campaign import HttpCampaign


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_attacks_on_both_ports_break_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    """I9: without TLS and with it, and good peers notice nothing."""
    with Campaign(tmp_path, 1) as campaign:
        campaign.run(rounds=2)
        made = campaign.attacker.counts["proof"]
    assert set(made) == {proof.value for proof in Proof}


@pytest.mark.exhaustive  # `tests/monitor/test_server.py` has its bounds.
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_attacks_on_the_page_break_nothing_and_keep_nobody_from_his_answer(tmp_path: Path) -> None:
    """Also with a thousand clients of its events at once that read nothing."""
    with HttpCampaign(tmp_path, 1) as campaign:
        campaign.run(rounds=2)
    assert set(WAYS) <= set(campaign.counts)
