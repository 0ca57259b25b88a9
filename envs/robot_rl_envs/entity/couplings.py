"""Joints that follow another one by equalities of a model: each with the one that leads it, however long the chain."""

from collections.abc import Iterable, Sequence


def find_leaders(
    pairs: Sequence[tuple[str, str, float, float]], driven: Iterable[str] = ()
) -> dict[str, tuple[str, float, float]]:
    """Return for each joint that follows: the joint that leads it, factor and offset.

    Args:
        pairs: (follower, leader, factor, offset) of each equality, ``follower = offset + factor * leader``; no factor
            is 0, and the order does not matter.
        driven: joints with a motor; if there is one among joints that are coupled, it leads the others, else the
            one that follows none.

    Raises:
        ValueError: joints follow each other in a circle.
    """
    links: dict[str, list[tuple[str, float, float]]] = {}
    for follower, leader, factor, offset in pairs:
        links.setdefault(leader, []).append((follower, factor, offset))
        links.setdefault(follower, []).append((leader, 1.0 / factor, -offset / factor))
    followers = {follower for follower, *_ in pairs}
    heads = [*(name for name in driven if name in links), *(name for name in links if name not in followers), *links]
    found: dict[str, tuple[str, float, float]] = {}
    for head in heads:
        waiting = [] if head in found else [head]
        found.setdefault(head, (head, 1.0, 0.0))
        while waiting:
            one = waiting.pop(0)
            _, factor, offset = found[one]
            for other, times, plus in links[one]:
                value = (head, times * factor, plus + times * offset)
                if other not in found:
                    found[other] = value
                    waiting.append(other)
                elif any(abs(a - b) > 1e-6 * (1.0 + abs(b)) for a, b in zip(value[1:], found[other][1:], strict=True)):
                    raise ValueError(f"joints '{one}' and '{other}' follow each other in a circle; remove one")
    return {name: value for name, value in found.items() if value[0] != name}
