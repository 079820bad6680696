"""Texts of providers: cleaned for storage and display, and searched for prompt injection.

Rules (a listing may be an attack on the agents that read it):
- provider text is data: it is cleaned once, when it is received, and never executed;
- cleaning removes invisible characters (control, bidirectional, zero-width, tag and private
  characters, lone surrogates), and collapses whitespace to single spaces;
- a phrase of INJECTION_PHRASES, which address an agent instead of describing a service, is
  reported and not removed. It is a hint with false positives, never a verdict.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

NAME_MAX: Final = 80
DESCRIPTION_MAX: Final = 500
TAG_MAX: Final = 32
TAGS_MAX: Final = 8
_READ_MAX: Final = 8_192
"""Characters of a text that are read; the rest is cut first."""

_UNSEEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_UNSEEN_LETTERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
)
"""Invisible characters that count as letters or marks (Unicode: Default_Ignorable)."""
_VARIATION: Final = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_TAG_CHARACTER: Final = re.compile("[\U000e0000-\U000e007f]")
_REGION_FLAG: Final = re.compile(
    "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
)
"""A black flag, the code of a region in tag characters, and their end (UTS 51, annex C)."""
_LINE_ENDS: Final = str.maketrans(dict.fromkeys("\u2028\u2029\u0085", " "))

INJECTION_PHRASES: Final = (
    # Overrides the agent's instructions
    (
        (
            r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}"
            r"\b(?:previous|prior|above|earlier|all|any|your|other|safety)\b.{0,20}"
            r"\b(?:instruction|prompt|rule|polic|guardrail|context|limit|message)"
        ),
        ("ignore", "disregard", "forget", "override", "bypass"),
    ),
    (
        r"\b(?:new|updated|hidden|secret) (?:system )?(?:instructions?|prompt)\b",
        ("instruction", "prompt"),
    ),
    (r"\b(?:system|developer) (?:prompt|message|instruction)s?\b", ("system", "developer")),
    # Chat markup, roles
    (
        r"<\|?/?(?:im_start|im_end|system|assistant|endoftext)\|?>|\[/?(?:INST|SYS)\]",
        ("<", "["),
    ),
    (
        r"(?:^|[.;:!?] )(?:system|assistant|developer) ?: ",
        ("system", "assistant", "developer"),
    ),
    (
        r"\byou are (?:now|no longer)\b|\bact as (?:an?|the) (?:admin|root|system)",
        ("you are no", "act as"),
    ),
    # Wants to be paid
    (
        (
            r"\b(?:you|agents?|assistants?|models?|llms?)\b.{0,30}"
            r"\b(?:must|should|have to|need to|are required to|always)\b.{0,30}"
            r"\b(?:pay|purchase|buy|approve|sign|transfer|call this|use this|choose this)\b"
        ),
        ("must", "should", "have to", "need to", "required to", "always"),
    ),
    (
        r"\b(?:send|transfer|pay|forward|approve|deposit)\b.{0,60}\bto\b.{0,20}0x[0-9a-f]{6,}",
        ("0x",),
    ),
    # Wants secrets
    (
        (
            r"\b(?:reveal|print|send|give|share|export|exfiltrate|leak|paste)\b.{0,40}"
            r"\b(?:private key|seed phrase|mnemonic|api[ _-]?keys?|secrets?|credentials?)\b"
        ),
        ("key", "seed phrase", "mnemonic", "secret", "credential"),
    ),
    # Wants to be trusted, or preferred
    (
        (
            r"\b(?:do not|don't|never) (?:verify|check|question|tell|inform|warn|ask)\b.{0,40}"
            r"\b(?:user|human|owner|operator|price|amount|payment|address|payto)\b"
        ),
        ("do not", "don't", "never"),
    ),
    (
        (
            r"\b(?:always|only) (?:choose|select|prefer|pick|recommend|use) this "
            r"(?:tool|service|endpoint|api|resource)\b"
        ),
        (" this ",),
    ),
    # Addresses agents
    (r"\b(?:note|important|attention|message) (?:to|for) (?:all )?(?:ai|llm)s?\b", (" ai", " llm")),
)
"""The patterns (case ignored, on cleaned and compatibility-folded text), each with lower-case
words; a text that matches the pattern contains at least one of them.
"""

# Searching for a word takes 1% of the time of matching a pattern, and few texts contain one.
_PATTERNS: Final = tuple(
    (word, re.compile(pattern, re.IGNORECASE))
    for pattern, words in INJECTION_PHRASES
    for word in words
)


def clean_text(value: object, limit: int) -> str:
    """Return a provider's text without invisible characters, with single spaces.

    At most `limit` characters; an ellipsis ends a text that was cut. Empty for any other value than
    a string.
    """
    if not isinstance(value, str):
        return ""
    head = value[:_READ_MAX]
    if not (head.isascii() and head.isprintable()):  # otherwise all characters are visible
        head = _remove_unseen(head.translate(_LINE_ENDS))
    text = " ".join(head.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def shorten(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; an ellipsis ends a text that was cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def clean_tags(value: object) -> tuple[str, ...]:
    """Return a provider's tags, cleaned, without duplicates (case ignored), at most TAGS_MAX."""
    if not isinstance(value, list):
        return ()
    tags: dict[str, str] = {}
    for entry in value[: TAGS_MAX * 8]:
        tag = clean_text(entry, TAG_MAX)
        if tag:
            tags.setdefault(tag.casefold(), tag)
    return tuple(tags.values())[:TAGS_MAX]


def is_injection_suspected(text: object) -> bool:
    """Return whether a text contains a phrase of INJECTION_PHRASES, or characters that hide one.
    Never raises.

    Tag characters (U+E0000 to U+E007F) encode invisible ASCII: outside of an emoji flag of a region
    they are always suspicious.
    """
    if not isinstance(text, str):
        return False
    head = text[:_READ_MAX]
    if head.isascii():  # only control characters can be invisible, and nothing is folded
        plain = head.replace("\n", " ").isprintable()
        folded = head if plain else _remove_unseen(head)
    elif _TAG_CHARACTER.search(_REGION_FLAG.sub("", head)):
        return True
    else:
        folded = unicodedata.normalize("NFKC", _remove_unseen(head))
    return _has_phrase(" ".join(folded.split()))


def _has_phrase(text: str) -> bool:
    # The letters that a case-insensitive expression matches with "i" in a folded text.
    lower = text.replace("\u0130", "i").replace("\u0131", "i").lower()
    possible = {pattern for word, pattern in _PATTERNS if word in lower}
    return any(pattern.search(text) for pattern in possible)


def _remove_unseen(text: str) -> str:
    """Return a text without invisible characters."""
    shown = _VARIATION.sub("", text)
    unseen = "".join(filter(_is_unseen, set(shown)))
    return shown.translate(dict.fromkeys(map(ord, unseen))) if unseen else shown


def _is_unseen(char: str) -> bool:
    if char in "\t\n\r\f\v":
        return False
    return char in _UNSEEN_LETTERS or unicodedata.category(char) in _UNSEEN_CATEGORIES
