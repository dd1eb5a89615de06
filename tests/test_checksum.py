"""CRC-32C, and what importing it costs."""

from __future__ import annotations

from penstock.runtime.checksum import crc32c
from tests.programs import run_to_end


def test_it_is_the_checksum_of_the_package() -> None:
    import crc32c as package

    # The check value of CRC-32/ISCSI.
    assert crc32c(b"123456789") == package.crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"56789"), crc32c(b"1234")) == 0xE3069283


def test_a_process_of_receivers_imports_nothing_that_few_of_them_need() -> None:
    code = (
        "import sys, penstock.receiver.attempts.slot, penstock.receiver.attempts.task; "
        "print(*sys.modules)"
    )
    names = set(run_to_end("-c", code).stdout.split())
    assert "penstock.runtime.checksum" in names
    # `importlib.metadata` reads the directories of Spark's archives, which then stay in memory.
    assert names & {"difflib", "html", "importlib.metadata", "limits", "xml.etree"} == set()
