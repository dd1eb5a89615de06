"""The tracker's and the block server's port under attacks; `make fuzz` does it for ten minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.fuzz.attacks import Proof
from tests.system.fuzz.campaign import Campaign


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_attacks_on_both_ports_break_nothing_and_leave_nothing_behind(tmp_path: Path) -> None:
    """I9: without TLS and with it, and good peers notice nothing."""
    with Campaign(tmp_path, 1) as campaign:
        campaign.run(rounds=3)
        made = campaign.attacker.counts["proof"]
    assert set(made) == {proof.value for proof in Proof}
