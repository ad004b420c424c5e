"""Prices from files: what is known by its content, and what is said of a file that cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.market.samples import ANSWERS, HISTORY, SAVED, ZONES, price, quotes

from outlast.providers.market import offline, plain_csv
from outlast.providers.market.base import Answer, Quote
from outlast.providers.market.offline import OfflineError, body_of, dump_answers, read_answers

SAVED_AT = 1_796_200_000.0  # 2 December 2026
ND = "Standard_ND96asr_v4"
# What of each saved answer counts: place and type with kind or measure, and the amount or the lower end.
EXPECTED: dict[str, set[tuple[str, str, str, str, float]]] = {
    "aws-advisor": {
        ("us-east-1", "", "p4d.24xlarge", "reclaimed-per-month", 10.0),
        ("us-east-1", "", "p4d.24xlarge", "savings", 62.0),
        ("us-east-1", "", "p5.48xlarge", "reclaimed-per-month", 20.0),
        ("us-east-1", "", "p5.48xlarge", "savings", 52.0),
        ("us-west-2", "", "p4d.24xlarge", "reclaimed-per-month", 20.0),
        ("us-west-2", "", "p4d.24xlarge", "savings", -62.0),
    },
    "aws-prices": {
        ("us-east-1", "use1-az4", "p4d.24xlarge", "spot", 9_831_600),
        ("us-east-1", "use1-bos1-az1", "p4d.24xlarge", "spot", 12_012_345),
    },
    "azure-prices": {
        ("eastus", "", ND, "on_demand", 27_197_000),
        ("eastus", "", ND, "spot", 10_878_800),
        ("westus2", "", ND, "spot", 8_703_041),
        ("eastus", "", "Standard_NC24ads_A100_v4", "spot", 1_469_000),
    },
    "azure-evictions": {
        ("eastus", "", ND, "evicted-per-hour", 5.0),
        ("westus2", "", ND, "evicted-per-hour", 20.0),
        ("eastus", "", "Standard_NC24ads_A100_v4", "evicted-per-hour", 0.0),
        ("eastus", "", ND, "spot", 10_878_800),
        ("eastus", "", ND, "spot", 11_250_000),
    },
    "azure-scores": {("eastus", "", ND, "placement-score", 3.0)},
    "gcp-prices": {
        ("us-central1", "", f"a2-highgpu-{n}g", kind, n * micro)
        for n in (1, 2, 4, 8)
        for kind, micro in (("on_demand", 3_673_385), ("spot", 1_469_354))
    }
    | {
        ("us-central1", "", "a2-megagpu-16g", "on_demand", 55_739_504),
        ("us-central1", "", "a2-megagpu-16g", "spot", 22_295_802),
    },
    "vast": {
        ("SE", "m11", "8xA100_SXM4_80GB", "min_bid", 5_200_000),
        ("US", "m12", "1xA100_SXM4_40GB", "min_bid", 400_000),
        ("CA", "m13", "4xRTX_4090", "min_bid", 640_000),
        ("SE", "m14", "8xH100_SXM", "min_bid", 9_000_000),
    },
}


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file that is as old as ``SAVED_AT``."""

    def write(content: Any, name: str = "saved.json") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        os.utime(path, (SAVED_AT, SAVED_AT))
        return path

    return write


def figures(answer: Answer) -> set[tuple[str, str, str, str, float]]:
    """Everything an answer tells."""
    told: set[tuple[str, str, str, str, float]] = {
        (q.region, q.zone, q.instance_type, q.kind, q.micro_usd) for q in answer.quotes
    }
    return told | {(r.region, r.zone, r.instance_type, r.measure, r.low) for r in answer.risks}


@settings(max_examples=50)
@given(st.lists(ANSWERS, min_size=1, max_size=3))
def test_own_json_gives_the_same_back(answers: list[Answer]) -> None:
    """Nothing is lost or rounded between what `outlast prices --json` prints and reading it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "own.json"
        path.write_text(dump_answers(answers))
        assert read_answers(path) == tuple(answers)


@given(st.lists(quotes(), max_size=5))
def test_a_csv_gives_the_same_prices_back(some: list[Quote]) -> None:
    """To the millionth of a dollar, under the same names, and to the millisecond."""
    known = [replace(q, region=q.region or "anywhere") for q in some]
    found = plain_csv.read(plain_csv.write(known).encode(), 0.0, "file:x").quotes
    assert found == tuple(replace(q, at=float(f"{q.at:.3f}"), source="file:x") for q in known)


@pytest.mark.parametrize("source", SAVED)
def test_an_answer_as_it_was_saved_is_known_by_its_content(source: str, saved: Callable[..., Path]) -> None:
    """Each is read under the name of its source; what its source leaves out when asked is left out."""
    (answer,) = read_answers(saved(SAVED[source], "any name.txt"))
    assert answer.source == source
    assert answer.at == SAVED_AT
    assert figures(answer) == EXPECTED[source]
    assert {q.source for q in answer.quotes} | {r.source for r in answer.risks} == {source}
    assert answer.complete


def test_a_price_counts_from_its_own_time_or_that_of_the_file(saved: Callable[..., Path]) -> None:
    """AWS says when each price began; a bid at Vast.ai is as old as the file."""
    answers = read_answers(saved([SAVED["aws-prices"], SAVED["vast"]]))
    assert [q.at for q in answers[0].quotes] == [1_796_119_200.0, 1_795_996_800.0]
    assert {q.at for q in answers[1].quotes} == {SAVED_AT}


def test_pages_may_stand_in_one_list(saved: Callable[..., Path]) -> None:
    """Pages of one source, of several, and Outlast's own, one answer each, in order."""
    own = body_of([Answer("runpod", 5.0, lacks=("runpod: nothing",))])
    page = {"Items": SAVED["azure-prices"]["Items"][:1]}
    answers = read_answers(saved([page, SAVED["vast"], own, page]))
    assert [a.source for a in answers] == ["azure-prices", "vast", "runpod", "azure-prices"]


def test_a_zone_name_without_its_id_is_said_with_what_to_add(saved: Callable[..., Path]) -> None:
    """A letter means another zone in another account; an id in the row itself is enough."""
    own_id = price("us-east-1c", "1.5", "2026-11-30T00:00:00Z", AvailabilityZoneId="use1-az1")
    (answer,) = read_answers(saved({"SpotPriceHistory": [*HISTORY, own_id], "AvailabilityZones": ZONES[1:]}))
    assert {q.zone for q in answer.quotes} == {"use1-bos1-az1", "use1-az1"}
    assert not answer.complete
    assert "no zone id is known of us-east-1a" in answer.lacks[0]
    assert "aws ec2 describe-availability-zones" in answer.lacks[0]


def test_a_score_that_was_refused_is_said(saved: Callable[..., Path]) -> None:
    """Azure gives a word in place of a score that it does not have."""
    (answer,) = read_answers(saved(SAVED["azure-scores"]))
    assert answer.lacks == (f"azure-scores: no score of {ND} in westus2: DataNotFoundOrStale",)


CSV = """\
at,kind,instance_type,zone,region,provider,usd_per_hour,note
2026-11-30T00:00:00Z,spot,p4d.24xlarge,use1-az4,us-east-1,aws,9.8316,the zone's
1795996800.5,on_demand,p4d.24xlarge,,us-east-1,aws,32.7726,"a, b"
,min_bid,8xH100_SXM,m14,SE,vast,9,
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_csv_is_read_by_its_column_names(mark: bytes, newline: str, saved: Callable[..., Path]) -> None:
    """Columns in any order, others ignored, as editors of any system save it."""
    path = saved(mark + CSV.replace("\n", newline).encode(), "my prices.csv")
    source = "file:my_prices.csv"
    aws = ("aws", "us-east-1", "use1-az4", "p4d.24xlarge")
    expected = (
        Quote(*aws, "spot", 9_831_600, 1_795_996_800.0, source),
        Quote(*aws[:2], "", aws[3], "on_demand", 32_772_600, 1_795_996_800.5, source),
        Quote("vast", "SE", "m14", "8xH100_SXM", "min_bid", 9_000_000, SAVED_AT, source),
    )
    assert read_answers(path) == (Answer(source, SAVED_AT, expected),)


WRONG_CSV = {
    "usd_per_hour must be dollars": "aws,us-east-1,use1-az4,p4d.24xlarge,spot,-1,",
    "usd_per_hour must be": 'aws,us-east-1,use1-az4,p4d.24xlarge,spot,"1,5",',
    "kind must be one of spot, min_bid, on_demand": "aws,us-east-1,use1-az4,p4d.24xlarge,Spot,1,",
    "at must be a time such as": "aws,us-east-1,use1-az4,p4d.24xlarge,spot,1,yesterday",
    "at must be a time": "aws,us-east-1,use1-az4,p4d.24xlarge,spot,1,1e99",
    "at must be": "aws,us-east-1,use1-az4,p4d.24xlarge,spot,1,-5",
    "must be plain names": "aws,us-east-1,use1-az4,p4d\x1b[31m,spot,1,",
    "region, zone and instance_type must be": "aws,us-east-1,us east,p4d.24xlarge,spot,1,",
    "provider, region": "aws,us-east-1",
    "it is no CSV": "aws," + "x" * 200_000,
}


@pytest.mark.parametrize("said", WRONG_CSV)
def test_a_wrong_line_of_a_csv_is_named(said: str, saved: Callable[..., Path]) -> None:
    """With its number and what it must hold; no price of such a file is used."""
    good = "aws,us-east-1,use1-az4,p4d.24xlarge,spot,1,"
    text = "\n".join((",".join(plain_csv.COLUMNS), good, WRONG_CSV[said], good))
    with pytest.raises(OfflineError) as caught:
        read_answers(saved(text.encode()))
    assert "line 3: " in str(caught.value)
    assert said in str(caught.value)


UNUSABLE: dict[str, tuple[Any, str]] = {
    "empty": (b"", "as a CSV its first line lacks provider, region"),
    "blank": (b" \n\n", "as a CSV its first line lacks"),
    "garbage": (b"\x00\xff\xfe" * 30, "take what `outlast prices --json` prints"),
    "text": (
        b"Hello,\nthis is no list.\n",
        "it must name provider,region,zone,instance_type,kind,usd_per_hour",
    ),
    "cut": (dump_answers([Answer("vast", 1.0)])[:-3].encode(), "is not JSON"),
    "deep": (b"[" * 50_000, "is not JSON"),
    "a huge number": (b'{"offers": ' + b"9" * 5000 + b"}", "is not JSON"),
    "a list of numbers": ([1, 2], "its JSON list holds something that is no object"),
    "an empty list": ([], "it holds no answer"),
    "another's JSON": ({"prices": []}, "take what `outlast prices --json` prints, or a source's own answer"),
    "without a price": ({"offers": []}, "no price and no figure in it can be used (vast)"),
    "without a list": ({"Items": 5}, "azure-prices: the answer has no list 'Items'"),
    "another version's": ({"format": 2, "answers": []}, "it is from another version of Outlast"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_a_file_that_cannot_be_used_is_named_with_why(kind: str, saved: Callable[..., Path]) -> None:
    """The text names the file, says what is wrong in it or what to take instead, and stays one line."""
    content, said = UNUSABLE[kind]
    path = saved(content)
    with pytest.raises(OfflineError) as caught:
        read_answers(path)
    text = str(caught.value)
    assert text.startswith(f"{path} cannot be used: ")
    assert said in text
    assert text.isprintable()
    assert len(text) < 700


def _own(**wrong: Any) -> dict[str, Any]:
    good = Quote("aws", "us-east-1", "use1-az4", "p4d.24xlarge", "spot", 5, 1.0, "aws-prices")
    body = body_of([Answer("aws-prices", 1.0, (good,))])
    body["answers"][0]["quotes"][0].update(wrong)
    return body


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("provider", "a b"),
        ("zone", None),
        ("instance_type", "x" * 200),
        ("kind", "future"),
        ("kind", []),
        ("micro_usd", 0),
        ("micro_usd", 1.5),
        ("micro_usd", True),
        ("micro_usd", 10**12),
        ("at", "now"),
        ("at", -1),
        ("at", 1e12),
        ("source", ""),
    ],
)
def test_own_json_is_read_strictly(key: str, value: Any, saved: Callable[..., Path]) -> None:
    """A value that Outlast never writes is refused, with where it stands."""
    with pytest.raises(OfflineError, match=rf"answers\[0\]\.quotes\[0\]\.{key} is no"):
        read_answers(saved(_own(**{key: value})))


def test_a_file_that_is_too_large_is_not_read(
    saved: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would fill the memory; the text says what to do."""
    monkeypatch.setattr(offline, "MAX_FILE", 10)
    with pytest.raises(OfflineError, match="it has more than 10 bytes; save fewer types or regions"):
        read_answers(saved(SAVED["vast"]))


def test_a_folder_or_no_file_is_said(tmp_path: Path) -> None:
    """In the system's own words, with the path."""
    with pytest.raises(OfflineError, match=f"^{tmp_path} cannot be read: Is a directory$"):
        read_answers(tmp_path)
    missing = tmp_path / "none.json"
    with pytest.raises(OfflineError, match=f"^{missing} cannot be read: No such file or directory$"):
        read_answers(missing)


@pytest.mark.parametrize("name", [b"\x1b[31mred\nline.json", b"\xff\xfe.json", b"\xe2\x80\xaetxt.json"])
def test_a_hostile_file_name_is_printable(name: bytes, tmp_path: Path) -> None:
    """What a name holds moves no cursor and breaks no line, in an error or as a source."""
    path = tmp_path / os.fsdecode(name)
    with pytest.raises(OfflineError) as caught:
        read_answers(path)
    assert str(caught.value).isprintable()
    path.write_text(f"{','.join(plain_csv.COLUMNS)}\naws,us-east-1,,g5.xlarge,spot,1,\n")
    (answer,) = read_answers(path)
    assert answer.source.isascii()
    assert answer.source.isprintable()
    path.write_text(dump_answers([answer]))
    assert read_answers(path) == (answer,)
