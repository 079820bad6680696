"""The optional embedding model of searches: a local model2vec model, which is a table of word
vectors. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from tollgauge.core.similarity.tokenizer import ProviderText

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

Embed = Callable[[Sequence[str]], "Vectors"]
"""Returns one vector of length 1 per text, or of length 0 for a text without known words."""

_FILES: Final = ("config.json", "model.safetensors", "tokenizer.json")


def _model(path: str) -> str:
    if not all((Path(path) / name).is_file() for name in _FILES):
        raise ValueError(f"{path} is not a directory with a model2vec model ({', '.join(_FILES)})")
    if importlib.util.find_spec("model2vec") is None:
        raise ValueError(
            "needs the package model2vec: install tollgauge with the extra semantic"
            " (pip install 'tollgauge[semantic]')"
        )
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Ranking of searches by words."""

    model: Annotated[
        Annotated[str, AfterValidator(_model)] | None, Field(examples=["models/embedding"])
    ] = None
    """Directory of a local model2vec model, which adds a ranking by meaning to that by terms. Needs
    the extra `semantic`.
    """

    def load(self) -> Embed | None:
        """Load the model; None without one. Takes about a second."""
        if self.model is None:
            return None
        import numpy as np
        from model2vec import StaticModel

        model = StaticModel.from_pretrained(self.model)

        def encode(texts: Sequence[str]) -> Vectors:
            encoded = model.encode(list(texts), use_multiprocessing=False)
            vectors: Vectors = np.asarray(encoded, np.float32)
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            lengths[lengths == 0] = 1
            vectors /= lengths
            return vectors

        return encode


def embedded_text(text: ProviderText) -> str:
    """Return the part of a provider's text that is embedded."""
    return " ".join((text.service_name, text.description, *text.tags))
