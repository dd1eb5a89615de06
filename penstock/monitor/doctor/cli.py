"""``penstock doctor``: checks a machine or a cluster before a program runs on it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence

from penstock.errors import SettingError
from penstock.host.durability import scratch_parent
from penstock.host.startup_checks import check_spark_settings
from penstock.monitor.doctor.cluster import check_cluster
from penstock.monitor.doctor.driver import (
    check_java,
    check_memory,
    check_open_files,
    check_ports,
    check_python,
)
from penstock.monitor.doctor.finding import Finding, Level
from penstock.monitor.doctor.folder import check_folder, check_kerberos
from penstock.monitor.tables import clean, table
from penstock.settings import Settings

_EPILOG = """\
exit codes: 0 nothing keeps a program from running (there may be warnings), 1 there is a problem,
            2 wrong usage
"""
_LINES_WIDTH = 200
_UNCUT_WIDTH = 1 << 20


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``penstock doctor`` with these arguments and return its exit code."""
    options = make_parser().parse_args(argv)
    conf = {}
    for pair in options.conf:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            print(f"penstock doctor: --conf {pair}: KEY=VALUE is wanted", file=sys.stderr)
            return 2
        conf[key.strip()] = value.strip()
    if not options.timeout > 0 or options.receivers < 0:
        print("penstock doctor: --timeout is above 0, --receivers 0 or more", file=sys.stderr)
        return 2
    findings = _findings(options, conf)
    try:
        if options.json:
            told = [
                {
                    "check": found.check,
                    "level": found.level.value,
                    "found": found.found,
                    "change": found.change,
                }
                for found in findings
            ]
            print(json.dumps(told, indent=2))
        else:
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _LINES_WIDTH
            print(*_lines(findings, width), sep="\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough: keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if any(found.level is Level.PROBLEM for found in findings) else 0


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock doctor``."""
    parser = argparse.ArgumentParser(
        prog="penstock doctor",
        description="Check this machine, and with --master a cluster, before a program runs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--master", metavar="URL", help="start Spark with it and ask its executors")
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the program; may be given again",
    )
    parser.add_argument(
        "--folder",
        metavar="FOLDER",
        help="where logs or checkpoints will lie, or hdfs://… (spark.penstock.wal.dir, or else "
        "Spark's folder for temporary files)",
    )
    parser.add_argument(
        "--receivers", type=int, default=1, metavar="N", help="so many on this host (1)"
    )
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="what the program imports, here and on executors; may be given again",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long executors and HDFS may take (60)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    return parser


def _findings(options: argparse.Namespace, conf: dict[str, str]) -> list[Finding]:
    findings = check_python(options.module)
    java = check_java(os.environ)
    findings.append(java)
    settings = Settings()
    try:
        settings = Settings.from_pairs(conf.items())
        check_spark_settings(conf.get, settings, options.receivers)
    except SettingError as error:
        ours = error.key.startswith(("spark.penstock.", "spark.streaming."))
        meaning = f"; penstock settings {error.key} says what it means" if ours else ""
        findings.append(Finding("settings", Level.PROBLEM, str(error), f"mend it{meaning}"))
    findings += [check_memory(settings, options.receivers), check_open_files()]
    findings += check_ports(settings)
    folder = options.folder or settings.wal_dir or scratch_parent(conf, os.environ)
    findings += check_folder(folder, settings, options.timeout)
    kerberos = check_kerberos(os.environ)
    if kerberos is not None:
        findings.append(kerberos)
    if options.master is not None and java.level is Level.PROBLEM:
        found = "not asked: Spark does not start without Java"
        findings.append(Finding("cluster", Level.PROBLEM, found, java.change))
    elif options.master is not None:
        findings += check_cluster(options.master, conf, options.module, options.timeout)
    return findings


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
