# Copyright 2026 The refit authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of settled D11, out of what `refit sync --json` prints."""

import statistics

FIGURES = ("stage_ms", "install_ms", "stall_ms", "whole_ms", "sync_ms")
FIRST_COPIES = ("stage", "send", "transfer")  # spans in which bytes may move


def slowest(report, name):
    """Of the engines' figures, in milliseconds; None where this build does not report it."""
    values = [engine[name] for engine in report["engines"] if name in engine]
    return max(values) * 1e3 if values else None


def bounds(report, name):
    """(begin, end) of all spans of that name, in seconds since the sync was accepted; None without any."""
    spans = [span for span in report["spans"] if span["name"] == name]
    return (min(span["begin"] for span in spans), max(span["end"] for span in spans)) if spans else None


def first_copy(report):
    begins = [found[0] for found in (bounds(report, name) for name in FIRST_COPIES) if found]
    return min(begins) if begins else 0.0


def sample(report):
    """One sync, in milliseconds. whole_ms: from the first copy until the last engine was resumed; stall_ms: from the
    pause, which comes before it. stage_ms: from the transfer's start until the last load was ready for the engine;
    install_ms: in the engine's update calls."""
    begin = first_copy(report)
    figures = {
        "stage_ms": slowest(report, "stage_seconds"),
        "install_ms": slowest(report, "install_seconds"),
        "stall_ms": max(report["stall_seconds"]) * 1e3,
        "whole_ms": (report["seconds"] - begin) * 1e3,
        "sync_ms": report["seconds"] * 1e3,
    }
    figures["phases_ms"] = {name: bounds(report, name)[1] * 1e3 - bounds(report, name)[0] * 1e3
                            for name in dict.fromkeys(span["name"] for span in report["spans"])}
    return rounded(figures)


def rounded(value):
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return value


def medians(samples):
    """Over samples, name by name; phases too."""
    result = {}
    for name in FIGURES:
        values = [one[name] for one in samples if one[name] is not None]
        result[name] = statistics.median(values) if values else None
    names = dict.fromkeys(name for one in samples for name in one["phases_ms"])
    result["phases_ms"] = {}
    for name in names:
        result["phases_ms"][name] = statistics.median(one["phases_ms"][name] for one in samples
                                                      if name in one["phases_ms"])
    return rounded(result)
