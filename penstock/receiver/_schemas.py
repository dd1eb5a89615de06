"""The schema that a receiver declares, in each form that Spark's users have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._arguments import refused

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Schema", "arrow_schema", "check_schema"]

if TYPE_CHECKING:
    Schema = pa.Schema | StructType | str

_ACCEPTED = (
    'a pyarrow.Schema, a pyspark.sql.types.StructType, or DDL such as "sensor STRING, value DOUBLE"'
)


def check_schema(schema: Any) -> None:
    """Check that a schema is of a type that is accepted; DDL is not read yet.

    Raises:
        TypeError: It is not.
    """
    if schema is None or isinstance(schema, (pa.Schema, str)):
        return
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType):
        raise TypeError(refused("schema", schema, _ACCEPTED))


def arrow_schema(schema: Any) -> pa.Schema | None:
    """Return a schema as Arrow has it. Reading DDL needs a SparkContext.

    Raises:
        TypeError: It is of another type.
        ValueError: The DDL cannot be read, a column has a type that Arrow does not have, or the
            columns have not one name each.
    """
    check_schema(schema)
    if schema is None:
        return None
    found = schema if isinstance(schema, pa.Schema) else _from_spark(schema)
    names: list[str] = found.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        reason = f"two columns have the name {twice[0]!r}" if twice else "it has no columns"
        raise ValueError(f"{refused('schema', schema, _ACCEPTED)} ({reason})")
    return found


def _from_spark(schema: StructType | str) -> pa.Schema:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from penstock.blockstore.arrow_frames import to_arrow_schema

    try:
        return to_arrow_schema(_from_ddl(schema) if isinstance(schema, str) else schema)
    except (PySparkException, Py4JJavaError) as error:
        # Without a SparkSession it is the JVM's own error, with fifty frames of it.
        java = getattr(error, "java_exception", None)
        text = str(error) if java is None else str(java.getMessage())
        reason = text.strip().splitlines()[0]
        raise ValueError(f"{refused('schema', schema, _ACCEPTED)} ({reason})") from None


def _from_ddl(text: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(text)
    if not isinstance(found, StructType):
        # DDL such as "int" is one type without a name.
        raise ValueError(refused("schema", text, _ACCEPTED))
    return found
