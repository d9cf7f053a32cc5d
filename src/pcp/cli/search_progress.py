"""A progress bar for searches, on standard error; nothing where nobody looks."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pcp.planning.search.evidence import Progress as Step

_LONGEST = 70


class SearchProgress:
    """Called before every measurement; a context manager.

    Arguments:
        quiet: shows nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("measuring"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __call__(self, step: Step) -> None:
        """Show what is measured now."""
        shown = step.what if len(step.what) <= _LONGEST else f"{step.what[: _LONGEST - 3]}..."
        self._bar.update(self._task, completed=step.done, total=step.total, description=shown)

    def __enter__(self) -> "SearchProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
