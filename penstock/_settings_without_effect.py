"""The keys of Spark Streaming that have no effect here, each with the reason.

A program that comes from `pyspark.streaming` may set them; it is warned once, and runs. The
defaults are Spark's: setting a key to its default asks for nothing, and is not worth a warning.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SettingWithoutEffect:
    """A key of Spark Streaming, or all keys that begin alike.

    Attributes:
        key: The configuration key; with ``*`` at its end it stands for all that begin so.
        reason: Why it has no effect, and what takes its place.
        default: Spark's default, as text in small letters; None when it has none.
    """

    key: str
    reason: str
    default: str | None = None

    def is_for(self, key: str) -> bool:
        """Tell whether this line is about `key`."""
        if self.key.endswith("*"):
            return key.startswith(self.key[:-1])
        return key == self.key


_ONE_LOG = "the segment log is the only log"
_GROUP_COMMIT = "writes that wait together always share one sync"
_OWN_CACHE = "the cache of Kafka consumers grows as it needs to"

SETTINGS_WITHOUT_EFFECT: tuple[SettingWithoutEffect, ...] = (
    SettingWithoutEffect(
        "spark.streaming.receiver.blockStoreTimeout",
        "a block is stored or an error is raised; `store` does not give up on a slow disk",
        "30",
    ),
    SettingWithoutEffect("spark.streaming.receiver.writeAheadLog.class", _ONE_LOG),
    SettingWithoutEffect("spark.streaming.driver.writeAheadLog.class", _ONE_LOG),
    SettingWithoutEffect(
        "spark.streaming.receiver.writeAheadLog.maxFailures",
        "a failed write is an error of the receiver, which is started again",
        "3",
    ),
    SettingWithoutEffect(
        "spark.streaming.driver.writeAheadLog.maxFailures",
        "a failed write is answered with a refusal, and the receiver sends again",
        "3",
    ),
    SettingWithoutEffect(
        "spark.streaming.receiver.writeAheadLog.closeFileAfterWrite", _ONE_LOG, "false"
    ),
    SettingWithoutEffect(
        "spark.streaming.driver.writeAheadLog.closeFileAfterWrite", _ONE_LOG, "false"
    ),
    SettingWithoutEffect(
        "spark.streaming.driver.writeAheadLog.allowBatching", _GROUP_COMMIT, "true"
    ),
    SettingWithoutEffect(
        "spark.streaming.driver.writeAheadLog.batchingTimeout", _GROUP_COMMIT, "5000"
    ),
    SettingWithoutEffect(
        "spark.streaming.stopSparkContextByDefault",
        "`stop` takes it as an argument, also in pyspark.streaming",
        "true",
    ),
    SettingWithoutEffect(
        "spark.streaming.sessionByKey.deltaChainThreshold",
        "`mapWithState` keeps states whole, not as chains of changes",
        "20",
    ),
    SettingWithoutEffect(
        "spark.streaming.dynamicAllocation.testing", "it is for Spark's own tests", "false"
    ),
    SettingWithoutEffect(
        "spark.streaming.extraListeners", "listeners are Python objects; add them in the program"
    ),
    SettingWithoutEffect("spark.streaming.clock", "it is for Spark's own tests"),
    SettingWithoutEffect("spark.streaming.manualClock.*", "it is for Spark's own tests"),
    SettingWithoutEffect("spark.streaming.internal.*", "it is Spark's own"),
    SettingWithoutEffect(
        "spark.streaming.kafka.allowNonConsecutiveOffsets",
        "gaps that compaction and transactions leave are always passed over",
        "false",
    ),
    SettingWithoutEffect("spark.streaming.kafka.consumer.cache.initialCapacity", _OWN_CACHE, "16"),
    SettingWithoutEffect("spark.streaming.kafka.consumer.cache.loadFactor", _OWN_CACHE, "0.75"),
    SettingWithoutEffect("spark.streaming.kinesis.*", "it belongs to Spark's Kinesis stream"),
)


def find_setting_without_effect(key: str) -> SettingWithoutEffect | None:
    """Return the line about `key`, or None when Spark Streaming has no such key."""
    return next((line for line in SETTINGS_WITHOUT_EFFECT if line.is_for(key)), None)
