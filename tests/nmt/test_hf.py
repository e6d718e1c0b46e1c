"""Our decoding against `transformers` on tiny checkpoints of both families, in float32.

Random weights alone prove little: they repeat one token for ever, at any position. So each checkpoint first learns six
random translations by heart, which takes it half a second, and is then asked for those and for some it never saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import M2M100Config, M2M100ForConditionalGeneration, MarianConfig, MarianMTModel
from transformers.utils import logging as transformers_logging

from nearsay.nmt.decoding import beam_search, greedy
from nearsay.nmt.weights import WeightsError, load_model, read_config
from tests.nmt.tiny import assert_exact

NEW_TOKENS = 20
SHAPE = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 56,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 64,
    "init_std": 0.1,
}


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    yield


def marian(seed: int, **changes: Any) -> MarianMTModel:
    torch.manual_seed(seed)
    defaults = {"vocab_size": 70, "pad_token_id": 69, "decoder_start_token_id": 69, "scale_embedding": True}
    config = MarianConfig(**{**SHAPE, "activation_function": "swish", **defaults, **changes})
    model = MarianMTModel(config).eval()
    model.final_logits_bias.normal_(std=0.5)
    model.generation_config.bad_words_ids = [[69]]
    model.generation_config.renormalize_logits = True
    return model


def m2m(seed: int, **changes: Any) -> M2M100ForConditionalGeneration:
    torch.manual_seed(seed)
    config = M2M100Config(**{**SHAPE, "vocab_size": 67, "dropout": 0.0, **changes})
    model = M2M100ForConditionalGeneration(config).eval()
    model.generation_config.bad_words_ids = [[1]]
    model.generation_config.renormalize_logits = True
    model.generation_config.forced_bos_token_id = 60
    return model


CHECKPOINTS: dict[str, Callable[[int], Any]] = {
    "marian": lambda seed: marian(seed),
    "marian wide": lambda seed: marian(seed, d_model=48, encoder_attention_heads=3, decoder_attention_heads=3),
    "marian relu unscaled": lambda seed: marian(seed, activation_function="relu", scale_embedding=False),
    "marian two vocabularies": lambda seed: marian(
        seed,
        vocab_size=83,
        decoder_vocab_size=70,
        share_encoder_decoder_embeddings=False,
        forced_eos_token_id=None,
    ),
    "m2m": lambda seed: m2m(seed),
    "m2m wide": lambda seed: m2m(seed, d_model=64, encoder_attention_heads=2, decoder_attention_heads=2),
}
TAUGHT_LENGTHS, UNSEEN_LENGTHS = (5, 1, 18, 9, 30, 2), (4, 11, 26)


def random_sources(seed: int, lengths: Sequence[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(3, 60, (n - 1,), generator=generator).tolist(), 2 if n % 2 else 0] for n in lengths]


@cache
def taught(name: str, seed: int) -> Any:
    """A checkpoint that knows random translations of 2 .. 13 ids of `random_sources(seed, TAUGHT_LENGTHS)` by heart."""
    model = CHECKPOINTS[name](seed)
    sources, longest = random_sources(seed, TAUGHT_LENGTHS), max(TAUGHT_LENGTHS)
    config, bos = model.config, model.generation_config.forced_bos_token_id
    rows = [[*s, *[config.pad_token_id] * (longest - len(s))] for s in sources]
    mask = [[1] * len(s) + [0] * (longest - len(s)) for s in sources]
    labels = torch.randint(3, 60, (len(sources), 14))
    for row, length in zip(labels, torch.randint(2, 14, (len(sources),)).tolist(), strict=True):
        row[length], row[length + 1 :] = config.eos_token_id, -100
    if bos is not None:
        labels = torch.cat([torch.full((len(sources), 1), bos), labels], 1)
    start = torch.full((len(sources), 1), config.decoder_start_token_id)
    fed = torch.cat([start, labels[:, :-1].masked_fill(labels[:, :-1] < 0, 5)], 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(40):
        batch = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask), "decoder_input_ids": fed}
        loss = torch.nn.functional.cross_entropy(model(**batch).logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def reference(model: Any, sources: Sequence[Sequence[int]], **options: Any) -> list[list[list[int]]]:
    """`generate`, one source at a time so that its own padding can't matter: ids without START, prefix and end."""
    generation = model.generation_config
    skip = 1 + (generation.forced_bos_token_id is not None)
    results = []
    for source in sources:
        found = model.generate(torch.tensor([source]), do_sample=False, max_new_tokens=NEW_TOKENS, **options)
        results.append([_until_end(row[skip:], generation) for row in found.tolist()])
    return results


def _until_end(ids: list[int], generation: Any) -> list[int]:
    ends = {generation.eos_token_id, generation.pad_token_id}
    return next((ids[:i] for i, token in enumerate(ids) if token in ends), ids)


def logits_after(model: Any, source: Sequence[int], ids: Sequence[int]) -> Tensor:
    generation = model.generation_config
    bos = generation.forced_bos_token_id
    decoder_ids = [generation.decoder_start_token_id, *([] if bos is None else [bos]), *ids]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([decoder_ids])).logits[0, -1]
    logits[[word[0] for word in generation.bad_words_ids]] = float("-inf")
    return logits


@pytest.mark.parametrize(("name", "seed"), [*((name, 1) for name in CHECKPOINTS), ("marian", 2), ("m2m", 2)])
def test_greedy_equals_generate_alone_and_in_ragged_batches(name: str, seed: int, tmp_path: Path) -> None:
    theirs = taught(name, seed)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    limit = NEW_TOKENS - len(ours.config.prefix_ids)
    batch = random_sources(seed, TAUGHT_LENGTHS) + random_sources(seed + 1, UNSEEN_LENGTHS)
    expected = [results[0] for results in reference(theirs, batch, num_beams=1)]
    assert sum(len(set(ids)) > 1 and len(ids) < limit - 1 for ids in expected) >= 5, "too dull to prove anything"

    together = greedy(ours, batch, target_tokens_max=limit)
    alone = [greedy(ours, [source], target_tokens_max=limit)[0] for source in batch]
    for source, want, *got in zip(batch, expected, together, alone, strict=True):
        for ids in got:
            assert_exact(ids, want, lambda prefix, source=source: logits_after(theirs, source, prefix))


@pytest.mark.parametrize("name", ["marian", "marian two vocabularies", "m2m"])
@pytest.mark.parametrize(("width", "penalty"), [(4, 1.0), (2, 0.6), (5, 1.4)])
def test_beam_search_equals_generate(name: str, width: int, penalty: float, tmp_path: Path) -> None:
    theirs = taught(name, 1)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    batch = random_sources(1, TAUGHT_LENGTHS[:3]) + random_sources(2, UNSEEN_LENGTHS)
    options = {"num_beams": width, "num_return_sequences": width, "length_penalty": penalty, "early_stopping": False}
    expected = reference(theirs, batch, **options)
    limit = NEW_TOKENS - len(ours.config.prefix_ids)
    got = beam_search(ours, batch, width=width, n_best=width, length_penalty=penalty, target_tokens_max=limit)
    assert [[list(h.ids) for h in hypotheses] for hypotheses in got] == expected


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_teacher_forced_logits_are_the_same_numbers(name: str, tmp_path: Path) -> None:
    theirs = CHECKPOINTS[name](3)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    sources, targets = random_sources(4, [12, 12]), torch.randint(3, 60, (2, 9))
    start = torch.full((2, 1), theirs.config.decoder_start_token_id)
    with torch.no_grad():
        want = theirs(input_ids=torch.tensor(sources), decoder_input_ids=torch.cat([start, targets], 1)).logits
        got = ours(torch.tensor(sources), torch.tensor([12, 12]), torch.cat([start.fill_(-1), targets], 1))
    assert torch.allclose(got, want, atol=1e-4)


def test_stored_position_tables_are_used(tmp_path: Path) -> None:
    theirs = marian(4)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    table = torch.randn(64, 32)
    tensors |= {f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")}
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ours = load_model(tmp_path)
    assert ours.config.positions == "table"
    assert torch.equal(ours.position_table, table)


def test_sharded_checkpoint_equals_the_whole(tmp_path: Path) -> None:
    theirs = m2m(5)
    theirs.save_pretrained(tmp_path / "whole")
    theirs.save_pretrained(tmp_path / "shards", max_shard_size="40KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    whole, shards = load_model(tmp_path / "whole"), load_model(tmp_path / "shards")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), shards.parameters(), strict=True))
    assert read_config(tmp_path / "shards") == read_config(tmp_path / "whole") == whole.config


def test_forced_bos_of_the_caller_wins(tmp_path: Path) -> None:
    theirs = m2m(6)
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert ours.config.prefix_ids == (60,)
    source = random_sources(8, [7])
    expected = reference(theirs, source, num_beams=1, forced_bos_token_id=55)
    assert greedy(ours, source, target_tokens_max=NEW_TOKENS - 1, prefix_ids=(55,)) == expected[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "quick_gelu"}, "quick_gelu"),
        ({"decoder_attention_heads": 2}, "heads"),
        ({"model_type": "bart"}, "bart"),
        ({"eos_token_id": [0, 1]}, "eos_token_id"),
        ({"d_model": None}, "wrong kind"),
        ({"vocab_size": 71}, "size mismatch"),
    ],
)
def test_what_we_do_not_have_is_refused_by_name(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    marian(0).save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    config = json.loads((tmp_path / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=message):
        load_model(tmp_path)


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    marian(0).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({"a": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    torch.save({"a": torch.zeros(1)}, tmp_path / "renamed.bin")
    for path in (tmp_path, tmp_path / "pytorch_model.bin", tmp_path / "renamed.bin"):
        with pytest.raises(WeightsError, match=r"(pytorch_model|renamed)\.bin is a pickle.*safetensors"):
            load_model(path)


def test_a_shard_outside_the_folder_is_refused(tmp_path: Path) -> None:
    marian(0).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "x.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(WeightsError, match="isn't a safetensors file in the folder"):
        load_model(tmp_path)
