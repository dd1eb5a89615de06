"""The output operations that write files: one folder for each batch."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import RDD

from penstock.streaming._call_site import call_site
from penstock.streaming.dstream.arity import with_time
from penstock.streaming.dstream.output import ForEachDStream
from penstock.streaming.dstream.output_specs import refuse_existing_folders
from penstock.streaming.dstream.rdd_files import remove_unfinished_output
from penstock.streaming.dstream.stream_handle import StreamHandle, T_co
from penstock.streaming.durations import time_milliseconds

__all__ = ["SaveOperations"]


class SaveOperations(StreamHandle[T_co]):
    """What a stream can be saved as.

    Each RDD goes to a folder of its own, ``prefix-<ms>`` or ``prefix-<ms>.suffix``, with the batch
    time in milliseconds since the epoch. A folder that is there already is left as it is: the
    batch was saved before. Any path that Hadoop knows will do.
    """

    def saveAsTextFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Save each RDD as text files, a line for each record."""
        self._save(prefix, suffix, "saveAsTextFiles", lambda rdd, path: rdd.saveAsTextFile(path))

    def saveAsObjectFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Save each RDD as files of pickled records, which `SparkContext.pickleFile` reads."""
        self._save(
            prefix, suffix, "saveAsObjectFiles", lambda rdd, path: rdd.saveAsPickleFile(path)
        )

    def saveAsHadoopFiles(
        self,
        prefix: str,
        suffix: str | None,
        outputFormatClass: str,
        keyClass: str | None = None,
        valueClass: str | None = None,
        keyConverter: str | None = None,
        valueConverter: str | None = None,
        conf: dict[str, str] | None = None,
        compressionCodecClass: str | None = None,
    ) -> None:
        """Save each RDD of pairs in a format of Hadoop's older API.

        Args:
            prefix: Begin of the folders' path.
            suffix: Its end, or None.
            outputFormatClass: As for `RDD.saveAsHadoopFile`; so are the others.
            keyClass: A Hadoop `Writable`; None to find it out.
            valueClass: The same.
            keyConverter: Makes keys into what the format can have.
            valueConverter: The same for values.
            conf: Hadoop configuration.
            compressionCodecClass: Compresses the files; None for none.
        """

        def save(rdd: RDD[Any], path: str) -> None:
            rdd.saveAsHadoopFile(
                path,
                outputFormatClass,
                keyClass,
                valueClass,
                keyConverter,
                valueConverter,
                conf,
                compressionCodecClass,
            )

        self._save(prefix, suffix, "saveAsHadoopFiles", save)

    def saveAsNewAPIHadoopFiles(
        self,
        prefix: str,
        suffix: str | None,
        outputFormatClass: str,
        keyClass: str | None = None,
        valueClass: str | None = None,
        keyConverter: str | None = None,
        valueConverter: str | None = None,
        conf: dict[str, str] | None = None,
    ) -> None:
        """Save each RDD of pairs in a format of Hadoop's newer API.

        Args:
            prefix: Begin of the folders' path.
            suffix: Its end, or None.
            outputFormatClass: As for `RDD.saveAsNewAPIHadoopFile`; so are the others.
            keyClass: A Hadoop `Writable`; None to find it out.
            valueClass: The same.
            keyConverter: Makes keys into what the format can have.
            valueConverter: The same for values.
            conf: Hadoop configuration.
        """

        def save(rdd: RDD[Any], path: str) -> None:
            rdd.saveAsNewAPIHadoopFile(
                path, outputFormatClass, keyClass, valueClass, keyConverter, valueConverter, conf
            )

        self._save(prefix, suffix, "saveAsNewAPIHadoopFiles", save)

    def _save(
        self, prefix: str, suffix: str | None, name: str, save: Callable[[RDD[Any], str], None]
    ) -> None:
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a str, not {type(prefix).__name__}")
        ending = "" if suffix is None else f".{suffix}"

        def save_batch(time: datetime, rdd: RDD[Any]) -> None:
            path = f"{prefix}-{time_milliseconds(time)}{ending}"
            with refuse_existing_folders(rdd.context):
                try:
                    save(rdd, path)
                except Py4JJavaError as error:
                    if "FileAlreadyExistsException" not in str(error):
                        raise
                    if remove_unfinished_output(rdd.context, path):
                        save(rdd, path)

        ForEachDStream(self._node, with_time(save_batch, 1), call_site(name))
