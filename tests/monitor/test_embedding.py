"""The embedding model of searches, with a small real model2vec model."""

from __future__ import annotations

import importlib.util
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model2vec import StaticModel
from tests.support.http_service import configuration, open_service
from tests.support.rated_endpoints import IndexedEndpoint, build_index, make_rated
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tollgauge.config import ConfigError, load
from tollgauge.core.endpoint.identity import Endpoint, endpoint_id
from tollgauge.core.lists.rated_endpoint import Filter
from tollgauge.core.similarity.similarity_index import SimilarityIndex
from tollgauge.core.similarity.tokenizer import ProviderText, weigh_query, weigh_terms
from tollgauge.monitor.embedding import Embed, SearchSettings, embedded_text
from tollgauge.store.endpoints import endpoints

WORDS = {"forecast": (1, 0, 0), "outlook": (0.9, 0.1, 0), "stock": (0, 1, 0), "song": (0, 0, 1)}
TEXTS = {"weather": "outlook", "market": "stock", "music": "song", "daily": "forecast"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four words, saved by the library."""
    tokens = {word: index for index, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = Tokenizer(WordLevel(tokens, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    vectors = np.array([(0, 0, 0), *WORDS.values()], np.float32)
    path = tmp_path_factory.mktemp("model")
    StaticModel(vectors, tokenizer, normalize=True).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def embed(folder: Path) -> Embed:
    loaded = SearchSettings(model=str(folder)).load()
    assert loaded is not None
    return loaded


def build(embed: Embed | None) -> SimilarityIndex:
    entries = []
    for name, description in TEXTS.items():
        text = ProviderText(service_name=name, description=description)
        vector = embed([embedded_text(text)])[0].astype("f2").tobytes() if embed else b""
        endpoint = make_rated(name, host=f"{name}.example.com")
        entries.append(
            IndexedEndpoint(endpoint=endpoint, terms=weigh_terms(text), embedding=vector)
        )
    return build_index(entries)


def find(index: SimilarityIndex, query: str, embed: Embed | None) -> list[str]:
    embedding = None if embed is None else embed([query])[0]
    matches = index.search(weigh_query(query), Filter(), limit=5, embedding=embedding)
    return [match.id for match in matches]


def test_vectors_have_length_one_and_unknown_words_have_none(embed: Embed) -> None:
    vectors = embed(["forecast", "outlook stock", "nothing known"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 0])


def test_model_is_loaded_without_a_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert SearchSettings(model=str(folder)).load() is not None


def test_model_finds_words_of_the_same_meaning(embed: Embed) -> None:
    assert find(build(None), "forecast", None) == ["daily"]
    assert find(build(embed), "forecast", embed) == ["daily", "weather"]
    assert find(build(embed), "song", embed) == ["music"]


def test_rank_in_both_rankings_counts_more_than_in_one(embed: Embed) -> None:
    assert find(build(None), "market outlook", None) == ["market", "weather"]
    assert find(build(embed), "market outlook", embed) == ["weather", "market", "daily"]


def test_filter_applies_to_both_rankings(embed: Embed) -> None:
    index, wanted = build(embed), Filter(host="weather.example.com")
    matches = index.search(
        weigh_query("forecast"), wanted, limit=5, embedding=embed(["forecast"])[0]
    )
    assert [match.id for match in matches] == ["weather"]


async def test_search_of_a_service_with_a_model_states_the_ranking(folder: Path) -> None:
    config = replace(configuration(), search=SearchSettings(model=str(folder)))
    async with open_service(config) as running:
        for name, description in TEXTS.items():
            endpoint = listed_endpoint(name, description)
            await running.service.store.writing(endpoints.insert, endpoint)
        fused = (await running.get("/trust/search", params={"q": "forecast"})).json()
        by_host = (await running.get("/trust/search", params={"q": "daily.example.com"})).json()
    assert fused["ranking"] == "fused"
    assert [row["host"].partition(".")[0] for row in fused["results"]] == ["daily", "weather"]
    assert [row["similarity"] for row in fused["results"]][1] == 0.99
    assert "ranking" not in by_host


def listed_endpoint(name: str, description: str) -> Endpoint:
    resource = f"https://{name}.example.com/v1"
    return Endpoint(
        id=endpoint_id(resource),
        resource=resource,
        host=f"{name}.example.com",
        first_seen=0,
        last_seen=0,
        service_name=name,
        description=description,
    )


def write(folder: Path, model: str) -> Path:
    path = folder / "tollgauge.toml"
    path.write_text(f'[search]\nmodel = "{model}"\n', encoding="utf-8")
    return path


def test_model_is_configured_by_its_directory(folder: Path, tmp_path: Path) -> None:
    assert load(write(tmp_path, str(folder)), {}).search.model == str(folder)


def test_directory_without_a_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a directory with a model2vec model"):
        load(write(tmp_path, "minishlab/potion-base-8M"), {})


def test_model_without_the_extra_is_rejected(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"pip install 'tollgauge\[semantic\]'"):
        load(write(tmp_path, str(folder)), {})
