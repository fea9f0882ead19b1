"""What the gateway counts, as text for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST_LINES = 1000  # of one metric: labels come from small sets, and this holds if one does not

Sample = tuple[dict[str, str], float]


def exposition(look: dict[str, Any]) -> bytes:
    """What `Pulse.look` says, in the text format of Prometheus."""
    lines: list[str] = []

    def metric(name: str, kind: str, about: str, samples: Iterable[Sample]) -> None:
        lines.append(f"# HELP mqgateway_{name} {about}")
        lines.append(f"# TYPE mqgateway_{name} {kind}")
        for labels, value in [*samples][:MOST_LINES]:
            pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"mqgateway_{name}{{{pairs}}} {value}" if pairs else _plain(name, value))

    metric(
        "events_total",
        "counter",
        "Events that are safe, since the start.",
        [
            ({"protocol": protocol, "event": kind}, count)
            for protocol, kinds in look["totals"].items()
            for kind, count in kinds.items()
        ],
    )
    metric(
        "counted_total",
        "counter",
        "What is refused, dropped or odd, since the start.",
        [
            ({"what": each["what"], "labels": "/".join(each["labels"])}, each["count"])
            for each in look["counts"]
        ],
    )
    metric(
        "connections",
        "gauge",
        "Open connections.",
        [({"protocol": protocol}, count) for protocol, count in look["connections"].items()],
    )
    metric("newest_sequence", "counter", "The last record that is safe.", [({}, look["newest"])])
    metric("messages_waiting", "gauge", "Messages that wait.", [({}, look["waiting"])])
    metric(
        "messages_outstanding",
        "gauge",
        "Messages handed out and not settled.",
        [({}, look["outstanding"])],
    )
    metric("addresses", "gauge", "Queues, topics and the like.", [({}, look["addresses"])])
    metric(
        "journal_failing",
        "gauge",
        "1 while the journal cannot be written.",
        [({}, int(bool(look["failing"])))],
    )
    metric("uptime_seconds", "gauge", "Seconds since the start.", [({}, look["uptime"])])
    return ("\n".join(lines) + "\n").encode()


def _plain(name: str, value: float) -> str:
    return f"mqgateway_{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
