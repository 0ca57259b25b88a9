"""Tables and two-column lists, as every command prints them."""

from collections.abc import Iterable, Sequence


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), least: int = 0) -> None:
    """Print a table at least `least` characters wide; the columns in `right` are aligned to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for k, name in enumerate(head):
        table.add_column(name, justify="right" if k in right else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # Not as markup, which would take "[m]" for a style.
    console = Console()
    console.width = max(console.width, least)
    console.print(table)


def two_columns(rows: Sequence[tuple[str, str]]) -> str:
    """Return a line for each name and its description, the descriptions in a column."""
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)
