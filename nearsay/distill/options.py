"""Options that several `nearsay distill` commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Corpora = Annotated[Path, typer.Option(help="Folder of the corpora.", exists=True, file_okay=False)]
Pair = Annotated[Path, typer.Option(help="Folder of the pair's models.")]
Runs = Annotated[Path, typer.Option(help="Folder for caches and checkpoints.")]
Target = Annotated[str, typer.Option(help="Target language.")]
Other = Annotated[str, typer.Option(help="The borrowed vocabulary's other language.")]
Teacher = Annotated[Path, typer.Option(help="Teacher's model folder.", exists=True)]
Student = Annotated[Path, typer.Option(help="Student's model folder.", exists=True)]
ModelOut = Annotated[Path, typer.Option(help="Model folder to write.")]
Scores = Annotated[Path, typer.Option(help="File of scores.")]
Symbols = Annotated[float, typer.Option(help="Share of the pairs with protected items that show them as symbols.")]
Threads = Annotated[int, typer.Option(help="CPU threads; on a machine with other work, one is fastest.", min=1)]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]

PAIR, RUNS = Path("models/en-de"), Path("runs/en-de")
