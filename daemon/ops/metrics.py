"""What ``status`` says as Prometheus metric families: a pure function, and the text that a scraper reads.

Labels are bounded: jobs, destinations and folders of the configuration, and the words of fixed lists. No
id, text of an error or credential is among them. What is not known has no sample, never a made-up one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

ROLES = ("primary", "standby", "fenced")
WATCH = ("ok", "asking", "blind", "off")
ROOM = ("ok", "low", "full", "unknown")

Status = Mapping[str, Any]


class Sheet:
    """Families in the order in which they were first spoken of, filled sample by sample."""

    def __init__(self) -> None:
        self.families: dict[str, Metric] = {}

    def gauge(self, name: str, help_: str, value: float | bool | None, **labels: str) -> None:
        """A sample; None for a value that is not known, which leaves the family there without it."""
        family = self.families.setdefault(name, GaugeMetricFamily(name, help_, labels=list(labels)))
        if value is not None:
            family.add_sample(name, labels, float(value))

    def counter(self, name: str, help_: str, value: float, **labels: str) -> None:
        """A sample of what only grows; ``name`` is without ``_total``."""
        family = self.families.setdefault(name, CounterMetricFamily(name, help_, labels=list(labels)))
        family.add_sample(f"{name}_total", labels, float(value))

    def one_of(self, name: str, help_: str, states: Iterable[str], now: str, **labels: str) -> None:
        """One gauge a state, of which one is 1."""
        for state in states:
            self.gauge(name, help_, state == now, **labels, **{name.rsplit("_", 1)[-1]: state})


def families(status: Status, now: float) -> list[Metric]:
    """Every family that can be told from a status; ``now`` is UTC epoch seconds."""
    sheet = Sheet()
    sheet.gauge("outlast_build_info", "The daemon's version.", 1, version=status["version"])
    _watch(sheet, status, now)
    _history(sheet, status["history"])
    for room in status["room"]:
        _room(sheet, room)
    for job in status["jobs"]:
        _job(sheet, job, now)
        for place in job["destinations"]:
            _destination(sheet, job["name"], place)
    return list(sheet.families.values())


def text(status: Status, now: float) -> bytes:
    """The families in Prometheus' text format, without time stamps."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Facts(lambda: families(status, now)))
    return generate_latest(registry)


class _Facts(Collector):
    def __init__(self, found: Callable[[], list[Metric]]) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        yield from self._found()


def _watch(sheet: Sheet, status: Status, now: float) -> None:
    watch, notices = status["provider"], status["notices"]
    sheet.one_of("outlast_watch_state", "How the watch of the provider does.", WATCH, watch["state"])
    seen = watch.get("seen_s_ago")
    seen = None if seen is None else now - seen
    sheet.gauge("outlast_watch_seen_timestamp_seconds", "When the provider last answered.", seen)
    sheet.gauge("outlast_notice_present", "Whether the provider takes the node back.", bool(notices))
    left = min((notice["seconds_left"] for notice in notices), default=None)
    until = None if left is None else now + left
    sheet.gauge("outlast_notice_deadline_timestamp_seconds", "The earliest announced end.", until)


def _history(sheet: Sheet, history: Status) -> None:
    trouble = history["trouble"] is not None
    sheet.gauge("outlast_history_trouble", "Whether the record cannot be written as it should.", trouble)
    sheet.gauge("outlast_history_waiting", "Records that are not on the disk yet.", history["waiting"])


def _room(sheet: Sheet, room: Status) -> None:
    labels = {"job": room["job"] or "", "folder": room["folder"]}
    sheet.one_of("outlast_room_state", "Room for checkpoints in a folder.", ROOM, room["state"], **labels)
    fits = room["fits"] if room["job"] else None
    sheet.gauge("outlast_room_checkpoints", "Checkpoints that still fit.", fits, **labels)
    sheet.gauge("outlast_room_free_bytes", "Bytes left there.", room["free_bytes"], **labels)
    sheet.gauge("outlast_room_free_inodes", "Inodes left there.", room["free_inodes"], **labels)


def _job(sheet: Sheet, job: Status, now: float) -> None:
    name, trainer, newest, done = job["name"], job["trainer"], job["newest"] or {}, job["measured"]
    sheet.one_of("outlast_job_role", "What this node is to the job.", ROLES, job["role"], job=name)
    for key, help_, value in (
        ("outlast_job_epoch", "The job's epoch here.", job["epoch"]),
        ("outlast_job_step", "The last step trained here.", trainer["step"]),
        ("outlast_job_ranks", "Ranks connected here.", trainer["ranks"]),
        ("outlast_job_held", "Whether the ranks wait for the end of a notice.", job["held"]),
        ("outlast_job_step_seconds", "How long a step takes.", trainer["step_s"]),
        (
            "outlast_checkpoint_interval_seconds",
            "Between checkpoints.",
            (job["interval"] or {}).get("seconds"),
        ),
        ("outlast_checkpoint_newest_step", "Step of the newest checkpoint here.", newest.get("step")),
        ("outlast_checkpoint_newest_bytes", "Its size.", newest.get("bytes")),
        ("outlast_checkpoint_newest_timestamp_seconds", "When it was made.", newest.get("created")),
        (
            "outlast_flush_last_seconds",
            "From the last request of a checkpoint to its commit.",
            done["flush_s"],
        ),
    ):
        sheet.gauge(key, help_, value, job=name)
    for outcome, count in done["flushes"].items():
        sheet.counter("outlast_flushes", "Checkpoints asked for here.", count, job=name, outcome=outcome)
    _taken_now(sheet, job, now)


def _taken_now(sheet: Sheet, job: Status, now: float) -> None:
    """What a loss this instant would cost; only a primary has something to lose."""
    taken, name = job["taken_now"] or {}, job["name"]
    for key, help_, value in (
        (
            "outlast_job_lost_steps",
            "Steps that would be lost, were the node taken now.",
            taken.get("lost_steps"),
        ),
        ("outlast_job_lost_seconds", "Training time that would be lost.", taken.get("lost_s")),
        ("outlast_peer_newest_step", "The step that the peer has.", taken.get("peer_step")),
    ):
        sheet.gauge(key, help_, value, job=name)
    left = job["next_checkpoint_s"]
    due = None if left is None else now + left
    sheet.gauge("outlast_checkpoint_due_timestamp_seconds", "When the next one is due.", due, job=name)


def _destination(sheet: Sheet, job: str, place: Status) -> None:
    labels = {"job": job, "destination": place["name"], "kind": place["kind"]}
    lag, newest, shipped = place["lag"] or {}, place["newest"] or {}, place["shipped"]
    healthy = None if place["reachable"] is None else bool(place["reachable"] and not place["because"])
    for key, help_, value in (
        ("outlast_destination_reachable", "Whether it answers.", place["reachable"]),
        ("outlast_destination_healthy", "Whether it answers and took what it was sent last.", healthy),
        ("outlast_destination_newest_step", "Step of the newest checkpoint there.", newest.get("step")),
        ("outlast_destination_lag_steps", "Steps that it is behind this node.", lag.get("steps")),
        ("outlast_destination_lag_bytes", "Bytes of the newest checkpoint that it lacks.", lag.get("bytes")),
        ("outlast_destination_lag_seconds", "How long it has been behind.", lag.get("seconds")),
        ("outlast_ship_last_seconds", "How long the last transfer took.", shipped["last_s"]),
    ):
        sheet.gauge(key, help_, value, **labels)
    sheet.counter("outlast_shipped_bytes", "Bytes sent and verified there.", shipped["bytes"], **labels)
    sheet.counter("outlast_ships", "Checkpoints verified there.", shipped["count"], **labels)
    sheet.counter("outlast_ship_failures", "Transfers that failed.", shipped["failures"], **labels)
