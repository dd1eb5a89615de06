"""``penstock doctor``: checks a machine or a cluster before a program runs on it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence

import click
import msgspec

from penstock.commands import Command, Seconds, conf_option
from penstock.errors import SettingError
from penstock.host.durability import scratch_parent
from penstock.host.spark.contexts import take_storage
from penstock.host.spark.startup_checks import check_spark_settings
from penstock.monitor.doctor.cluster import check_cluster
from penstock.monitor.doctor.driver import (
    Finding,
    Level,
    check_java,
    check_memory,
    check_open_files,
    check_ports,
    check_python,
)
from penstock.monitor.doctor.folder import check_folder, check_kerberos
from penstock.monitor.tables import clean, table
from penstock.settings import Settings, settings_table

_EPILOG = """\
exit codes: 0 nothing keeps a program from running (there may be warnings), 1 there is a problem,
            2 wrong usage
"""
_LINES_WIDTH = 200
_UNCUT_WIDTH = 1 << 20


@click.command(
    cls=Command,
    epilog=_EPILOG,
)
@click.option("--master", metavar="URL", help="Start Spark with it and ask its executors.")
@conf_option
@click.option(
    "--folder",
    metavar="FOLDER",
    help="Where logs or checkpoints will be, or hdfs://… (spark.penstock.wal.dir, or else Spark's "
    "folder for temporary files).",
)
@click.option(
    "--receivers",
    type=click.IntRange(0),
    default=1,
    metavar="N",
    help="How many are to run on this host (1).",
)
@click.option(
    "--module",
    multiple=True,
    metavar="NAME",
    help="What the program imports, here and on executors; may be repeated.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=60.0,
    metavar="SECONDS",
    help="How long executors and HDFS may take (60).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def doctor(
    master: str | None,
    conf: dict[str, str],
    folder: str | None,
    receivers: int,
    module: Sequence[str],
    timeout: float,
    as_json: bool,
) -> int:
    """Check this machine, and with --master a cluster, before a program runs."""
    findings = check_python(module)
    java = check_java(os.environ)
    findings.append(java)
    settings = Settings()
    take_storage(conf.items())
    try:
        settings = Settings.from_pairs(conf.items())
        check_spark_settings(conf.get, settings, receivers)
    except SettingError as error:
        known = any(setting.key == error.key for setting in settings_table())
        meaning = f"; penstock settings {error.key} says what it means" if known else ""
        findings.append(Finding("settings", Level.PROBLEM, str(error), f"mend it{meaning}"))
    findings += [check_memory(settings, receivers), check_open_files()]
    findings += check_ports(settings)
    folder = folder or settings.wal_dir or scratch_parent(conf, os.environ)
    findings += check_folder(folder, settings, timeout)
    kerberos = check_kerberos(os.environ)
    if kerberos is not None:
        findings.append(kerberos)
    if master is not None and java.level is Level.PROBLEM:
        text = "not asked: Spark does not start without Java"
        findings.append(Finding("cluster", Level.PROBLEM, text, java.change))
    elif master is not None:
        findings += check_cluster(master, conf, module, timeout)
    if as_json:
        print(json.dumps(msgspec.to_builtins(findings), indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _LINES_WIDTH
        print(*_lines(findings, width), sep="\n")
    return 1 if any(found.level is Level.PROBLEM for found in findings) else 0


def _lines(findings: Sequence[Finding], width: int) -> list[str]:
    rows = [(found.level.value, found.check, found.found) for found in findings]
    heads = ("", "CHECK", "FOUND")
    shown, whole = table(heads, rows, width), table(heads, rows, _UNCUT_WIDTH)
    lines = [shown[0]]
    for found, cut_line, line in zip(findings, shown[1:], whole[1:], strict=True):
        # What is wrong, and what to do, is not cut off.
        lines.append(cut_line if found.level is Level.OK else line)
        if found.change:
            lines.append(f"         -> {clean(found.change)}")
    count = Counter(found.level for found in findings)
    lines.append(f"{count[Level.PROBLEM]} problem(s), {count[Level.WARNING]} warning(s)")
    return lines
