"""`outlast prices` as a user meets it: stand-ins of every provider behind it, or a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.market.conftest import ENVIRON, ND, SECRETS, SkippingClock, access_to
from tests.market.samples import SAVED

from outlast.daemon.cli import prices
from outlast.providers.market import plain_csv
from outlast.providers.market.cache import TTL_S
from outlast.providers.market.offline import read_answers
from outlast.providers.market.registry import NAMES
from outlast.simulations.standins import market as standins
from outlast.simulations.standins.market import AwsMarket, Market, RunPodMarket

TYPES = "p4d.24xlarge,Standard_ND96asr_v4,a2-highgpu-1g,1xNVIDIA_A100-SXM4-80GB,8xA100_SXM4_80GB"
REGIONS = "us-east-1,eastus,us-central1,US-KS-2,SE"
EVERYTHING = ("--type", TYPES, "--region", REGIONS)
HEADINGS = ["provider", "region", "zone", "type", "GPUs", "spot $/h", "lowest bid $/h", "on-demand $/h"]
HEADINGS += ["reclaimed (month)", "savings", "evicted %/h", "preempted/stopped", "launch score"]
HEADINGS += ["obtainable 0-1", "uptime, est.", "stock"]
TABLE = """\
vast SE m11 8xA100_SXM4_80GB 8_a100-80g - 5.2000 9.6000 - - - - - - - -
runpod US-KS-2 - 1xNVIDIA_A100-SXM4-80GB 1_a100-80g - 0.7900 1.8900 - - - - - - - High
aws us-east-1 use1-az4 p4d.24xlarge 8_a100-40g 9.8316 - - - - - - 9 - - -
azure eastus - Standard_ND96asr_v4 8_a100-40g 11.2500 - 27.1970 - - 5-10 - High - - -
gcp us-central1 - a2-highgpu-1g 1_a100-40g 1.4694 - 3.6734 - - - - - - - -
aws us-east-1 use1-az6 p4d.24xlarge 8_a100-40g 12.0123 - - - - - - 3 - - -
aws us-east-1 - p4d.24xlarge 8_a100-40g - - - 10-15% 62% - - - - - -
gcp us-central1 us-central1-a a2-highgpu-1g 1_a100-40g - - - - - - 0.4 - 0.7 3600s -
gcp us-central1 us-central1-b a2-highgpu-1g 1_a100-40g - - - - - - 0.4 - - - -
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


class Providers:
    """The stand-ins of every provider, served by a loop in a thread of its own, and who asks them."""

    def __init__(self, clock: SkippingClock, capture: pytest.CaptureFixture[str]) -> None:
        self.clock = clock
        self.markets: dict[str, Market] = {
            name: standins.create(name, clock=clock) for name in standins.MARKETS
        }
        aws = self.markets["aws"]
        assert isinstance(aws, AwsMarket)
        aws.scores = [row for row in aws.scores if row["region"] == "us-east-1"]
        self._capture = capture
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def start(self) -> None:
        """All listen."""
        self._thread.start()
        for market in self.markets.values():
            self._do(market.start())
        ends = {name: url for market in self.markets.values() for name, url in market.endpoints.items()}
        self._access = replace(access_to(None, self.clock, ENVIRON), endpoints=ends)

    def stop(self) -> None:
        """None listens."""
        for market in self.markets.values():
            self._do(market.close())

    def end(self) -> None:
        """No thread stays."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def outlast_prices(self, *words: object) -> Outcome:
        """Run the command to its end."""
        parser = argparse.ArgumentParser()
        prices.add_parser(parser.add_subparsers())
        args = parser.parse_args(["prices", *map(str, words)])
        self._capture.readouterr()
        code = prices.run(args, self._access)
        return Outcome(code, *self._capture.readouterr())

    @property
    def requests(self) -> int:
        """How often any provider was asked anything."""
        return sum(len(market.requests) for market in self.markets.values())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)


@pytest.fixture
def providers(clock: SkippingClock, capsys: pytest.CaptureFixture[str]) -> Iterator[Providers]:
    """Every provider, up."""
    made = Providers(clock, capsys)
    made.start()
    yield made
    made.end()


def rows(table: str) -> list[list[str]]:
    """The cells of each row below the headings; what is in one cell is joined by "_"."""
    return [[cell.replace(" ", "_") for cell in _cells(line)] for line in table.splitlines()[1:]]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_the_table_has_a_row_a_pool_and_a_column_a_measure(providers: Providers) -> None:
    """All sources side by side, the cheapest GPU first; what sources never have is said on stderr."""
    done = providers.outlast_prices(*EVERYTHING)
    assert done.code == 0
    assert rows(done.out) == [line.split() for line in TABLE.splitlines()]
    assert _cells(done.out.splitlines()[0]) == HEADINGS
    assert [line.split(": ")[:2] for line in done.err.splitlines()] == [
        ["outlast prices", "aws-prices"],
        ["outlast prices", "gcp-prices"],
    ]


def test_json_is_all_of_every_answer(providers: Providers, tmp_path: Path) -> None:
    """One object on stdout, an answer a source in their order, which reads back as it is."""
    done = providers.outlast_prices("--json", *EVERYTHING)
    assert done.code == 0
    body = json.loads(done.out)
    assert body["format"] == 1
    assert [answer["source"] for answer in body["answers"]] == list(NAMES)
    assert all(answer["complete"] for answer in body["answers"])
    path = tmp_path / "prices.json"
    path.write_text(done.out)
    assert [len(a.quotes) + len(a.risks) for a in read_answers(path)] == [
        len(answer["quotes"]) + len(answer["risks"]) for answer in body["answers"]
    ]
    assert all(a.quotes or a.risks for a in read_answers(path))


def test_csv_is_the_prices_alone(providers: Providers) -> None:
    """The same prices as in the JSON, under the columns that are read back."""
    done = providers.outlast_prices("--csv", *EVERYTHING)
    answers = json.loads(providers.outlast_prices("--json", *EVERYTHING).out)["answers"]
    expected = [(q["instance_type"], q["zone"], q["micro_usd"]) for a in answers for q in a["quotes"]]
    assert done.code == 0
    found = plain_csv.read(done.out.encode(), 0.0, "file:x").quotes
    assert [(q.instance_type, q.zone, q.micro_usd) for q in found] == expected
    assert next(csv.reader(io.StringIO(done.out))) == list(plain_csv.COLUMNS)


def test_what_was_printed_can_be_shown_without_network(providers: Providers, tmp_path: Path) -> None:
    """A file of `--json` gives the same table; nobody is asked, and types and regions choose in it."""
    path = tmp_path / "prices.json"
    path.write_text(providers.outlast_prices("--json", *EVERYTHING).out)
    asked = providers.requests
    done = providers.outlast_prices("--offline", path)
    assert (done.code, rows(done.out)) == (0, [line.split() for line in TABLE.splitlines()])
    chosen = providers.outlast_prices("--offline", path, "--type", "a100-80g", "--region", "SE,eastus")
    assert [row[:4] for row in rows(chosen.out)] == [["vast", "SE", "m11", "8xA100_SXM4_80GB"]]
    assert providers.requests == asked


def test_a_file_and_a_source_that_is_named_stand_side_by_side(providers: Providers, tmp_path: Path) -> None:
    """With a file only the sources that are named are asked."""
    path = tmp_path / "advisor.json"
    path.write_text(json.dumps(SAVED["aws-advisor"]))
    words = ("--json", "--offline", path, "--source", "azure-prices", "--type", f"p4d.24xlarge,{ND}")
    answers = json.loads(providers.outlast_prices(*words).out)["answers"]
    assert [answer["source"] for answer in answers] == ["aws-advisor", "azure-prices"]
    assert [name for name, market in providers.markets.items() if market.requests] == ["azure"]


def test_a_providers_name_stands_for_its_sources(providers: Providers) -> None:
    """Names with commas or given again, in any order."""
    words = ("--json", *EVERYTHING, "--source", "vast,azure", "--source", "azure-prices")
    answers = json.loads(providers.outlast_prices(*words).out)["answers"]
    assert [a["source"] for a in answers] == ["azure-prices", "azure-evictions", "azure-scores", "vast"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "a10o"), "did you mean a10 or a10g"),
        (("--type", "a100,h10"), "did you mean h100"),
        (("--source", "awz"), "choose from aws, azure, gcp, runpod, vast, aws-prices"),
        (("--source", "none,vast"), "source 'none' is not known"),
    ],
)
def test_an_unknown_name_is_usage_and_nobody_is_asked(
    providers: Providers, words: tuple[str, str], said: str
) -> None:
    """Status 2, with what is close or what there is."""
    done = providers.outlast_prices(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert providers.requests == 0


@pytest.mark.parametrize("shape", [(), ("--json",), ("--csv",)])
@pytest.mark.parametrize(
    "words", [("--source", "none"), ("--source", "azure", "--type", "p4d.24xlarge"), ("--region", "Nowhere!")]
)
def test_nothing_at_all_is_failure_and_said(
    providers: Providers, words: tuple[str, ...], shape: tuple[str, ...]
) -> None:
    """Status 1 and a line on what to do, also where no source lacks anything."""
    done = providers.outlast_prices(*words, *shape)
    assert done.code == 1
    assert "no price and no figure; name other types, regions or sources" in done.err
    if not shape:
        assert done.out == ""


def test_a_second_question_is_answered_from_disk(providers: Providers) -> None:
    """Within the hour nobody is asked again, unless told so."""
    first = providers.outlast_prices(*EVERYTHING)
    asked = providers.requests
    assert providers.outlast_prices(*EVERYTHING) == first
    assert providers.requests == asked
    assert providers.outlast_prices("--no-cache", *EVERYTHING) == first
    assert providers.requests > asked


def test_old_answers_are_shown_while_everything_is_down(providers: Providers) -> None:
    """The table is there, status 0, and each source's trouble and age are said."""
    first = providers.outlast_prices(*EVERYTHING)
    providers.stop()
    providers.clock.slept.append(8 * TTL_S)
    done = providers.outlast_prices(*EVERYTHING, "--timeout", "5")
    assert (done.code, done.out) == (0, first.out)
    for name in NAMES:
        assert f"outlast prices: {name}: as answered 8 h ago, as it gives nothing now" in done.err


def test_everything_down_is_failure(providers: Providers) -> None:
    """Status 1, and each source says in one line what it met."""
    providers.stop()
    done = providers.outlast_prices(*EVERYTHING, "--timeout", "5")
    assert (done.code, done.out) == (1, "")
    for name in NAMES:
        assert f"outlast prices: {name}: " in done.err


@pytest.mark.parametrize("kind", ["", "html", "401", "500", "redirect", "half"])
def test_no_secret_is_printed_or_kept(providers: Providers, tmp_path: Path, kind: str) -> None:
    """Neither with answers nor with trouble: not on stdout or stderr, and in no file of the cache."""
    for market in providers.markets.values():
        if kind:
            market.misbehave(kind)
    done = providers.outlast_prices("--json", *EVERYTHING, "--timeout", "5")
    folder = tmp_path / "cache/outlast/market"
    kept = sorted(folder.iterdir()) if folder.is_dir() else []
    assert bool(kept) == (kind == "")
    shown = [done.out, done.err, *(path.read_text() for path in kept), *(path.name for path in kept)]
    assert not any(secret in text for secret in SECRETS for text in shown)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in kept)


@pytest.mark.parametrize("before", [0, 60, 92, 99])
def test_a_key_that_an_endpoint_repeats_is_not_shown(providers: Providers, before: int) -> None:
    """RunPod's reason is quoted without the key, also where the quotation ends in the midst of it."""
    market, key = providers.markets["runpod"], ENVIRON["RUNPOD_API_KEY"]
    assert isinstance(market, RunPodMarket)
    market.errors = [{"message": "x" * before + key}]
    done = providers.outlast_prices("--source", "runpod", *EVERYTHING)
    assert done.code == 1
    assert "RunPod refuses the query: " in done.err
    assert key[:6] not in done.err


def test_text_of_a_provider_moves_no_cursor(providers: Providers) -> None:
    """Escape sequences and line breaks in what is published are shown as spaces."""
    aws = providers.markets["aws"]
    assert isinstance(aws, AwsMarket)
    aws.advisor = {
        "ranges": [{"index": 0, "label": "\x1b[2J<5%\n", "max": 5}],
        "spot_advisor": {"us-east-1": {"Linux": {"p4d.24xlarge": {"r": 0}, "p5\x1b.48xlarge": {"r": 0}}}},
    }
    done = providers.outlast_prices("--source", "aws-advisor", "--type", "p4d.24xlarge")
    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    assert all(line.isprintable() for line in done.out.splitlines())


def process(*words: object, program: tuple[str, ...] = ("-m", "outlast")) -> Outcome:
    """`outlast prices WORDS` as a process without a network that it could reach, or credentials."""
    dropped = ("AWS_", "AZURE_", "GOOGLE_", "RUNPOD_", "VAST_", "NO_PROXY", "no_proxy", "OUTLAST_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    env |= dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"), "http://127.0.0.1:9")
    env |= {"HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true", "NO_GCE_CHECK": "true"}
    done = subprocess.run(
        [sys.executable, *program, "prices", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=30,
        env=env,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--type", "a10o"), "did you mean a10"),
        (("--count", "0"), "give 1 to 1000 instances"),
        (("--count", "some"), "give 1 to 1000 instances"),
        (("--days", "91"), "give 0 to 90 days"),
        (("--timeout", "nan"), "give 0.1 to 600 seconds"),
        (("--json", "--csv"), "not allowed with"),
    ],
)
def test_wrong_words_are_usage(words: tuple[str, ...], said: str) -> None:
    """Status 2, nothing on stdout, and what would be right."""
    done = process(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_file_is_shown_without_network_and_sdks(tmp_path: Path) -> None:
    """A saved answer of AWS needs neither boto3 nor a connection."""
    path = tmp_path / "history.json"
    path.write_text(json.dumps(SAVED["aws-prices"]))
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('boto3', 'botocore', 'google'), None));"
        "from outlast.__main__ import main; sys.exit(main())"
    )
    done = process("--offline", path, "--csv", program=("-c", program))
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1:] == [
        "aws,us-east-1,use1-az4,p4d.24xlarge,spot,9.831600,1796119200.000",
        "aws,us-east-1,use1-bos1-az1,p4d.24xlarge,spot,12.012345,1795996800.000",
    ]


def test_a_file_that_cannot_be_used_is_failure(tmp_path: Path) -> None:
    """Status 1 and one line with the file's name; what is right in other files is not shown either."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(SAVED["vast"]))
    bad.write_text("{")
    done = process("--offline", good, "--offline", bad)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"outlast prices: {bad} cannot be used: ")
    assert len(done.err.splitlines()) == 1


def test_without_network_and_credentials_every_source_says_what_it_needs() -> None:
    """As on a fresh machine: status 1, no traceback, one line or more a source."""
    done = process("--type", "a100", "--region", REGIONS, "--timeout", "2", "--no-cache")
    assert (done.code, done.out) == (1, "")
    assert "Traceback" not in done.err
    for name in NAMES:
        assert f"outlast prices: {name}: " in done.err
