#!/bin/sh
# opentelemetry-exporter-prometheus 0.66b2 (SDK 1.45.2): after a force_flush the next scrape has each series
# several times, with its old values first.
#
# What force_flush of the MeterProvider collects waits in the reader; a scrape adds its own and gives all of it as one
# text. The format has each combination of a name and its labels once ("Text format details" of
# Prometheus), and a server that takes the first has the old value of the counter as that of now. A program
# that flushes each minute, or before it forks or checks its own numbers, and pushes some of them elsewhere
# by a second reader, does this. Seen (a counter that is 1, 2 and 3, flushed at 2 and 3):
#
