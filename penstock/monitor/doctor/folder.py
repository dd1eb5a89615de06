"""Where logs are: a disk of this host or HDFS, tried by writing there; and Kerberos."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import posixpath
import shutil
import statistics
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.files.addresses import is_on_hdfs, is_on_objects, is_shared
from penstock.monitor.doctor.driver import Finding, Level, size_text
from penstock.settings import Settings
from penstock.wal import (
    FileSystem,
    HadoopConfiguration,
    HdfsFileSystem,
    ObjectFileSystem,
    WalError,
    locate,
    normal_address,
    object_store_help,
)

_WRITES = 16
_WRITE_BYTES = 64 << 10
_SLOW_SYNC_S = 0.05
"""A source is acknowledged after a sync: slower ones are felt at every block."""
_ROOM_BYTES = 5_000_000_000
"""As in the alert `PenstockLogNearlyFull`."""
_KLIST_S = 10.0


@dataclass(frozen=True)
class _Trial:
    """How writing into a folder went.

    Attributes:
        is_direct: Writes pass the page cache.
        syncs_s: How long each forced write took.
        free_bytes: Room on its file system; below 0: not known.
    """

    is_direct: bool
    syncs_s: list[float]
    free_bytes: int


def check_folder(address: str, settings: Settings, patience_s: float) -> list[Finding]:
    """Write into a folder, or the nearest one above it that exists, and time it.

    Args:
        address: A path of this host, or ``hdfs://…``.
        settings: Say how large segments are.
        patience_s: How long HDFS may take to answer.
    """
    try:
        address = normal_address(address)
        fs, path = _file_system(address, patience_s)
        above = _nearest(fs, path)
        trial = _try(fs, above)
    except (OSError, WalError) as error:
        return [Finding("log folder", Level.PROBLEM, f"{address}: {error}", _change(address))]
    where = (
        address if above == path else f"{address} (tried in {fs.address(above)}, it is not there)"
    )
    findings = [Finding("log folder", Level.OK, f"{where} can be written to")]
    median_s = statistics.median(trial.syncs_s)
    took = f"{median_s * 1000:.1f} ms in the median, {max(trial.syncs_s) * 1000:.1f} ms at most"
    how = "" if is_shared(address) else f", {'direct' if trial.is_direct else 'no direct'} I/O"
    found = f"{took}, of {size_text(_WRITE_BYTES)} each{how}"
    if median_s > _SLOW_SYNC_S:
        faster = "storage that is nearer" if is_shared(address) else "a faster disk"
        change = f"{faster} for spark.penstock.wal.dir: a source waits so long for each block"
        findings.append(Finding("log sync", Level.WARNING, found, change))
    else:
        findings.append(Finding("log sync", Level.OK, found))
    if trial.free_bytes >= 0:
        findings.append(_of_room(trial.free_bytes, settings))
    return findings


def _of_room(free_bytes: int, settings: Settings) -> Finding:
    found = f"{size_text(free_bytes)} free"
    change = "make room, or let spark.penstock.wal.dir name a larger disk"
    if free_bytes < 2 * settings.wal_segment_bytes:
        least = f"{found}, and each receiver's log takes {size_text(settings.wal_segment_bytes)}"
        return Finding("log space", Level.PROBLEM, least + " at a time", change)
    if free_bytes < _ROOM_BYTES:
        return Finding("log space", Level.WARNING, found, change)
    return Finding("log space", Level.OK, found)


def _file_system(address: str, patience_s: float) -> tuple[FileSystem, str]:
    if not is_on_hdfs(address):
        return locate(address)
    authority, _, path = address.removeprefix("hdfs://").partition("/")
    named = f"hdfs://{authority}" if authority else ""
    return HdfsFileSystem(named, patience_s=patience_s), f"/{path}"


def _nearest(fs: FileSystem, path: str) -> str:
    """Return the folder, or the nearest one above it that exists."""
    while fs.has_folders and not fs.is_folder(path) and path != "/":
        above, name = posixpath.split(path)
        if fs.is_folder(above) and name in fs.list_folder(above):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        path = above
    return path


def _try(fs: FileSystem, folder: str) -> _Trial:
    if isinstance(fs, ObjectFileSystem):
        fs.check_conditions(folder)
    path = posixpath.join(folder, f".penstock-doctor-{uuid.uuid4().hex}")
    file = fs.create(path, direct=True)
    try:
        try:
            file.preallocate(_WRITES * _WRITE_BYTES)
            syncs_s = []
            with mmap.mmap(-1, _WRITE_BYTES) as page:  # Aligned, as direct I/O wants it.
                for number in range(_WRITES):
                    begun_s = time.monotonic()
                    file.write(number * _WRITE_BYTES, [page], sync=True)
                    syncs_s.append(time.monotonic() - begun_s)
            is_direct = file.direct
        finally:
            # What broke while it was written breaks here again, and says less.
            with contextlib.suppress(OSError):
                file.close()
    finally:
        fs.remove(path)
    return _Trial(is_direct, syncs_s, fs.free_bytes(folder))


def _change(address: str) -> str:
    if is_on_hdfs(address):
        return (
            "start HDFS, mend the address (spark.penstock.wal.dir, hdfs://host:port/folder), or "
            "let HADOOP_CONF_DIR name the cluster's configuration folder"
        )
    if is_on_objects(address):
        return f"spark.penstock.wal.dir: {object_store_help(address)}"
    return "let spark.penstock.wal.dir name a folder on a disk that this user may write to"


def check_kerberos(environ: Mapping[str, str]) -> Finding | None:
    """Look for a ticket, when Hadoop's configuration asks for one; None when it does not."""
    try:
        configuration = HadoopConfiguration.of(environ)
    except OSError as error:
        change = "mend the file, or let HADOOP_CONF_DIR name another folder"
        return Finding("Kerberos", Level.PROBLEM, str(error), change)
    if not configuration.uses_kerberos:
        return None
    keytab = environ.get("KRB5_CLIENT_KTNAME", "").removeprefix("FILE:")
    if keytab:
        if os.access(keytab, os.R_OK):
            return Finding("Kerberos", Level.OK, f"the keytab {keytab} (KRB5_CLIENT_KTNAME)")
        change = "let KRB5_CLIENT_KTNAME name a keytab that this user may read, or unset it"
        return Finding("Kerberos", Level.PROBLEM, f"the keytab {keytab} cannot be read", change)
    change = "kinit, or let KRB5_CLIENT_KTNAME name a keytab; KRB5CCNAME names the tickets' cache"
    klist = shutil.which("klist", path=environ.get("PATH"))
    if klist is not None:
        try:
            ended = subprocess.run(
                [klist, "-s"], env=dict(environ), timeout=_KLIST_S, check=False
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return Finding("Kerberos", Level.WARNING, f"klist: {error}", change)
        if ended == 0:
            return Finding("Kerberos", Level.OK, "there is a valid ticket (klist)")
        return Finding("Kerberos", Level.PROBLEM, "there is no valid ticket (klist)", change)
    cache = environ.get("KRB5CCNAME", f"FILE:/tmp/krb5cc_{os.getuid()}").removeprefix("FILE:")
    if ":" not in cache and not os.access(cache, os.R_OK):
        return Finding("Kerberos", Level.PROBLEM, f"there are no tickets in {cache}", change)
    found = f"tickets in {cache}; whether they are valid is not known without klist"
    return Finding("Kerberos", Level.WARNING, found, "install klist (krb5-user, krb5-workstation)")
