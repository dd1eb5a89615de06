"""Checkpoints, file streams and saved streams on a real HDFS."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import DStream, LogFolderInUseError, StreamingContext
from penstock.streaming.checkpoint.record import read_checkpoint
from penstock.tracker import LedgerWriteError
from tests.bounds import HANG_S
from tests.services.hdfs import Hdfs
from tests.streaming.batches import batches
from tests.streaming.checkpoint.recovering import BATCH_MS, ZERO_MS, Program
from tests.streaming.checkpoint.stored import ledger_of, store
from tests.streaming.checkpoint.test_checkpoint import checkpoint
from tests.streaming.dstream.test_file_streams import FIRST_S, files_of

pytestmark = pytest.mark.slow


def put(hdfs: Hdfs, address: str, data: bytes, at_s: float) -> None:
    """Let a file appear whole, modified at that time."""
    hdfs.write(address, data, at_s)


class TestCheckpoints:
    @pytest.mark.long
    def test_the_newest_one_is_read(self, hdfs: Hdfs) -> None:
        folder = hdfs.new_folder() + "/not/there"
        assert read_checkpoint(folder) is None
        for time_ms in (999, 1000, 2000):
            store(folder, checkpoint(time_ms))
        assert read_checkpoint(folder) == checkpoint(2000)

    def test_who_was_replaced_writes_no_more(
        self, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = hdfs.new_folder()
        first = ledger_of(folder)
        first.write_checkpoint(checkpoint(1).encode())
        with pytest.raises(LogFolderInUseError):
            read_checkpoint(folder)
        # As of a driver on another host, of which nobody here knows whether it lives.
        with monkeypatch.context() as patched:
            patched.setattr("penstock.runtime.processes.host_id", lambda: "another host")
            assert read_checkpoint(folder) == checkpoint(1)
        with pytest.raises(LedgerWriteError):
            first.write_checkpoint(checkpoint(2).encode())
        store(folder, checkpoint(3))
        assert read_checkpoint(folder) == checkpoint(3)
        first.close()

    @pytest.mark.long
    def test_a_checkpoint_waits_for_the_name_node(self, hdfs: Hdfs) -> None:
        folder = hdfs.new_folder()
        store(folder, checkpoint(1))
        hdfs.kill_name_node()
        writing = threading.Thread(target=store, args=[folder, checkpoint(2)])
        writing.start()
        hdfs.start_name_node()
        writing.join(HANG_S)
        assert read_checkpoint(folder) == checkpoint(2)


class TestFileStreams:
    @pytest.mark.long
    def test_each_file_is_read_once(self, sc: Any, hdfs: Hdfs) -> None:
        folder = hdfs.new_folder()
        put(hdfs, f"{folder}/old", b"old\n", FIRST_S - 10)
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(folder))
            put(hdfs, f"{folder}/one", b"a\nb\r\nc", FIRST_S - 0.2)
            put(hdfs, f"{folder}/sp ace*[x]", "ü\n".encode(), FIRST_S)
            run.run(1)
            put(hdfs, f"{folder}/three", b"d\n", FIRST_S + 0.5)
            put(hdfs, f"{folder}/_hidden", b"no\n", FIRST_S + 0.5)
            put(hdfs, f"{folder}/deeper/four", b"no\n", FIRST_S + 0.5)
            run.run(2)
        assert found == [["a", "b", "c", "ü"], ["d"], []]
        assert files_of(run) == [["one", "sp ace*[x]"], ["three"], []]
        info = run.events.of("batch")[1].streamIdToInputInfo()[0]
        assert info.metadataDescription() == f"{folder}/three"

    def test_a_glob_stands_for_several_folders(self, sc: Any, hdfs: Hdfs, caplog: Any) -> None:
        folder = hdfs.new_folder()
        with batches(sc) as run:
            records = run.collect(run.ssc.binaryRecordsStream(f"{folder}/{{in,out}}-[0-9]", 2))
            run.run(1)
            for name in ("in-1", "out-2", "in-x"):
                put(hdfs, f"{folder}/{name}/file", name[-2:].encode(), FIRST_S + 1)
            run.run(1)
        assert records == [[], [b"-1", b"-2"]]
        assert caplog.text.count("There is no folder") == 1

    @pytest.mark.long
    def test_a_recovered_program_reads_each_file_once(
        self, sc: Any, hdfs: Hdfs, tmp_path: Path
    ) -> None:
        folder = hdfs.new_folder()
        zero_s, batch_s = ZERO_MS / 1000, BATCH_MS / 1000

        def build(program: Program, ssc: StreamingContext) -> None:
            lines: DStream[str] = ssc.textFileStream(folder)
            program.keep(lines)

        program = Program(sc, tmp_path, build)
        program.checkpoint = hdfs.new_folder()  # type: ignore[assignment]  # used as text only
        put(hdfs, f"{folder}/one", b"1", zero_s + batch_s - 0.1)
        try:
            program.run(2)
            put(hdfs, f"{folder}/two", b"2", zero_s + 2 * batch_s + 0.1)
            program.run(2)
        finally:
            program.stop()
        # The first is still within the time to look back.
        assert [program.result(number) for number in (1, 2, 3, 4)] == [
            [["1"]],
            [[]],
            [["2"]],
            [[]],
        ]


def test_streams_are_saved(sc: Any, hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    with batches(sc) as run:
        stream = run.ssc.queueStream([["a", "b"], ["c"]])
        stream.saveAsTextFiles(f"{folder}/out", "txt")
        run.run(2)
    for number, lines in enumerate((["a", "b"], ["c"])):
        path = f"{folder}/out-{(FIRST_S + number) * 1000}.txt"
        assert sorted(sc.textFile(path).collect()) == lines
