"""The transformer of the comparison, with small random weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from bench import minilm

SIZE = minilm.HEADS * 2
WORDS = ("[CLS]", "[SEP]", "[UNK]", "weather", "##man", "music")


def test_model_of_the_package_is_read_and_encodes_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    rows = {"word": len(WORDS), "position": minilm.TOKENS_MAX, "token_type": 2}
    shapes: dict[str, tuple[int, ...]]
    shapes = {f"embeddings.{name}_embeddings.weight": (count, SIZE) for name, count in rows.items()}
    shapes |= {f"embeddings.LayerNorm.{part}": (SIZE,) for part in ("weight", "bias")}
    for layer in range(minilm.LAYERS):
        name = f"encoder.layer.{layer}."
        parts = [f"attention.self.{part}" for part in ("query", "key", "value")]
        for part in (*parts, "attention.output.dense", "intermediate.dense", "output.dense"):
            shapes |= {f"{name}{part}.weight": (SIZE, SIZE), f"{name}{part}.bias": (SIZE,)}
        for part in ("attention.output", "output"):
            shapes |= {f"{name}{part}.LayerNorm.{one}": (SIZE,) for one in ("weight", "bias")}
    folder = tmp_path / minilm.PACKAGE / "model"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    tensors = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    one, same, other = minilm.Model.load().encode(["Weatherman", "weatherman", "music"])
    assert np.linalg.norm(one) == pytest.approx(1)
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)
