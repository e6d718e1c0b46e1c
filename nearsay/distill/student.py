"""Makes a student out of a teacher: the same encoder, some of the decoder's layers (layer replacement).

Decides: which layers stay. With no training yet, the student that loses least is the best start, so every choice of
that many layers is tried on a few batches. Embeddings, encoder and the last norm are the teacher's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import msgspec
import torch

from nearsay.distill.dataset import Batch
from nearsay.distill.loss import tied_loss
from nearsay.distill.network import DropoutPool, decode_states
from nearsay.nmt.config import ModelConfig
from nearsay.nmt.transformer import Seq2Seq
from nearsay.nmt.weights.load import build_model
from nearsay.nmt.weights.quantised import Weight

_LAYER = re.compile(r"decoder\.layers\.(\d+)\.(.*)")


def keep_layers(
    config: ModelConfig, weights: Mapping[str, Weight], layers: Sequence[int]
) -> tuple[ModelConfig, dict[str, Weight]]:
    """The network with only these decoder layers, in this order."""
    assert layers and all(0 <= n < config.decoder_layers for n in layers)
    kept: dict[str, Weight] = {}
    for name, weight in weights.items():
        match = _LAYER.fullmatch(name)
        if match is None:
            kept[name] = weight
        elif int(match[1]) in layers:
            kept[f"decoder.layers.{layers.index(int(match[1]))}.{match[2]}"] = weight
    return msgspec.structs.replace(config, decoder_layers=len(layers)), kept


def best_layers(config: ModelConfig, weights: Mapping[str, Weight], count: int, batches: Sequence[Batch]) -> list[int]:
    """The `count` layers whose untrained student has the lowest loss on the batches; the last layer is always kept."""
    last = config.decoder_layers - 1
    choices = [[*rest, last] for rest in itertools.combinations(range(last), count - 1)]
    return min(choices, key=lambda layers: mean_loss(build_model(*keep_layers(config, weights, layers)), batches))


@torch.inference_mode()
def mean_loss(model: Seq2Seq, batches: Sequence[Batch]) -> float:
    """Cross entropy a target token, in nats, without dropout or smoothing."""
    off, loss, tokens = DropoutPool(0.0), 0.0, 0
    for batch in batches:
        states = decode_states(model, batch.src, batch.src_lens, batch.trg, off)
        real = torch.arange(batch.trg.shape[1]) < batch.trg_lens[:, None]
        loss += float(tied_loss(states[real], model.trg_table, batch.trg[real], 0.0)[1])
        tokens += batch.tokens
    return loss / tokens
