"""XML that somebody sent: one element with all below it, cut out of whatever text is around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from pyscheduler.readers.reading import Finding, RefusedError
from pyscheduler.readers.text.terminal_text import plain

__all__ = ["Fragment", "fragment", "walk"]

# A PCI tree is some ten deep, a tree of CPU caches twenty.
_MAX_DEPTH: Final = 64


@dataclass(frozen=True, slots=True)
class Fragment:
    """An element, as far as it could be read.

    Attributes
    ----------
    root
        The element.
    unclosed
        Elements that were open where the text was cut or broken: what they should hold may be missing.
    findings
        What is missing; empty if the element is whole and the only one.
    """

    root: Element
    unclosed: frozenset[int]
    findings: tuple[Finding, ...]


def fragment(text: str, tag: str) -> Fragment:
    """Return the first element `tag` of `text`.

    Raises
    ------
    RefusedError
        If it is not there, or declares entities.

    """
    clean = plain(text)
    starts = [found.start() for found in re.finditer(rf"<{tag}[\s>]", clean)]
    if not starts:
        raise RefusedError(f"no <{tag}> element in it", 1)
    line = clean.count("\n", 0, starts[0]) + 1
    end = clean.find(f"</{tag}>", starts[0])
    body = clean[starts[0] : end + len(tag) + 3 if end >= 0 else len(clean)]
    # A document type is of no use in a fragment, and entities are how a short text becomes a long one.
    if "<!DOCTYPE" in body or "<!ENTITY" in body:
        raise RefusedError(f"a document type or an entity inside <{tag}>: no tool writes that", line)
    again = [
        Finding(
            "second-element",
            f"line {line}: <{tag}> is there {len(starts)} times, only the first is read; parse each machine alone",
        )
    ]
    return _read(body, tag, line, again if len(starts) > 1 else [])


def _read(body: str, tag: str, line: int, findings: list[Finding]) -> Fragment:
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    try:
        parser.feed(body)
        parser.close()
    except ParseError as fault:
        where = line + fault.position[0] - 1
        findings.append(
            Finding("xml-cut", f"line {where}: the XML is cut or not well-formed; only what stands before is read, incomplete")
        )
    except ValueError:
        raise RefusedError(f"<{tag}> holds characters that XML does not allow", line) from None
    opened: dict[int, Element] = {}
    root: Element | None = None
    for event, element in cast("Iterator[tuple[str, Element]]", _events(parser)):
        root = element if root is None else root
        if event == "start":
            opened[id(element)] = element
        else:
            opened.pop(id(element), None)
    if root is None:
        raise RefusedError(f"<{tag}> is cut before anything in it", line)
    return Fragment(root, frozenset(opened), tuple(findings))


def _events(parser: XMLPullParser[Element]) -> Iterator[object]:
    """Yield the events up to the fault: the parser raises it again after them."""
    try:
        yield from parser.read_events()
    except ParseError:
        return


def walk(root: Element) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """Yield every element below `root` in the order of the text, with its ancestors, the outermost first.

    Raises
    ------
    RefusedError
        If elements are nested deeper than any machine's.

    """
    stack: list[tuple[Element, tuple[Element, ...]]] = [(child, (root,)) for child in reversed(root)]
    while stack:
        element, above = stack.pop()
        yield element, above
        if len(above) > _MAX_DEPTH:
            raise RefusedError(f"elements nested more than {_MAX_DEPTH} deep: no machine is")
        stack += [(child, (*above, element)) for child in reversed(element)]
