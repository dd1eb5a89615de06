"""The ids of topics, as the two clients and Kafka's own tools write them."""

from __future__ import annotations

from penstock.sources.kafka.records import topic_id_of


def test_a_topic_id_is_the_same_text_in_each_notation() -> None:
    of_tools = "lkbt-7RjTXmaf7Y77_SuAA"
    of_librdkafka = "lkbt+7RjTXmaf7Y77/SuAA"
    of_kafka_python = "9646edfb-b463-4d79-9a7f-b63beff4ae00"
    found = {topic_id_of(each) for each in (of_tools, of_librdkafka, of_kafka_python)}
    assert found == {of_tools}
