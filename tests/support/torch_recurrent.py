"""Recurrent layers as torch computes them: op name -> a call on tensors. Part of `torch_oracle`."""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
RECURRENT: dict[str, Callable[..., Tensor]] = {}


def recurrent_op(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Register ``function`` for the op it is named after."""
    RECURRENT[function.__name__] = function
    return function


ROLES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def recurrent(kind, x, *rest, reverse, initial_state, lengths, **params):  # type: ignore[no-untyped-def]
    """By torch's own layer, sequence by sequence: cut to its length, turned round if need be."""
    steps, batch, _ = x.shape
    found = rest[-1] if lengths else torch.full((batch,), steps)
    hidden = params["weight_hh"].shape[0] // {"LSTM": 4, "GRU": 3}.get(kind, 1)
    roles = [role for role in ROLES if params.get(role) is not None]
    layer = getattr(torch, f"rnn_{params['activation']}" if kind == "RNN" else kind.lower())
    weights = [params[role] for role in roles]
    widths = [params["weight_hh"].shape[1], hidden][: 1 + (kind == "LSTM")]
    out = x.new_zeros(steps + len(widths), batch, hidden)
    for n, length in enumerate(found.tolist()):
        own = (x[:length, n].flip(0) if reverse else x[:length, n])[:, None]
        starts = rest[: len(rest) - lengths] if initial_state else [x.new_zeros(batch, w) for w in widths]
        state = [s[None, n : n + 1].contiguous() for s in starts]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            given = state if kind == "LSTM" else state[0]
            y, *last = layer(own, given, weights, "bias_ih" in roles, 1, 0.0, False, False, False)
        y = y[:, 0]
        out[:length, n, : y.shape[1]] = y.flip(0) if reverse else y
        for i, s in enumerate(last):
            out[steps + i, n, : s.shape[2]] = s[0, 0]
    return out


@recurrent_op
def lstm(*xs, peephole=None, **given):  # type: ignore[no-untyped-def]
    if peephole is None:
        return recurrent("LSTM", *xs, **given)
    return with_peepholes(*xs, peephole=peephole, **given)


def with_peepholes(x, *, weight_ih, weight_hh, bias_ih, bias_hh, peephole, **ends):  # type: ignore[no-untyped-def]
    """torch has none: its cell's equations written out, for the plain case."""
    assert not any(ends.values())
    h = c = x.new_zeros(x.shape[1], weight_hh.shape[1])
    p, made = peephole.chunk(3), []
    for now in x:
        i, f, g, o = (F.linear(now, weight_ih, bias_ih) + F.linear(h, weight_hh, bias_hh)).chunk(4, 1)
        c = torch.sigmoid(f + p[1] * c) * c + torch.sigmoid(i + p[0] * c) * torch.tanh(g)
        h = torch.sigmoid(o + p[2] * c) * torch.tanh(c)
        made.append(h)
    return torch.stack([*made, h, c])


@recurrent_op
def lstm_rounded(x, *rest, weight_hh, scale_hh, peephole=None, reverse, initial_state, lengths):  # type: ignore[no-untyped-def]
    """torch has none: the equations written out, h by way of 8-bit numbers."""
    weight_hh = weight_hh.to(x.dtype) * scale_hh[:, None]
    steps, batch, _ = x.shape

    def sees(part, c):  # type: ignore[no-untyped-def] # none is not one of zero: c may be infinite
        return 0 if peephole is None else peephole.chunk(3)[part] * c

    found = rest[-1] if lengths else torch.full((batch,), steps)
    h, c = rest[:2] if initial_state else [x.new_zeros(batch, weight_hh.shape[1])] * 2
    out, rows = x.new_zeros(steps + 2, batch, weight_hh.shape[1]), torch.arange(batch)
    for t in range(steps):
        low, high = h.min().clamp(max=0), h.max().clamp(min=0)
        scale = (high - low) / 255 if high != low else x.new_ones(())
        zero = torch.round(-low / scale)
        seen = (torch.clamp(torch.round(h / scale) + zero, 0, 255) - zero) * scale
        live = t < found
        at = torch.where(live, found - 1 - t, t) if reverse else torch.full((batch,), t)
        i, f, g, o = (x[at, rows] + F.linear(seen, weight_hh)).chunk(4, 1)
        new_c = torch.sigmoid(f + sees(1, c)) * c + torch.sigmoid(i + sees(0, c)) * torch.tanh(g)
        new_h = torch.sigmoid(o + sees(2, new_c)) * torch.tanh(new_c)
        h, c = torch.where(live[:, None], new_h, h), torch.where(live[:, None], new_c, c)
        out[at[live], rows[live]] = h[live]
    out[steps], out[steps + 1] = h, c
    return out


@recurrent_op
def gru(*xs, reset_after, **given):  # type: ignore[no-untyped-def]
    if reset_after:
        return recurrent("GRU", *xs, **given)
    return reset_before(*xs, **given)


def reset_before(x, *rest, weight_ih, weight_hh, bias_ih, bias_hh, reverse, initial_state, lengths):  # type: ignore[no-untyped-def]
    """torch has none: sequence by sequence, the equations written out."""
    steps, batch, _ = x.shape
    hidden, found = weight_hh.shape[1], rest[-1] if lengths else torch.full((batch,), steps)
    out = x.new_zeros(steps + 1, batch, hidden)
    for n, length in enumerate(found.tolist()):
        h = rest[0][n] if initial_state else x.new_zeros(hidden)
        for t in range(length)[:: -1 if reverse else 1]:
            r, z, new = F.linear(x[t, n], weight_ih, bias_ih).chunk(3)
            (wr, wz, wn), (br, bz, bn) = weight_hh.chunk(3), bias_hh.chunk(3)
            r, z = torch.sigmoid(r + F.linear(h, wr, br)), torch.sigmoid(z + F.linear(h, wz, bz))
            h = (1 - z) * torch.tanh(new + F.linear(r * h, wn, bn)) + z * h
            out[t, n] = h
        out[steps, n] = h
    return out


@recurrent_op
def rnn(*xs, **given):  # type: ignore[no-untyped-def]
    return recurrent("RNN", *xs, **given)


@recurrent_op
def sequence_lengths(lengths, x, *, sorted, whole, longest):  # type: ignore[no-untyped-def]
    """What torch packs and pads, says how long the sequences are."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=sorted)
    y, found = torch.nn.utils.rnn.pad_packed_sequence(packed, total_length=longest)
    assert not whole or len(y) == len(x)
    return found
