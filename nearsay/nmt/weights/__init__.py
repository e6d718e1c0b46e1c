"""Weights on disk: Marian binaries, Hugging Face folders, our own int8 folders."""

from nearsay.nmt.weights.errors import WeightsError
from nearsay.nmt.weights.hf import read_hf
from nearsay.nmt.weights.load import build_model, load_model, read_config, read_weights
from nearsay.nmt.weights.marian import read_marian
from nearsay.nmt.weights.native import read_native, save_native
from nearsay.nmt.weights.quantised import Quantised, Weight, quantise

__all__ = [
    "Quantised",
    "Weight",
    "WeightsError",
    "build_model",
    "load_model",
    "quantise",
    "read_config",
    "read_hf",
    "read_marian",
    "read_native",
    "read_weights",
    "save_native",
]
