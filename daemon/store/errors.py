"""What a store's client raises, as a sentence for the person who runs the node. No secret, no document."""

from __future__ import annotations

import errno
import re
from collections.abc import Awaitable
from typing import TypeVar

from outlast.daemon.checkpoint.destinations import (
    BAD_REQUEST,
    CREDENTIALS,
    IO,
    NO_SPACE,
    Refused,
    Unreachable,
)
from outlast.daemon.store.address import Address

T = TypeVar("T")

_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_NO_CREDENTIALS = re.compile(
    r"token request|credential|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|AuthenticationFailed",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|BucketNotFound|bucket does not exist", re.IGNORECASE)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_WORDS = re.compile(r"os error (28|122)\b")
_DENIED_WORDS = re.compile(r"os error (1|13|30)\b")
_QUERY = re.compile(r"\?\S+")

_GRANT = {
    "s3": "give the node's role s3:PutObject, s3:GetObject, s3:DeleteObject and s3:AbortMultipartUpload on"
    " the bucket's objects and s3:ListBucket on the bucket, or set AWS_ACCESS_KEY_ID and"
    " AWS_SECRET_ACCESS_KEY for the daemon",
    "gs": "give the node's service account the role Storage Object User on the bucket, or set"
    " GOOGLE_APPLICATION_CREDENTIALS for the daemon",
    "az": "give the node's managed identity the role Storage Blob Data Contributor on the container, or set"
    " AZURE_STORAGE_ACCOUNT_KEY for the daemon",
    "file": "make the folder writable for the daemon, and under systemd name it in ReadWritePaths=",
}


async def asked(address: Address, answer: Awaitable[T]) -> T:
    """What the store answers. Raises Unreachable and Refused; lets the library's AlreadyExistsError pass."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        return await answer
    except AlreadyExistsError:
        raise
    except (BaseError, OSError, NotImplementedError) as exc:
        raise explained(address, exc) from None


async def sought(address: Address, answer: Awaitable[T]) -> T | None:
    """The same, with None where there is no such object (nor, for all that is known, its bucket)."""

    async def found() -> T | None:
        try:
            return await answer
        except FileNotFoundError:
            return None

    return await asked(address, found())


def explained(address: Address, exc: BaseException) -> Unreachable | Refused:
    """The failure in the words of the person who can do something about it."""
    text = str(exc)
    status, code = _STATUS.search(text), _CODE.search(text)
    said = " ".join(match[1] for match in (status, code) if match)
    if _is_full(exc, text):
        return Refused(NO_SPACE, f"{address} is full: make room there, or keep fewer checkpoints")
    if _denied(exc, text, status[1] if status else ""):
        answer = f" ({said})" if said else ""
        return Refused(
            CREDENTIALS, f"{address} does not take the credentials{answer}: {_GRANT[address.scheme]}"
        )
    if _NO_BUCKET.search(text) or isinstance(exc, FileNotFoundError):
        return _no_bucket(address)
    if status and status[1] in {"429", "503"}:
        return Unreachable(f"{address} throttles ({said}): it is tried again, more slowly")
    if status and status[1].startswith(("3", "4")) and status[1] != "408":
        return Refused(
            BAD_REQUEST, f"{address} refuses ({said}): check the bucket's name, region and endpoint"
        )
    if isinstance(exc, NotImplementedError):
        return Refused(IO, f"{address} cannot do what is asked: {_first_line(text)}")
    return Unreachable(f"{address} does not answer: {said or _first_line(text)}")


def _is_full(exc: BaseException, text: str) -> bool:
    return (isinstance(exc, OSError) and exc.errno in _FULL) or _FULL_WORDS.search(text) is not None


def _denied(exc: BaseException, text: str, status: str) -> bool:
    from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

    known = isinstance(exc, (PermissionDeniedError, UnauthenticatedError, PermissionError))
    told = status in {"401", "403"} or _DENIED_WORDS.search(text) is not None
    # A server that is out of order may well speak of tokens; that is not the credentials' fault.
    return known or told or (not status.startswith("5") and _NO_CREDENTIALS.search(text) is not None)


def _no_bucket(address: Address) -> Refused:
    return Refused(
        BAD_REQUEST, f"{address} is not there: make the bucket, or correct its name, region or endpoint"
    )


def _first_line(text: str) -> str:
    """Without addresses' queries, which may hold a signature, and without the document that was answered."""
    line = (text.splitlines() or [""])[0].partition(": <")[0]
    return _QUERY.sub("", line)[:200]
