"""Documents as YAML, with a header that says where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def to_yaml(documents: Sequence[Mapping[str, Any]], made_by: str) -> str:
    """Return documents as YAML: keys in their order, texts of several lines as blocks, nothing abbreviated.

    Args:
        documents: Dicts, lists, texts, numbers and flags.
        made_by: The command that made them.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes YAML for a person to edit."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            del indentless  # Items of a list are indented, as Kubernetes' own examples have them.
            super().increase_indent(flow, False)

    def text(dumper: yaml.SafeDumper, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    body = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return f"# Made by:\n# {made_by}\n{body}"
