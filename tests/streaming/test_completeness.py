"""What `pyspark.streaming` has, this has: the names, the parameters, the getters of events."""

from __future__ import annotations

import inspect
from typing import Any

import pyspark.streaming
import pytest

import penstock.receiver
import penstock.streaming
from penstock.listeners import events

ELSEWHERE = {
    "StreamingContext.__init__": "there is no streaming class of the JVM to hand over (`jssc`)",
    "DStream.__init__": "programs do not make streams themselves",
    "StreamingListener.Java": "tells py4j which interface of the JVM a listener has",
    "StreamingListener.__init__": "takes nothing there and here",
    "StreamingListener.onBatchStarted": "the argument is called `batchSubmitted` there by mistake",
}
"""What is not as in `pyspark.streaming`, with the reason."""

ONLY_IN_SCALA = {
    "StreamingContext": (
        "getState",
        "removeStreamingListener",
        "fileStream",
        "rawSocketStream",
        "socketStream",
        "receiverStream",
    ),
    "DStream": (
        "mapWithState",
        "print",
        "saveAsObjectFiles",
        "saveAsHadoopFiles",
        "saveAsNewAPIHadoopFiles",
    ),
}


def public_names(owner: type) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_") or name == "__init__"]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", pyspark.streaming.__all__)
def test_every_public_name_and_parameter_of_pyspark_is_there(name: str) -> None:
    theirs, ours = getattr(pyspark.streaming, name), getattr(penstock.streaming, name)
    different = []
    for member in public_names(theirs):
        if f"{name}.{member}" in ELSEWHERE:
            continue
        found, expected = getattr(ours, member, None), getattr(theirs, member)
        if found is None:
            different.append(f"{member} is missing")
        elif not callable(expected):
            assert type(found) is type(expected)
        elif parameters(found)[: len(parameters(expected))] != parameters(expected):
            different.append(f"{member}{inspect.signature(found)}")
    assert different == []


def test_what_is_listed_as_different_is_there_in_pyspark() -> None:
    for place in ELSEWHERE:
        owner, _, member = place.partition(".")
        assert hasattr(getattr(pyspark.streaming, owner), member), place


@pytest.mark.parametrize("name", sorted(ONLY_IN_SCALA))
def test_what_only_scala_has_is_there(name: str) -> None:
    owner = getattr(penstock.streaming, name)
    assert [member for member in ONLY_IN_SCALA[name] if not hasattr(owner, member)] == []


OF_CASE_CLASSES = {"canEqual", "copy", "curried", "equals", "hashCode", "toString", "tupled"}

EVENTS = {
    "JavaStreamingListenerStreamingStarted": events.StreamingStarted,
    "JavaStreamingListenerBatchSubmitted": events.BatchSubmitted,
    "JavaStreamingListenerBatchStarted": events.BatchStarted,
    "JavaStreamingListenerBatchCompleted": events.BatchCompleted,
    "JavaStreamingListenerOutputOperationStarted": events.OutputOperationStarted,
    "JavaStreamingListenerOutputOperationCompleted": events.OutputOperationCompleted,
    "JavaStreamingListenerReceiverStarted": events.ReceiverStarted,
    "JavaStreamingListenerReceiverError": events.ReceiverError,
    "JavaStreamingListenerReceiverStopped": events.ReceiverStopped,
    "JavaBatchInfo": events.BatchInfo,
    "JavaReceiverInfo": events.ReceiverInfo,
    "JavaStreamInputInfo": events.StreamInputInfo,
    "JavaOutputOperationInfo": events.OutputOperationInfo,
}


@pytest.mark.parametrize("java_name", sorted(EVENTS))
def test_every_getter_of_an_event_is_there(sc: Any, java_name: str) -> None:
    java_class = sc._jvm.java.lang.Class.forName(f"org.apache.spark.streaming.api.java.{java_name}")
    getters = {
        method.getName()
        for method in java_class.getDeclaredMethods()
        if method.getParameterCount() == 0 and not method.isSynthetic()
    }
    getters = {
        name
        for name in getters
        if name not in OF_CASE_CLASSES and "$" not in name and not name.startswith("product")
    }
    assert getters
    found = EVENTS[java_name]
    assert [name for name in sorted(getters) if not callable(getattr(found, name, None))] == []


LOGGING = """
LogStringContext MDC initializeForcefully initializeLogIfNecessary isTraceEnabled log
logBasedOnLevel logDebug logError logInfo logName logTrace logWarning withLogContext
"""

INTERNAL = f"""{LOGGING}
baseScope checkpointData checkpointDir checkpointDuration clearCheckpointData clearMetadata conf
createBlockRDD createNewSparkContext createRDDWithLocalProperties creationSite defaultPartitioner
dependencies env generateJob generatedRDDs getCreationSite getNewInputStreamId getOrCompute
getStartSite graph id initialCheckpoint initialize isCheckpointPresent isCheckpointingEnabled
isInitialized isTimeValid lastValidTime mustCheckpoint parentRememberDuration progressListener
rateController rddToFileName register rememberDuration restoreCheckpointData sc savedProperties
scheduler setContext setGraph sparkContext ssc storageLevel uiTab updateCheckpointData
validateAtStart waiter withNamedScope withScope zeroTime
attachSupervisor setReceiverId supervisor
"""
"""What only Spark itself calls; the JVM has no private members of a package as Scala has."""

NOT_THERE = {
    "StreamingContext": {"jarOfClass": "jars are no matter of a program in Python"},
    "dstream.DStream": {
        "compute": "`InputDStream` has it; other streams come from operations, `transform` too",
        "remember": "`StreamingContext.remember` is for all streams, as in PySpark",
        "slideDuration": "`_slideDuration`, as in PySpark",
        "toPairDStreamFunctions": "every stream has the operations of pairs",
    },
    "dstream.InputDStream": {"name": "the class's name"},
    "dstream.ReceiverInputDStream": {
        "getReceiver": "`receiverStream` is given the receiver",
        "start": "the context's",
        "stop": "the context's",
    },
    "scheduler.StatsReportListener": {
        "batchInfos": "it keeps them for itself",
        "extractDistribution": "it prints the distributions only",
        "showMillisDistribution": "it prints the distributions only",
    },
}
"""What programs in Scala may call and is not here, with the reason."""

CLASSES = {
    "StreamingContext": penstock.streaming.StreamingContext,
    "dstream.DStream": penstock.streaming.DStream,
    "dstream.PairDStreamFunctions": penstock.streaming.DStream,
    "dstream.MapWithStateDStream": penstock.streaming.MapWithStateDStream,
    "dstream.InputDStream": penstock.streaming.InputDStream,
    "dstream.ReceiverInputDStream": penstock.streaming.ReceiverDStream,
    "receiver.Receiver": penstock.receiver.Receiver,
    "scheduler.StreamingListener": penstock.streaming.StreamingListener,
    "scheduler.StatsReportListener": penstock.streaming.StatsReportListener,
    "StateSpec": penstock.streaming.StateSpec,
    "State": penstock.streaming.State,
}


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_scala_is_there_or_has_a_reason(sc: Any, name: str) -> None:
    of_class = sc._jvm.java.lang.Class.forName
    owners = [name, f"{name}$"] if name in ("StreamingContext", "StateSpec") else [name]
    theirs = {
        method.getName()
        for owner in owners
        for method in of_class(f"org.apache.spark.streaming.{owner}").getMethods()
    }
    of_object = {method.getName() for method in of_class("java.lang.Object").getMethods()}
    known = {*INTERNAL.split(), *of_object, *NOT_THERE.get(name, ())}
    if name.startswith("dstream."):
        known |= {*NOT_THERE["dstream.DStream"]}
    found = {method for method in theirs if "$" not in method}
    assert {method for method in found - known if not hasattr(CLASSES[name], method)} == set()


def test_what_is_not_there_is_not_there() -> None:
    for name, members in NOT_THERE.items():
        assert [member for member in members if hasattr(CLASSES[name], member)] == [], name
