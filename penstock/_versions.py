"""Which Python and PySpark this package runs on, checked when it is imported.

PySpark's version is read from the `pyspark` package that an import would find, without importing
it: that package may be an installed distribution, or the folder or zip file of a Spark
installation that is on the path of an executor, which has no metadata. This file must stay
readable for older Pythons, or its message would never be seen.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys

MINIMUM_PYTHON = (3, 10)
MINIMUM_PYSPARK = (4, 0)
FIRST_UNFIT_PYSPARK = (5, 0)
PYSPARK_REQUIREMENT = "pyspark>=4.0,<5"
FIRST_PYSPARK_WITHOUT_PYTHON_3_10 = (4, 3)

_VERSION_LINE = re.compile(r"^__version__\b[^=\n]*=\s*[\"']([^\"']+)[\"']", re.MULTILINE)


def find_pyspark_version() -> str | None:
    """Return the version of the PySpark that an import would find, or None when there is none.

    Raises:
        ImportError: There is a package named `pyspark`, but it does not say its version.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    path = os.path.join(os.path.dirname(spec.origin), "version.py")
    try:
        # A loader reads from zip files as well as from folders.
        text = spec.loader.get_data(path).decode()  # type: ignore[union-attr]  # both kinds have it
    except (AttributeError, OSError) as error:
        raise ImportError(
            f"penstock cannot tell the version of PySpark at {spec.origin}. "
            f"Reinstall it: pip install '{PYSPARK_REQUIREMENT}'"
        ) from error
    match = _VERSION_LINE.search(text)
    if match is None:
        raise ImportError(
            f"penstock cannot read the version of PySpark in {path}. "
            f"Reinstall it: pip install '{PYSPARK_REQUIREMENT}'"
        )
    return match.group(1)


def check_versions(
    python: tuple[int, ...] = tuple(sys.version_info[:3]), pyspark: str | None = None
) -> None:
    """Raise unless this Python and this PySpark fit.

    Args:
        python: The Python version, as numbers.
        pyspark: The PySpark version; None looks for the one that an import would find.

    Raises:
        ImportError: One of them is missing, too old or too new. The message names both versions
            and what to install.
    """
    if pyspark is None:
        pyspark = find_pyspark_version()
    found = f"this is Python {'.'.join(map(str, python))} with " + (
        f"PySpark {pyspark}" if pyspark else "no PySpark"
    )
    needs = "penstock needs Python 3.10 or later and PySpark 4.x"
    if python < MINIMUM_PYTHON:
        raise ImportError(f"{needs}; {found}. Install Python 3.10 or later.")
    numbers = re.match(r"(\d+)\.(\d+)", pyspark or "")
    if numbers is None or not (
        MINIMUM_PYSPARK <= (int(numbers[1]), int(numbers[2])) < FIRST_UNFIT_PYSPARK
    ):
        raise ImportError(f"{needs}; {found}. Run: pip install '{PYSPARK_REQUIREMENT}'")
    # pip does not install the two together, but a cluster's Spark may meet an older Python.
    if python < (3, 11) and (int(numbers[1]), int(numbers[2])) >= FIRST_PYSPARK_WITHOUT_PYTHON_3_10:
        raise ImportError(
            f"PySpark 4.3 and later need Python 3.11 or later; {found}. Install Python 3.11 or "
            "later, or run: pip install 'pyspark>=4.0,<4.3'"
        )
