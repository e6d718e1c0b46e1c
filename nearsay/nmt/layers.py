"""The parts of an encoder-decoder, in every variant that ModelConfig names.

Decides: the arithmetic of one layer. Must not know: ids, lengths, where keys and values are kept.
Shapes: R or B rows, Q queries, K keys, S source positions, N >= R rows held in place by a cache, d = heads * head_dim.
Papers: Vaswani et al. (2017); the SSRU is from Kim et al. (2019), "From Research to Production and Back".
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nearsay.nmt.cache import SlotCache, Window
from nearsay.nmt.config import Activation, ModelConfig, Norm
from nearsay.nmt.linear import Linear

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "swish": F.silu, "gelu": F.gelu}


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Scaled dot-product attention, q [N, H, Q, D], k and v [N, H, K, D], bias broadcast to [N, H, Q, K]: [N, H, Q, D].

    On a CPU by plain matrix products in float32: at these lengths they beat the fused kernel and those of bfloat16.
    """
    if q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    dtype, q = q.dtype, q.float() * q.shape[-1] ** -0.5
    scores = torch.matmul(q, k.float().transpose(2, 3))  # [N, H, Q, K]
    if bias is not None:
        scores = scores + bias
    return torch.matmul(scores.softmax(-1), v.float()).to(dtype)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, Q, d] -> [B, H, Q, D]"""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """[B, H, Q, D] -> [B, Q, d]"""
    return x.transpose(1, 2).flatten(2)


def attend_in_place(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, place: Tensor | None) -> Tensor:
    """As `attend` for q [R, H, Q, D] whose row r belongs to row place[r] of the N in k and v: [R, H, Q, D]."""
    if place is None:
        return attend(q, k, v, bias)
    spread = q.new_zeros(k.shape[0], *q.shape[1:]).index_copy_(0, place, q)  # [N, H, Q, D]
    return attend(spread, k, v, bias).index_select(0, place)


class SelfAttention(nn.Module):
    """Queries, keys and values from one product; row blocks of `qkv` in that order."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(d_model, 3 * d_model)
        self.out = Linear(d_model, d_model)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [B, Q, d], bias broadcast to [B, H, Q, Q]: [B, Q, d]. All at once, for encoders and training."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        return self.out(join_heads(attend(q, k, v, bias)))

    def step(self, x: Tensor, cache: SlotCache, layer: int, window: Window) -> Tensor:
        """x [R, Q, d], the next positions of the window's rows: [R, Q, d]. Stores their keys and values."""
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.heads, -1).unbind(2)  # [R, Q, H, D] each
        keys, values = cache.extend(layer, window, k, v)
        return self.out(join_heads(attend_in_place(q.transpose(1, 2), keys, values, window.self_bias, window.place)))


class CrossAttention(nn.Module):
    """Keys and values of the source from one product (`kv`, in that order), made once a source."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = Linear(d_model, d_model)
        self.kv = Linear(d_model, 2 * d_model)
        self.out = Linear(d_model, d_model)

    def project(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """states [B, S, d]: keys and values [B, H, S, D]."""
        k, v = (split_heads(part, self.heads) for part in self.kv(states).chunk(2, -1))
        return k, v

    def forward(self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, place: Tensor | None = None) -> Tensor:
        """x [R, Q, d], k and v [N, H, S, D], bias broadcast to [N, H, Q, S]: [R, Q, d]."""
        return self.out(join_heads(attend_in_place(split_heads(self.q(x), self.heads), k, v, bias, place)))

    def weights(self, x: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
        """x [R, Q, d], k [R, H, S, D], bias broadcast to [R, H, Q, S]: who looks where, [R, H, Q, S]."""
        q = split_heads(self.q(x), self.heads)
        scores = torch.matmul(q.float() * q.shape[-1] ** -0.5, k.float().transpose(2, 3))
        return (scores if bias is None else scores + bias).softmax(-1)


class Ssru(nn.Module):
    """c_t = f c_(t-1) + (1 - f) W x_t, f = sigmoid(W_f x_t + b_f), y_t = relu(c_t). Row blocks of `gates`: W, W_f."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gates = Linear(d_model, 2 * d_model)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [B, T, d] from the first position on: [B, T, d]. There is nothing to hide from a recurrence: no bias."""
        return self.scan(x, x.new_zeros(x.shape[0], x.shape[2]))[0]

    def scan(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """x [R, Q, d], state [R, d]: y [R, Q, d] and the trail [R, Q + 1, d] of states, `state` first."""
        value, forget = self.gates(x).chunk(2, -1)  # [R, Q, d] each
        forget = forget.sigmoid()
        fresh = (1 - forget) * value
        trail = [state]
        for q in range(x.shape[1]):
            trail.append(forget[:, q] * trail[-1] + fresh[:, q])
        stacked = torch.stack(trail, 1)
        return F.relu(stacked[:, 1:]), stacked

    def step(self, x: Tensor, cache: SlotCache, layer: int, window: Window) -> Tensor:
        """x [R, Q, d], the next positions of the window's rows: [R, Q, d]. Stores their states."""
        y, trail = self.scan(x, cache.states(layer, window).to(x.dtype))
        cache.put_states(layer, window, trail)
        return y


class FeedForward(nn.Module):
    def __init__(self, d_model: int, width: int, activation: Activation) -> None:
        super().__init__()
        self.fc1 = Linear(d_model, width)
        self.fc2 = Linear(width, d_model)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]"""
        return self.fc2(self.activation(self.fc1(x)))


class Residual(nn.LayerNorm):
    """A layer norm that knows its place: x + f(norm(x)) when "pre", norm(x + f(x)) when "post"."""

    def __init__(self, d_model: int, eps: float, where: Norm) -> None:
        super().__init__(d_model, eps=eps)
        self.pre = where == "pre"

    def __call__(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]"""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def around(self, x: Tensor, sublayer: Callable[..., Tensor], *args: object) -> Tensor:
        """sublayer maps [..., d] to [..., d], `args` are handed to it."""
        if self.pre:
            return x + sublayer(self(x), *args)
        return self(x + sublayer(x, *args))


def final_norm(d_model: int, eps: float, where: Norm) -> Residual | None:
    """Stacks of "pre" layers end with one more norm."""
    return Residual(d_model, eps, where) if where == "pre" else None


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, eps, where = config.d_model, config.encoder_norm_eps, config.encoder_norm
        self.self_attn = SelfAttention(d, config.heads)
        self.self_norm = Residual(d, eps, where)
        self.ffn = FeedForward(d, config.encoder_ffn, config.activation)
        self.ffn_norm = Residual(d, eps, where)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x [B, S, d], bias [B, 1, 1, S] or None: [B, S, d]."""
        x = self.self_norm.around(x, self.self_attn.forward, bias)
        return self.ffn_norm.around(x, self.ffn.forward)


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d, eps, where = config.d_model, config.decoder_norm_eps, config.decoder_norm
        ssru = config.decoder_kind == "ssru"
        self.self_attn: SelfAttention | Ssru = Ssru(d) if ssru else SelfAttention(d, config.heads)
        self.self_norm = Residual(d, eps, where)
        self.cross_attn = CrossAttention(d, config.heads)
        self.cross_norm = Residual(d, eps, where)
        self.ffn = FeedForward(d, config.decoder_ffn, config.activation)
        self.ffn_norm = Residual(d, eps, where)

    def step(self, x: Tensor, cache: SlotCache, layer: int, window: Window) -> Tensor:
        """x [R, Q, d], the next positions of the window's rows: [R, Q, d]."""
        x = self.self_norm.around(x, self.self_attn.step, cache, layer, window)
        k, v = cache.cross(layer, window)
        x = self.cross_norm.around(x, self.cross_attn.forward, k, v, window.cross_bias, window.place)
        return self.ffn_norm.around(x, self.ffn.forward)

    def cross_weights(self, x: Tensor, cache: SlotCache, layer: int, window: Window) -> Tensor:
        """As `step`, as far as the attention to the source of rows read in place: [R, H, Q, S]."""
        assert window.place is None and window.gather is None
        x = self.self_norm.around(x, self.self_attn.step, cache, layer, window)
        k, _ = cache.cross(layer, window)
        return self.cross_attn.weights(self.cross_norm(x) if self.cross_norm.pre else x, k, window.cross_bias)

    def forward(self, x: Tensor, states: Tensor, self_bias: Tensor, cross_bias: Tensor | None) -> Tensor:
        """x [B, T, d], states [B, S, d], self_bias [T, T], cross_bias [B, 1, 1, S] or None: [B, T, d]. For training."""
        x = self.self_norm.around(x, self.self_attn.forward, self_bias)
        k, v = self.cross_attn.project(states)
        x = self.cross_norm.around(x, self.cross_attn.forward, k, v, cross_bias)
        return self.ffn_norm.around(x, self.ffn.forward)
