"""File streams: which files a batch takes, and what is read of them.

The names of Spark's tests are those of its `InputStreamsSuite`.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SettingError
from penstock.streaming import StreamGraphError
from tests.streaming.batches import Batches, batches

FIRST_S = 1_700_000_001
"""The first batch; one comes every second."""


def put(path: Path, data: str | bytes, at_s: float) -> None:
    """Let a file appear whole, modified at that time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(hidden, (at_s, at_s))
    hidden.rename(path)


def files_of(run: Batches) -> list[list[str]]:
    """Return the names of the files of each batch, as listeners are told."""
    return [
        [os.path.basename(path) for path in info.streamIdToInputInfo()[0].metadata()["files"]]
        for info in run.events.of("batch")
    ]


@pytest.fixture
def remembering_3_s(sc: Any, monkeypatch: Any) -> None:
    conf = sc.getConf().set("spark.streaming.fileStream.minRememberDuration", "2500ms")
    monkeypatch.setattr(sc, "getConf", lambda: conf)


class TestText:
    def test_new_files_are_read_once_each(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "file input stream - newFilesOnly = true"."""
        put(tmp_path / "old", "old\n", FIRST_S - 10)
        put(tmp_path / "just before", "before\n", FIRST_S - 0.5)
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)))
            put(tmp_path / "one", "a\nb\r\nc", FIRST_S - 0.2)
            put(tmp_path / "two", "ü\n", FIRST_S)
            run.run(1)
            put(tmp_path / "three", "d\n", FIRST_S + 0.5)
            put(tmp_path / "not yet", "e\n", FIRST_S + 1.5)
            run.run(2)
        assert found == [["a", "b", "c", "ü"], ["d"], ["e"]]
        assert files_of(run) == [["one", "two"], ["three"], ["not yet"]]
        info = run.events.of("batch")[0].streamIdToInputInfo()[0]
        assert info.numRecords() == 0
        assert info.metadataDescription() == f"{tmp_path}/one\n{tmp_path}/two"

    def test_old_files_on_demand(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "file input stream - newFilesOnly = false"."""
        put(tmp_path / "old", "old\n", FIRST_S - 10)
        put(tmp_path / "too old", "too old\n", FIRST_S - 61)
        put(tmp_path / "unwanted.tmp", "unwanted\n", FIRST_S - 10)
        text = "org.apache.hadoop.mapreduce.lib.input.TextInputFormat"
        with batches(sc) as run:
            stream = run.ssc.fileStream(
                str(tmp_path),
                text,
                "org.apache.hadoop.io.LongWritable",
                "org.apache.hadoop.io.Text",
                lambda path: not path.endswith(".tmp"),
                newFilesOnly=False,
            )
            found = run.collect(stream)
            run.run(2)
        assert found == [[(0, "old")], []]

    def test_a_glob_stands_for_several_folders(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "file input stream - wildcard"."""
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(f"{tmp_path}/{{in,out}}-[^x]"))
            for name in ("in-1", "out-2", "in-x", "other-1"):
                put(tmp_path / name / "file", name, FIRST_S)
            put(tmp_path / "in-1" / "deeper" / "file", "deeper", FIRST_S)
            run.run(1)
            # A folder that comes later is looked into as well.
            put(tmp_path / "in-3" / "file", "in-3", FIRST_S + 1)
            run.run(1)
        assert found == [["in-1", "out-2"], ["in-3"]]

    @pytest.mark.usefixtures("remembering_3_s")
    def test_a_modified_file_is_taken_again_when_it_was_forgotten(
        self, sc: Any, tmp_path: Path
    ) -> None:
        """Spark: "Modified files are correctly detected."."""
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)))
            put(tmp_path / "file", "1", FIRST_S)
            run.run(1)
            put(tmp_path / "file", "2", FIRST_S + 1)
            run.run(5)
            put(tmp_path / "file", "3", FIRST_S + 6)
            run.run(1)
        assert found == [["1"], [], [], [], [], [], ["3"]]

    @pytest.mark.usefixtures("remembering_3_s")
    def test_a_file_that_shows_late_is_found_within_the_time_to_look_back(
        self, sc: Any, tmp_path: Path, caplog: Any
    ) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)))
            run.run(4)
            put(tmp_path / "late", "late", FIRST_S + 0.5)
            put(tmp_path / "too late", "too late", FIRST_S)
            run.run(2)
        assert found == [[], [], [], [], ["late"], []]
        assert caplog.text.count("too late have appeared with a time of modification longer") == 1

    def test_names_of_every_kind(self, sc: Any, tmp_path: Path, caplog: Any) -> None:
        names = ["a*b", "a[b]", "{x}", "a?b", "sp ace", "per%20c", "back\\slash", "ü", "a^b", "#h"]
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(f"file://{tmp_path}"))
            for name in [*names, "_hidden", ".hidden", "10:30", "a,b"]:
                (tmp_path / name).write_text(name)
                os.utime(tmp_path / name, (FIRST_S, FIRST_S))
            run.run(2)
        assert [sorted(lines) for lines in found] == [sorted(names), []]
        assert caplog.text.count("Hadoop does not read paths with a comma or a colon") == 2

    def test_compressed_files_are_read(self, sc: Any, tmp_path: Path) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)))
            put(tmp_path / "file.gz", gzip.compress(b"one\ntwo\n"), FIRST_S)
            run.run(1)
        assert found == [["one", "two"]]

    def test_what_cannot_be_looked_at_keeps_no_file_behind_it_from_being_read(
        self, sc: Any, tmp_path: Path, caplog: Any
    ) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)))
            for name in ("a", "b", "c"):
                (tmp_path / name).symlink_to(tmp_path / name)
                put(tmp_path / f"{name}-file", name, FIRST_S)
            run.run(2)
        assert [sorted(lines) for lines in found] == [["a", "b", "c"], []]
        assert f"{tmp_path / 'b'} is left out: " in caplog.text

    def test_a_missing_folder_is_told_and_empty(self, sc: Any, tmp_path: Path, caplog: Any) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path / "none")))
            run.run(2)
            put(tmp_path / "none" / "file", "now", FIRST_S + 2)
            run.run(1)
        assert found == [[], [], ["now"]]
        assert caplog.text.count("There is no folder") == 1

    def test_a_window_reads_each_file_once_more(self, sc: Any, tmp_path: Path) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.textFileStream(str(tmp_path)).window(2))
            put(tmp_path / "one", "1", FIRST_S)
            run.run(1)
            put(tmp_path / "two", "2", FIRST_S + 1)
            run.run(2)
        assert found == [["1"], ["1", "2"], ["2"]]

    @pytest.mark.parametrize("address", ["s3a://bucket/folder", "s3://bucket/folder"])
    def test_other_file_systems_are_refused(self, sc: Any, address: str) -> None:
        with batches(sc) as run, pytest.raises(StreamGraphError, match="or on HDFS"):
            run.ssc.textFileStream(address)

    def test_a_bad_time_to_look_back_is_named(self, sc: Any, monkeypatch: Any) -> None:
        conf = sc.getConf().set("spark.streaming.minRememberDuration", "long")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        with batches(sc) as run, pytest.raises(SettingError, match="minRememberDuration"):
            run.ssc.textFileStream("/tmp")


class TestBinary:
    def test_each_stream_has_its_own_record_length(self, sc: Any, tmp_path: Path) -> None:
        """Spark: "binary records stream"; there two streams disturb each other."""
        with batches(sc) as run:
            short = run.collect(run.ssc.binaryRecordsStream(str(tmp_path), 2))
            long = run.collect(run.ssc.binaryRecordsStream(str(tmp_path), 4))
            put(tmp_path / "file", b"\x00\xff234567", FIRST_S)
            run.run(1)
        assert short == [[b"\x00\xff", b"23", b"45", b"67"]]
        assert long == [[b"\x00\xff23", b"4567"]]

    @pytest.mark.parametrize("length", [0, -1, 1.5, True])
    def test_a_length_must_be_a_number_of_bytes(self, sc: Any, length: Any) -> None:
        with batches(sc) as run, pytest.raises(ValueError, match="recordLength"):
            run.ssc.binaryRecordsStream("/tmp", length)
