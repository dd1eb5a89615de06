"""Every configuration key, declared once: `Settings`, and what reads, checks and describes it.

What must hold: a value has one kind, which reads its text and says in words what it accepts. An
error, the reference page and the command ``penstock settings`` say what the table says. A secret
is in none of them.

==========  ======================================================================================
`table`     `Settings`: each key with its kind and its default; read out of a `SparkConf`
`values`    how the text of a setting is read: one class per kind of value
`_texts`    what is said of settings in words: ``texts.ini``
`_page`     the reference page, and ``penstock settings``
==========  ======================================================================================
"""

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.settings.table import (
        IO_ENCRYPTION,
        Setting,
        Settings,
        closest_setting,
        settings_table,
    )

__all__ = [
    "IO_ENCRYPTION",
    "Setting",
    "Settings",
    "closest_setting",
    "settings_table",
]

_MODULES = {"table": __all__}

if not TYPE_CHECKING:
    # Reading one value needs no table.
    __getattr__ = lazy_door(__name__, _MODULES)
