"""A real Kerberos realm on a free port of loopback, and what makes an HDFS ask for its tickets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.bounds import HANG_S
from tests.services.jars import jars
from tests.services.ports import free_ports

POM = Path(__file__).with_name("kerberos.pom.xml")
REALM = "EXAMPLE.COM"
USER = "penstock"
START_S = HANG_S
STOP_S = HANG_S

_KDC = "org.apache.hadoop.minikdc.MiniKdc"
_PROPERTIES = """\
org.name=EXAMPLE
org.domain=COM
kdc.bind.address=localhost
kdc.port={port}
transport=TCP
min.ticket.lifetime=1
"""
_KRB5_CONF = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
ticket_lifetime = {lifetime_s}s
[realms]
{realm} = {{
  kdc = localhost:{port}
}}
"""
_TAKE_A_TICKET = """
import sys
from hdfs_native import Client

# Any call does: the GSSAPI library puts the ticket into the cache before it asks the server.
# That may be slower than the ticket is valid.
try:
    Client(sys.argv[1], config_dir=sys.argv[2]).get_file_info("/")
except RuntimeError as error:
    print(error, file=sys.stderr)
"""


class Kdc:
    """One KDC; it runs as long as the block that it is entered for.

    Args:
        folder: An empty folder for its data.

    Attributes:
        keytab: The keys of the user and of HDFS.
        krb5_conf: The file that ``KRB5_CONFIG`` names.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        [self._port] = free_ports(1)
        self.keytab = folder / "keytab"
        self.krb5_conf = self.configuration(24 * 3600)
        (folder / "kdc.properties").write_text(_PROPERTIES.format(port=self._port))
        self._log = folder / "log.txt"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def java_options(self) -> list[str]:
        """What Java needs, which does not look at ``KRB5_CONFIG``."""
        return [f"-Djava.security.krb5.conf={self.krb5_conf}"]

    def configuration(self, lifetime_s: int) -> Path:
        """Return a configuration of clients that ask for tickets of this lifetime."""
        path = self._folder / f"krb5-{lifetime_s}.conf"
        path.write_text(_KRB5_CONF.format(realm=REALM, port=self._port, lifetime_s=lifetime_s))
        return path

    def __enter__(self) -> Kdc:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it gives tickets."""
        home = os.environ.get("JAVA_HOME")
        program = os.path.join(home, "bin", "java") if home else "java"
        work = self._folder / "work"
        work.mkdir()
        arguments = [str(work), str(self._folder / "kdc.properties"), str(self.keytab)]
        # The user comes first: that is who a client is by default.
        principals = [USER, "hdfs/localhost", "HTTP/localhost"]
        classes = os.path.join(str(jars(POM)), "*")
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [program, "-Xmx128m", "-cp", classes, _KDC, *arguments, *principals],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + START_S
        while "Standalone MiniKdc Running" not in self._log.read_text():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < end, self._log.read_text()
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def hdfs_settings(self, protection: str) -> dict[str, str]:
        """Return the settings of an HDFS that believes this realm.

        Args:
            protection: What happens to data on the way: ``authentication``, ``integrity`` or
                ``privacy``.
        """
        keytab = str(self.keytab)
        server, web = f"hdfs/localhost@{REALM}", f"HTTP/localhost@{REALM}"
        return {
            "hadoop.security.authentication": "kerberos",
            # Who has a ticket is another user than the one who starts it.
            "dfs.permissions.enabled": "false",
            "hadoop.rpc.protection": protection,
            "dfs.data.transfer.protection": protection,
            "dfs.block.access.token.enable": "true",
            "dfs.namenode.kerberos.principal": server,
            "dfs.namenode.keytab.file": keytab,
            "dfs.datanode.kerberos.principal": server,
            "dfs.datanode.keytab.file": keytab,
            "dfs.web.authentication.kerberos.principal": web,
            "dfs.web.authentication.kerberos.keytab": keytab,
            # Otherwise its web page would need HTTPS and certificates.
            "ignore.secure.ports.for.testing": "true",
        }

    def environment(self, cache: Path) -> dict[str, str]:
        """Return the environment of a client whose only credentials are those in a cache."""
        return {"KRB5_CONFIG": str(self.krb5_conf), "KRB5CCNAME": f"FILE:{cache}"}

    def take_ticket(self, cache: Path, address: str, conf_dir: Path, lifetime_s: int) -> None:
        """Put a ticket of the user into a cache, as `kinit` does."""
        environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.configuration(lifetime_s)),
            "KRB5_CLIENT_KTNAME": f"FILE:{self.keytab}",
            "KRB5CCNAME": f"FILE:{cache}",
        }
        command = [sys.executable, "-c", _TAKE_A_TICKET, address, str(conf_dir)]
        told = subprocess.run(
            command, env=environment, timeout=START_S, check=True, capture_output=True, text=True
        )
        assert cache.exists(), told.stderr
