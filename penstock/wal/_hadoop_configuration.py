"""What Hadoop's configuration folder says of what the HDFS client does not look up itself.

The client reads the folder, too; it takes the block size and the copies of a new file from the
server's defaults, where Hadoop's own client takes them from the configuration.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

__all__ = ["AUTHENTICATION", "HadoopConfiguration"]

AUTHENTICATION = "hadoop.security.authentication"

_logger = logging.getLogger("penstock.wal")

_FILES = ("core-site.xml", "hdfs-site.xml")
_NUMBER = re.compile(r"\s*([0-9]+)([kmgtpe]?)\s*", re.IGNORECASE)
_PREFIXES = ("", "k", "m", "g", "t", "p", "e")


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

        A file that is not there says nothing; of one that is no plain XML a warning says so.

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
