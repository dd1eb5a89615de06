"""`pyspark.mllib`'s streaming algorithms on this project's streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.mllib.classification import StreamingLogisticRegressionWithSGD
from pyspark.mllib.clustering import StreamingKMeans
from pyspark.mllib.linalg import Vectors
from pyspark.mllib.regression import LabeledPoint, StreamingLinearRegressionWithSGD
from pyspark.streaming import DStream as SparkDStream

from penstock.streaming import DStream
from tests.streaming.batches import batches

pytestmark = pytest.mark.slow


def test_a_stream_is_one_of_pysparks_and_uses_nothing_of_it(sc: Any) -> None:
    with batches(sc) as run:
        assert isinstance(run.ssc.queueStream([[1]]), SparkDStream)
    public = [name for name in vars(SparkDStream) if not name.startswith("_")]
    assert [name for name in public if not hasattr(DStream, name)] == []
    assert [name for name in public if getattr(DStream, name) is vars(SparkDStream)[name]] == []


@pytest.mark.long
def test_clusters_follow_the_batches(sc: Any) -> None:
    model = StreamingKMeans(k=2, decayFactor=0.0).setInitialCenters([[0.0], [1.0]], [1.0, 1.0])
    point = Vectors.dense([4.0])
    assert model.latestModel().predict(point) == 1
    with batches(sc) as run:
        learned = [[0.0, 10.0], [2.0, 20.0]]
        model.trainOn(run.ssc.queueStream([[Vectors.dense([x]) for x in xs] for xs in learned]))
        asked = run.ssc.queueStream([[point]] * 2)
        found = run.collect(model.predictOn(asked))
        keyed = run.collect(model.predictOnValues(asked.map(lambda x: ("key", x))))
        run.run(2)
    assert [center[0] for center in model.latestModel().centers] == pytest.approx([2.0, 20.0])
    # By what was learned, and not by the model that there was when the stream was made.
    assert found[1] == [0]
    assert keyed[1] == [("key", 0)]


def linear() -> Any:
    return StreamingLinearRegressionWithSGD(stepSize=0.5, numIterations=50)


def logistic() -> Any:
    return StreamingLogisticRegressionWithSGD(stepSize=5.0, numIterations=50)


@pytest.mark.exhaustive  # In CI clusters follow the batches.
@pytest.mark.parametrize("make", [linear, logistic])
def test_weights_follow_the_batches_and_predict_with_what_was_learned(
    sc: Any, make: Callable[[], Any]
) -> None:
    def examples() -> Iterator[LabeledPoint]:
        for x in (-1.0, -0.5, 0.5, 1.0):
            yield LabeledPoint(2 * x if make is linear else float(x > 0), [x])

    model = make()
    model.setInitialWeights([0.0])
    with batches(sc) as run:
        model.trainOn(run.ssc.queueStream([list(examples())] * 3))
        asked = run.ssc.queueStream([[Vectors.dense([1.0])]] * 3)
        found = run.collect(model.predictOn(asked))
        keyed = run.collect(model.predictOnValues(asked.map(lambda x: ("key", x))))
        run.run(3)
    (last,) = found[-1]
    assert last == (pytest.approx(2.0, abs=0.2) if make is linear else 1)
    assert keyed[-1] == [("key", last)]
    assert model.latestModel().weights[0] > 1.0
