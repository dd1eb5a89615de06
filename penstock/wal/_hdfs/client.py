"""What the HDFS client leaves to its users: settings that it does not read, and errors.

The client also reads Hadoop's configuration folder; it takes the block size and the copies of a new
file from the server's defaults, where Hadoop's own client takes them from the configuration.

What it raises becomes an `OSError` with an error number here: it raises plain `RuntimeError` with
the name of the server's Java class in its text, `OSError` without a number, and a `PanicException`
that is no `Exception`. What is asked again, and what a full disk is, must not hang on such texts
all over the place.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.wal._answers import StorageAwayError

AUTHENTICATION = "hadoop.security.authentication"

_logger = logging.getLogger("penstock.wal")

_NAME_NODES = "dfs.ha.namenodes"
_RANDOM_ORDER = "dfs.client.failover.random.order"
_FILES = ("core-site.xml", "hdfs-site.xml")
_NUMBER = re.compile(r"\s*([0-9]+)([kmgtpe]?)\s*", re.IGNORECASE)
_PREFIXES = ("", "k", "m", "g", "t", "p", "e")

_RPC_ERROR = re.compile(r'(?:Fatal)?RPCError\("([\w.$]+)", "(.*)', re.DOTALL)
_UNPROVED = re.compile(
    r"(?:GSSAPIError|SASLError|NoSASLMechanism|OperationFailed\(\"Failed to load libgssapi)"
    r'(?:\(.*"(.+)"\))?',
    re.DOTALL,
)
_NOT_BY_KERBEROS = "SIMPLE authentication is not enabled"
_CUT_OFF = "RPC listener disconnected"
_NO_SERVICE = "No NameNode hosts found"
_NO_DEFAULT = "No fs.defaultFS setting found"
_TOO_FEW_NODES = "could only be written to"
_NO_DATA_NODE = "All DataNodes failed"
_RUNNING = re.compile(r"There are (\d+) datanode\(s\) running and (\w+) node\(s\) are excluded")
_REFUSED_FOR_NOW = (
    "SafeModeException",
    "StandbyException",
    "RetriableException",
    "RetryStartFileException",
    "ObserverRetryOnActiveException",
    "NotReplicatedYetException",
    "ServerTooBusyException",
)
_UNPROVED_KINDS = ("SaslException", "SecretManager$InvalidToken")
_NUMBERS = {
    "DSQuotaExceededException": errno.EDQUOT,
    "NSQuotaExceededException": errno.EDQUOT,
    "QuotaByStorageTypeExceededException": errno.EDQUOT,
    "AccessControlException": errno.EACCES,
    "AuthorizationException": errno.EACCES,
    "PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "ParentNotDirectoryException": errno.ENOTDIR,
    "RecoveryInProgressException": errno.EBUSY,
    "AlreadyBeingCreatedException": errno.EBUSY,
}


@dataclass(frozen=True)
class HadoopConfiguration:
    """The settings of a configuration folder.

    Attributes:
        folder: The folder; empty when the environment names none.
        settings: What its files say, by name.
    """

    folder: str
    settings: Mapping[str, str]

    @staticmethod
    def of(environment: Mapping[str, str]) -> HadoopConfiguration:
        """Return the configuration that an environment names, as the client finds it.

        A missing file says nothing; one that is no plain XML gives a warning.

        Args:
            environment: ``HADOOP_CONF_DIR``, or else ``HADOOP_HOME``, leads to the folder.

        Raises:
            OSError: A file cannot be read.
        """
        folder = environment.get("HADOOP_CONF_DIR")
        if folder is None and "HADOOP_HOME" in environment:
            folder = os.path.join(environment["HADOOP_HOME"], "etc", "hadoop")
        settings: dict[str, str] = {}
        for name in _FILES if folder else ():
            settings.update(_read(os.path.join(str(folder), name)))
        return HadoopConfiguration(folder or "", settings)

    @property
    def where(self) -> str:
        """How to name the folder in an error."""
        return self.folder or "HADOOP_CONF_DIR (which is not set)"

    @property
    def uses_kerberos(self) -> bool:
        """Whether clients prove who they are by Kerberos."""
        return self.settings.get(AUTHENTICATION, "simple") != "simple"

    def in_turn(self, authority: str, turn: int) -> dict[str, str]:
        """Return settings by which a client asks another one of several NameNodes first.

        Args:
            authority: The address of the file system; empty for the default one.
            turn: Which one: each is the first in turn.
        """
        address = authority or self.settings.get("fs.defaultFS", "")
        service = address.removeprefix("hdfs://").split("/")[0]
        names = self.settings.get(f"{_NAME_NODES}.{service}", "").split(",")
        first = turn % len(names)
        if not first:
            return {}
        return {
            f"{_NAME_NODES}.{service}": ",".join(names[first:] + names[:first]),
            f"{_RANDOM_ORDER}.{service}": "false",
        }

    def number(self, name: str) -> int | None:
        """Return a number, or a size such as ``128m``; None when it is not set.

        Raises:
            OSError: It is no number.
        """
        value = self.settings.get(name)
        if value is None:
            return None
        match = _NUMBER.fullmatch(value)
        if match is None:
            raise OSError(errno.EINVAL, f"{name} is no number: {value!r}", self.folder)
        return int(match[1]) << (10 * _PREFIXES.index(match[2].lower()))


def _read(path: str) -> dict[str, str]:
    from xml.etree import ElementTree

    try:
        root = ElementTree.parse(path).getroot()
    except FileNotFoundError:
        return {}
    except ElementTree.ParseError as error:
        # The client has the last word: it knows entities that are other files.
        _logger.warning("%s is not looked into for the sizes of files: %s", path, error)
        return {}
    found = {}
    for each in root.iter("property"):
        name, value = each.findtext("name"), each.findtext("value")
        if name is not None and value is not None:
            found[name.strip()] = value.strip()
    return found


class HdfsUnavailableError(StorageAwayError):
    """HDFS did not do what it was asked, and may do it later: not reachable, or in safe mode.

    To ask again may help within seconds.

    Attributes:
        is_refusal: Certainly nothing was done.
        by_name_node: The NameNode said so; else a NameNode or a DataNode did not answer.
        is_cut_off: The NameNode broke the connection off.
    """

    def __init__(self, message: str, path: str, *, is_refusal: bool, by_name_node: bool) -> None:
        super().__init__(message, path)
        self.is_refusal = is_refusal
        self.by_name_node = by_name_node
        self.is_cut_off = _CUT_OFF in message


class HdfsAuthenticationError(OSError):
    """HDFS does not believe, or does not know, who calls it. To ask again does not help."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(errno.ENOKEY, message, path)


def explained(error: OSError, authority: str, configuration: HadoopConfiguration) -> OSError:
    """Return an error with the way out, if it is one of the configuration or the environment.

    Args:
        error: As from `translated`.
        authority: The address of the file system; empty for the default one.
        configuration: What the client was made with.
    """
    where = authority or configuration.settings.get("fs.defaultFS", "hdfs://")
    path, message = str(error.filename), str(error.strerror)
    if isinstance(error, HdfsAuthenticationError):
        if not configuration.uses_kerberos:
            return HdfsAuthenticationError(
                f"{where} asks for Kerberos ({message}), and hadoop.security.authentication is "
                f"not kerberos in {configuration.where}: let HADOOP_CONF_DIR name the cluster's "
                "configuration folder, in the driver and on every host",
                path,
            )
        return HdfsAuthenticationError(
            f"{where} asks for Kerberos, and this process could not prove who it is ({message}): "
            "give it a valid ticket (kinit; KRB5CCNAME names the cache) or a keytab "
            "(KRB5_CLIENT_KTNAME), in the environment of the driver and, by "
            "spark.executorEnv.*, of the executors",
            path,
        )
    if _NO_DEFAULT in message:
        return OSError(
            error.errno,
            f"the address names no NameNode, and {configuration.where} has no fs.defaultFS",
            path,
        )
    if _NO_SERVICE in message:
        return OSError(
            error.errno,
            f"the NameNodes of {where} are not known: it has no port, and {configuration.where} "
            "does not tell (dfs.ha.namenodes.*, dfs.namenode.rpc-address.*)",
            path,
        )
    return error


def translated(error: BaseException, path: str) -> OSError:
    """Return the client's error as one with an error number and the path.

    Args:
        error: What the client raised.
        path: The path that it was asked about.
    """
    text = str(error)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, FileExistsError):
        return FileExistsError(errno.EEXIST, _first_line(text), path)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, _first_line(text), path)
    if isinstance(error, StorageAwayError):
        return error
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, error.strerror or _first_line(text), path)
    if isinstance(error, OSError):
        return HdfsUnavailableError(
            f"HDFS: {_first_line(text)}",
            path,
            is_refusal="Connection refused" in text,
            by_name_node=False,
        )
    match = _RPC_ERROR.match(text)
    unproved = _UNPROVED.match(text)
    if unproved is not None:
        return HdfsAuthenticationError(_first_line(unproved[1] or text), path)
    if _NO_DATA_NODE in text:
        return StorageAwayError("HDFS: no DataNode gives a block of it", path)
    if match is None:
        return OSError(errno.EIO, f"HDFS: {_first_line(text)}", path)
    kind, message = match[1].rpartition(".")[2], _first_line(match[2])
    if kind in _REFUSED_FOR_NOW:
        return HdfsUnavailableError(
            f"HDFS: {kind}: {message}", path, is_refusal=True, by_name_node=True
        )
    if kind in _UNPROVED_KINDS or _NOT_BY_KERBEROS in message:
        return HdfsAuthenticationError(f"{kind}: {message}", path)
    number = _NUMBERS.get(kind, errno.EIO)
    if number == errno.EIO and _TOO_FEW_NODES in message:
        running = _RUNNING.search(message)
        # Nodes that run and were not excluded for an error have no room.
        if running is not None and running[1] != "0" and running[2] == "no":
            number = errno.ENOSPC
    return OSError(number, f"HDFS: {kind}: {message}", path)


def _first_line(text: str) -> str:
    return re.split(r"\\n|\n", text, maxsplit=1)[0].removesuffix('")')
