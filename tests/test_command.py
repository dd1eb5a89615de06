"""What holds for every command, whoever reads its output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from penstock.__main__ import main
from penstock.commands import Command, conf_option
from tests.bounds import HANG_S
from tests.programs import run_to_end

WAIT_S = HANG_S


def run(*arguments: str, output: int) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        stdout=output,
        stderr=subprocess.PIPE,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.parametrize("command", [["--help"], ["settings"], ["wal", "--help"]])
def test_a_reader_that_has_seen_enough_is_no_error(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run(*command, output=writing)
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "name"), [("--version", "penstock"), ("settings", "penstock settings")]
)
def test_an_output_that_takes_nothing_is_told_in_one_line(command: str, name: str) -> None:
    with open("/dev/full", "wb") as full:
        ended = run(command, output=full.fileno())
    assert ended.returncode == 2
    assert ended.stderr.decode() == f"{name}: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    "command",
    [
        ["checkpoint", ""],
        ["consumers", ""],
        ["dead-letters", "", "list"],
        ["replay", "", "--stream", "0"],
        ["wal", "check", ""],
    ],
)
def test_an_empty_folder_name_is_not_the_current_folder(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error == f"penstock {command[0]}: an empty argument names nothing\n"


def test_a_folder_that_is_not_there_is_told_and_not_what_it_should_hold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["replay", str(tmp_path / "none"), "--stream", "0"]) == 2
    told = f"penstock replay: {tmp_path}/none: there is no such folder\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("group", ["wal", "dead-letters"])
def test_a_list_of_commands_cuts_none_of_their_descriptions(
    group: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([group, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2].partition("\nexit codes")[0]
    described = " ".join(listed.split())
    assert "..." not in described.replace("hdfs://...", "")
    for name in re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE):
        ways = ["FOLDER"] if group == "dead-letters" else []
        assert main([group, *ways, name, "--help"]) == 0
        said = capsys.readouterr().out.split("\n\n")[1]
        assert " ".join(said.split()) in described


def test_a_setting_that_a_command_is_given_has_a_name_and_no_space_around_it() -> None:
    @click.command(cls=Command)
    @conf_option
    def command(conf: dict[str, str]) -> dict[str, str]:
        return conf

    def given(*pairs: str) -> object:
        arguments = [part for pair in pairs for part in ("--conf", pair)]
        return command.main(arguments, standalone_mode=False)

    assert given(" spark.a = b=c ", "spark.d=") == {"spark.a": "b=c", "spark.d": ""}
    for pair in ("spark.a", "=b", " =b"):
        with pytest.raises(click.BadParameter, match="KEY=VALUE is wanted"):
            given(pair)


def test_help_on_a_command_of_letters_needs_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dead-letters", "send", "--help"]) == 0
    assert "dead-letters FOLDER send [OPTIONS]" in capsys.readouterr().out


def test_a_command_does_not_wait_for_a_storage_that_hangs() -> None:
    code = """
import sys, threading
from penstock.__main__ import run
from penstock.wal._answers import BoundedCalls, TooLongError

calls = BoundedCalls("HDFS")
try:
    calls.call(threading.Event().wait, 0.05, "/a")
except TooLongError:
    calls.abandon()
sys.argv = ["penstock", "--version"]
run()
"""
    ended = run_to_end("-c", code)
    assert ended.stdout.startswith("penstock")
    # A program would wait for it, and say so.
    assert ended.stderr == ""
