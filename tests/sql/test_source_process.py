"""What a query's own Python process, and its tasks, import."""

from __future__ import annotations

import base64
from types import ModuleType

import pytest
from pyspark.serializers import CloudPickleSerializer

from penstock import sql, tracker
from penstock.blockstore import BlockAccess
from penstock.sql.source.data_source import PenstockSource
from penstock.wire import ApplicationLink
from tests.programs import run_to_end

_READER = """
import base64, pickle, sys
from pyspark.sql.types import StructType

source = pickle.loads(base64.b64decode(sys.argv[1]))({"stream": "clicks"})
source.streamReader(StructType([]))
print(*sys.modules)
"""


def test_the_process_of_a_query_needs_nothing_that_runs_receivers() -> None:
    """It starts while all cores are busy, and imports before it asks for the first time."""
    access = BlockAccess({}, ApplicationLink(b"secret", ("127.0.0.1", 9)), fetch_timeout_s=1.0)
    made = type("PenstockSourceOfHost", (PenstockSource,), {"access": access})
    pickled = base64.b64encode(CloudPickleSerializer().dumps(made)).decode()
    imported = set(run_to_end("-c", _READER, pickled).stdout.split())
    rooms = {".".join(name.split(".")[:2]) for name in imported if name.startswith("penstock.")}
    assert "penstock.sql.source._reader" in imported
    assert not rooms & {f"penstock.{room}" for room in ("host", "monitor", "receiver", "streaming")}
    assert (
        not {"limits", "pandas", "penstock.sql.host", "penstock.tracker.ledger.places"} & imported
    )


@pytest.mark.parametrize("room", [sql, tracker])
def test_a_room_has_what_it_names(room: ModuleType) -> None:
    assert [name for name in room.__all__ if not hasattr(room, name)] == []
    assert not hasattr(room, "Hosts")
