"""Splitting and counting a block of lines at a time equals doing it line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blockstore import Block, BlockAccess, BlockKind, BlockRDD, BlockStore
from penstock.blockstore.store import BlockStoreOptions
from penstock.streaming.kernels import words
from penstock.streaming.kernels.combine import add_weighted
from penstock.streaming.kernels.fusion import FlatMapOperation, MapOperation
from penstock.streaming.kernels.recognition import Split, split_of

SEPARATORS = [" ", ",", "a", "\t", None]
texts = st.lists(
    st.lists(
        st.sampled_from([b"a", b"b", b"word", b" ", b"  ", b",", b"\t", b"\x0b", b"\x1c", b"\x85"])
        | st.sampled_from(["ü", "\u2028", "\u00a0"]).map(str.encode)
        | st.sampled_from([b"\xff", b"\xc3"]),
        max_size=8,
    ).map(b"".join),
    max_size=30,
)


def block_of(lines: list[bytes]) -> Block:
    data = b"".join(line + b"\n" for line in lines)
    return Block(BlockKind.LINES, len(lines), memoryview(data), memoryview(b""))


def words_of(lines: list[bytes], separator: str | None) -> list[str]:
    return [word for line in lines for word in line.decode("utf-8", "replace").split(separator)]


def summed(pairs: Any) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for word, number in pairs:
        assert number > 0
        counts[word] += number
    return counts


@given(texts, st.sampled_from(SEPARATORS), st.sampled_from([1, 20, 1 << 20]))
def test_words_and_counts_are_those_of_the_lines(
    lines: list[bytes], separator: str | None, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_SPLIT_BYTES", size)
        patch.setattr(words, "_COUNT_BYTES", size)
        split = Split(separator)
        expected = words_of(lines, separator)
        assert list(words._SplitWords(split)(block_of(lines))) == expected
        assert summed(words._CountWords(split)(block_of(lines))) == Counter(expected)


@pytest.mark.parametrize("separator", [" ", None])
def test_words_that_hardly_repeat_are_counted_too(
    separator: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "MAX_KEYS", 1000)
    monkeypatch.setattr(words, "_COUNT_BYTES", 5000)
    lines = [b"once%d again" % number for number in range(5000)]
    pairs = list(words._CountWords(Split(separator))(block_of(lines)))
    assert summed(pairs) == Counter(words_of(lines, separator))
    assert len(pairs) > 5001  # in parts, so that memory stays bounded


class TestRecognition:
    def test_splits_are_recognised(self) -> None:
        assert split_of(lambda line: line.split(" ")) == Split(" ")
        assert split_of(lambda line: line.split(",")) == Split(",")
        assert split_of(lambda line: line.split()) == Split(None)
        assert split_of(str.split) == Split(None)

    def test_what_is_not_exactly_that_is_not(self) -> None:
        other = ","
        for function in (
            lambda line: line.split("ab"),
            lambda line: line.split("\n"),
            lambda line: line.split("ü"),
            lambda line: line.split(" ", 1),
            lambda line: line.split(sep=" "),
            lambda line: line.split(other),
            lambda line: line.rsplit(" "),
            lambda line: line.strip().split(" "),
            lambda line: line.split(None),
            lambda line: line.split,
            lambda line: [line.split(" ")],
            lambda line, more: line.split(" "),
            str.splitlines,
            len,
        ):
            assert split_of(function) is None


@pytest.fixture
def lines_rdd(sc: Any, tmp_path: Path) -> Iterator[BlockRDD]:
    """Three blocks with the lines ``a b a`` and ``n``, n being the block's number."""
    options = BlockStoreOptions(
        memory_dir=str(tmp_path), memory_bytes=1 << 20, block_max_bytes=64 << 10
    )
    store = BlockStore(
        stream_id=0,
        attempt="0" * 32,
        host="here",
        log_folder=str(tmp_path / "log"),
        memory_name="memory",
        options=options,
    )
    infos = []
    for number in range(3):
        builder = store.open_block(BlockKind.LINES)
        builder.append_lines(b"a b a\n%d\n" % number, 2)
        infos.append(store.put(builder.seal(f"input-0-{number}", 0.0)))
    yield BlockRDD(sc, infos, BlockAccess())
    store.close()


class TestInSpark:
    by_blank = FlatMapOperation(lambda line: line.split(" "))

    def test_blocks_are_split_and_counted(self, lines_rdd: BlockRDD) -> None:
        split = words.split_words(lines_rdd, self.by_blank)
        assert split is not None
        expected = ["a", "b", "a", "0", "a", "b", "a", "1", "a", "b", "a", "2"]
        assert split.collect() == expected
        counted = words.counted_words(lines_rdd, self.by_blank)
        assert counted is not None
        assert dict(add_weighted(counted, 1, 2).collect()) == Counter(expected)
        doubled = {word: 2 * number for word, number in Counter(expected).items()}
        assert dict(add_weighted(counted, 2, 2).collect()) == doubled

    def test_only_lines_that_nobody_keeps_are_split_by_the_block(
        self, sc: Any, lines_rdd: BlockRDD
    ) -> None:
        assert words.split_words(sc.parallelize(["a b"]), self.by_blank) is None
        assert words.split_words(lines_rdd, MapOperation(str.split)) is None
        assert words.split_words(lines_rdd, FlatMapOperation(list)) is None
        lines_rdd.persist()
        assert words.counted_words(lines_rdd, self.by_blank) is None
