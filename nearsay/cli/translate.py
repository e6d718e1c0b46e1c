"""`nearsay translate`: a text, files or stdin; layout kept exactly.

A text streams: segments appear as they are done. Files and long input go in pieces, several in flight, written in
order, files with a progress bar on stderr. With a session and no text, stdin is a text that grows (growing.py).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from nearsay.cli import growing
from nearsay.cli.console import EXIT_USAGE, err, fail, reported_errors, write
from nearsay.cli.files import Outputs, files_of, read_text
from nearsay.cli.options import AsJson, Deadline, Key, Source, Target, TierName, Url
from nearsay.cli.pieces import PIECE_CHARS, ReadyPrefix, pieces
from nearsay.client import AsyncClient, Done, Draft, Restart, Result, SegmentDone, Stability
from nearsay.client.aio import DEFAULT_URL
from nearsay.runtime.tasks import Tasks
from nearsay.wire.errors import InternalError, NearsayError
from nearsay.wire.messages import Tier

PIECES_IN_FLIGHT = 4


class Job(msgspec.Struct, frozen=True):
    """How to translate, whatever the text comes from."""

    source: str
    target: str
    tier: Tier = "auto"
    session: str = ""
    deadline_ms: float | None = None


Emit = Callable[[str], object]


def command(
    target: Target,
    text: Annotated[list[str] | None, typer.Argument(help="A text, or files; without either, stdin.")] = None,
    source: Source = "en",
    tier: TierName = "auto",
    session: Annotated[
        str,
        typer.Option(help="Name that ties requests together; without a text, type it: each line is its next state."),
    ] = "",
    bias: Annotated[
        float | None, typer.Option(help="How firmly a growing text holds on to its last translation: 0 to less than 1.")
    ] = None,
    mask: Annotated[int, typer.Option(help="Words at the end of a growing text that are held back.")] = 0,
    deadline_ms: Deadline = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File, or folder for several files.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    key: Key = "",
) -> None:
    """Translate a text, files or stdin. The layout is kept; segments appear as they are done."""
    job = Job(source, target, tier, session, deadline_ms)
    stability = Stability(bias, mask) if bias is not None or mask else None
    if session and not text and output is None:
        typed = growing.Session(session, source, target, tier, deadline_ms, stability)
        with reported_errors():
            return growing.run(url, key, typed, as_json=as_json)
    if stability is not None:
        raise fail("--bias and --mask are for a text that grows: --session, and no text", EXIT_USAGE)
    try:
        paths = files_of(text or [])
        outputs = Outputs.choose(paths or [], output)
        texts = {path: read_text(path) for path in paths or []}
        given = "" if paths else " ".join(text) if text else read_text(None)
    except (OSError, ValueError) as error:
        raise fail(str(error), EXIT_USAGE) from None
    with reported_errors(), outputs:
        if paths:
            asyncio.run(_files(url, key, texts, job, outputs, as_json))
        else:
            asyncio.run(_text(url, key, given, job, outputs, as_json))
            if text and not as_json and output is None:
                write("\n")


async def _text(url: str, key: str, text: str, job: Job, outputs: Outputs, as_json: bool) -> None:
    emit = outputs.emit_to(None)
    async with AsyncClient(url, key=key) as client:
        if as_json:
            result = await translate_text(client, text, job, lambda _: None)
            emit(msgspec.json.encode(result).decode() + "\n")
        elif len(text) <= PIECE_CHARS and text.strip():
            await translate_text(client, text, job, emit)
        else:
            async with _own_tasks() as tasks:
                async for _, translation in translate_pieces(client, text, job, tasks):
                    emit(translation)


async def _files(url: str, key: str, texts: Mapping[Path, str], job: Job, outputs: Outputs, as_json: bool) -> None:
    async with AsyncClient(url, key=key) as client:
        if not as_json:
            return await translate_files(client, texts, job, lambda path, piece: outputs.emit_to(path)(piece))
        whole: dict[Path, str] = dict.fromkeys(texts, "")

        def keep(path: Path, piece: str) -> None:
            whole[path] += piece

        await translate_files(client, texts, job, keep)
    for path, translation in whole.items():
        outputs.emit_to(path)(msgspec.json.encode({"file": str(path), "text": translation}).decode() + "\n")


@asynccontextmanager
async def _own_tasks() -> AsyncIterator[Tasks]:
    tasks = Tasks()
    try:
        yield tasks
    finally:
        await tasks.close()


async def translate_text(client: AsyncClient, text: str, job: Job, emit: Emit) -> Result:
    """Stream one text to `emit`, segment by segment; drafts go to stderr. Returns the whole answer."""
    ready = ReadyPrefix()
    events = client.stream(
        text, job.source, job.target, tier=job.tier, session=job.session, deadline_ms=job.deadline_ms
    )
    async for event in events:
        match event:
            case Draft():
                err.print(f"draft: {event.text}", style="dim", markup=False, soft_wrap=True)
            case SegmentDone():
                emit(ready.add(event))
            case Restart():
                ready.restart()
            case Done():
                emit(ready.finish(event.result.text))
                return event.result
    raise InternalError("the answer never came")


async def translate_pieces(client: AsyncClient, text: str, job: Job, tasks: Tasks) -> AsyncIterator[tuple[str, str]]:
    """A long text's pieces and their translations, in order, PIECES_IN_FLIGHT of them under way at once."""

    async def one(piece: str) -> str | NearsayError:
        if not piece.strip():
            return piece
        try:
            result = await client.translate(
                piece,
                job.source,
                job.target,
                tier=job.tier,
                priority="batch",
                session=job.session,
                deadline_ms=job.deadline_ms,
            )
        except NearsayError as error:
            return error
        return result.text

    under_way: deque[tuple[str, asyncio.Task[str | NearsayError]]] = deque()
    left = pieces(text)
    try:
        while True:
            for piece in itertools.islice(left, PIECES_IN_FLIGHT - len(under_way)):
                under_way.append((piece, tasks.spawn(one(piece), name="piece")))
            if not under_way:
                return
            piece, task = under_way.popleft()
            outcome = await task
            if isinstance(outcome, NearsayError):
                raise outcome
            yield piece, outcome
    finally:
        for _, task in under_way:
            task.cancel()


async def translate_files(
    client: AsyncClient, texts: Mapping[Path, str], job: Job, emit: Callable[[Path, str], object]
) -> None:
    """Translate whole files; `emit` gets each piece of each file, in order."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    async with _own_tasks() as tasks:
        with Progress(*columns, console=err, disable=not err.is_terminal) as progress:
            for path, text in texts.items():
                bar = progress.add_task(path.name, total=len(text))
                async for piece, translation in translate_pieces(client, text, job, tasks):
                    emit(path, translation)
                    progress.advance(bar, len(piece))
