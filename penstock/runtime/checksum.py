"""CRC-32C, by the processor's own instruction.

The package `crc32c` looks its version up when it is imported, in all that is on `sys.path`. In a
worker of Spark those are archives of 7,500 files: it takes a tenth of a second, and 5 MB stay. So
its extension is loaded without it (found with crc32c 2.9).
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c as crc32c
else:
    _package = find_spec("crc32c")
    _extension = _package and PathFinder.find_spec(
        "crc32c._crc32c", _package.submodule_search_locations
    )
    if _extension:
        _module = module_from_spec(_extension)
        _extension.loader.exec_module(_module)
        crc32c = _module.crc32c
    else:
        pass
