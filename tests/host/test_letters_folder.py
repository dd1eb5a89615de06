"""Programs that were given one folder keep their dead letters apart."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    LetterTail,
    letters,
    program_of,
)
from penstock.errors import PenstockError
from penstock.host.durability import choose_durability
from penstock.host.preparation import Run, tail_of_run
from penstock.settings import Settings


class Program:
    """A program of one stream, whose number is 0, as its next start finds it."""

    def __init__(self, folder: Path, name: str = "meters", **settings: str) -> None:
        self.folder = folder
        self.name = name
        self.settings = Settings.from_pairs(
            [(f"spark.penstock.{key.replace('_', '.')}", value) for key, value in settings.items()]
        )
        self.starts = 0

    def start(self, checkpoint: Path | None = None, *, receives: bool = True) -> DeadLetterPlace:
        """Return where its letters go in a run of its own."""
        self.starts += 1
        run_id = f"{self.name}-{id(self)}-{self.starts}"
        directory = None if checkpoint is None else str(checkpoint)
        durability = choose_durability(
            self.settings, directory, run_id, str(self.folder / "scratch")
        )
        # As who locks the checkpoints, or the driver log.
        os.makedirs(os.path.dirname(durability.driver_log_folder), exist_ok=True)
        is_kept = directory is not None or (self.settings.wal_dir is not None and receives)
        run = Run(run_id, durability, self.settings, app_name=self.name, is_kept=is_kept)
        place = run.letters_place()
        return DeadLetterPlace(
            place.folder, 0, f"{self.starts:032x}", "Gauge", "here", max_bytes=1 << 20
        )


def write(place: DeadLetterPlace, record: Any, count: int = 1) -> list[PenstockError]:
    removed: list[Any] = []
    writer = DeadLetterWriter(place, lambda message, error: removed.append(error))
    for _ in range(count):
        writer.add(record, ValueError(), "")
        writer.write()
    writer.close()
    return removed


def seen(place: DeadLetterPlace) -> list[bytes]:
    """Return what the page and `ssc.deadLetters()` of a program show."""
    tail = LetterTail(place.folder, None, but=-1, tell=pytest.fail)
    found = tail.read({}, most=1000, most_bytes=1 << 30).letters
    return [stored.letter.data for stored in found]


@pytest.mark.parametrize("setting", ["deadLetters_dir", "wal_dir"])
def test_two_programs_with_one_folder_see_send_and_remove_what_is_their_own(
    setting: str, tmp_path: Path
) -> None:
    shared = {setting: str(tmp_path / "shared")}
    first, second = Program(tmp_path, **shared), Program(tmp_path, **shared)
    of_first = first.start(tmp_path / "first")
    of_second = second.start(tmp_path / "second")
    write(of_first, b"of first")
    write(of_second, b"of second")
    assert (seen(of_first), seen(of_second)) == ([b"of first"], [b"of second"])
    assert write(of_second, bytes(10_000), 200)
    assert seen(of_first) == [b"of first"]
    assert b"of second" not in seen(of_second)
    # Who looks there sees whose each is.
    found = letters(str(tmp_path / "shared"))
    owners = {stored.program for stored in found if stored.letter.data != bytes(10_000)}
    assert owners == {program_of(of_first.folder)}
    # Started again, a program has what it had.
    assert seen(first.start(tmp_path / "first")) == [b"of first"]


@pytest.mark.parametrize("receives", [True, False])
def test_a_program_of_which_nothing_is_kept_is_another_one_at_each_start(
    receives: bool, tmp_path: Path
) -> None:
    program = Program(tmp_path, deadLetters_dir=str(tmp_path / "shared"))
    before = program.start(receives=receives)
    write(before, b"of streams that may have had other numbers")
    assert seen(program.start(receives=receives)) == []
    assert [stored.program for stored in letters(str(tmp_path / "shared"))] == [
        program_of(before.folder)
    ]


def test_a_program_without_a_driver_log_of_its_own_does_not_take_that_of_a_log_folder(
    tmp_path: Path,
) -> None:
    program = Program(tmp_path, wal_dir=str(tmp_path / "shared"))
    receives = program.start()
    assert receives.folder == str(tmp_path / "shared" / "deadLetters")
    assert program.start().folder == receives.folder
    others = {program.start(receives=False).folder for _ in range(2)}
    assert {os.path.dirname(folder) for folder in others} == {receives.folder}
    assert len(others) == 2


def test_letters_beside_a_program_s_own_things_need_no_name(tmp_path: Path) -> None:
    program = Program(tmp_path)
    place = program.start(tmp_path / "checkpoint")
    assert place.folder == str(tmp_path / "checkpoint" / "deadLetters")
    assert program.start().folder.startswith(str(tmp_path / "scratch" / "penstock-meters-"))
    assert not (tmp_path / "checkpoint" / "program").exists()


def test_the_name_is_made_once_and_shows_what_the_program_was_called(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    place = Program(tmp_path, "Zähler 7/8", deadLetters_dir=shared).start(tmp_path / "own")
    renamed = Program(tmp_path, "meters", deadLetters_dir=shared).start(tmp_path / "own")
    assert renamed.folder == place.folder
    assert os.path.basename(place.folder).startswith("Z_hler_7_8-")
    digits = Program(tmp_path, "2024", deadLetters_dir=shared).start(tmp_path / "other")
    assert os.path.basename(digits.folder).startswith("program_2024-")
    # A start that was killed while it made its name left this.
    (tmp_path / "third").mkdir()
    (tmp_path / "third" / "program.new").write_text("met")
    third = Program(tmp_path, deadLetters_dir=shared).start(tmp_path / "third")
    assert len({place.folder, digits.folder, third.folder}) == 3


@pytest.mark.parametrize("name", ["", "..", "../../etc", "0-" + "0" * 32, "meters"])
def test_a_name_that_is_none_ends_the_start_and_says_what_to_do(name: str, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "program").write_text(name)
    program = Program(tmp_path, deadLetters_dir=str(tmp_path / "shared"))
    with pytest.raises(PenstockError, match=f"^{own}/program is .*put it back, or remove it"):
        program.start(own)
    (own / "program").unlink()
    assert program.start(own)


@pytest.mark.parametrize(
    ("master", "letters_dir", "is_seen"),
    [
        ("local[2]", "", True),
        ("spark://host:7077", "", False),
        ("spark://host:7077", "hdfs://host:8020/letters", True),
    ],
)
def test_letters_on_the_disks_of_other_hosts_are_not_looked_for_on_this_one(
    master: str, letters_dir: str, is_seen: bool, tmp_path: Path
) -> None:
    settings = Settings(dead_letters_dir=letters_dir or None)
    durability = choose_durability(settings, None, "run", str(tmp_path))
    run = Run("run", durability, settings, master=master)
    assert (tail_of_run(run) is not None) == is_seen
