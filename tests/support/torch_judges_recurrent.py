"""The recurrent layers as torch computes them."""

import warnings

import torch
import torch.nn.functional as F

from support.torch_judges import oracle


def recurrent(kind, x, *rest, reverse, initial_state, lengths, **params):  # type: ignore[no-untyped-def]
    """By torch's own module, sequence by sequence: cut to its length, turned round if need be."""
    steps, batch, _ = x.shape
    found = rest[-1] if lengths else torch.full((batch,), steps)
    hidden, hr = params["weight_hh"].shape[0] // {"LSTM": 4, "GRU": 3}.get(kind, 1), params.get("weight_hr")
    extra = {"nonlinearity": params.pop("activation")} if kind == "RNN" else {}
    if hr is not None:
        extra["proj_size"] = hr.shape[0]
    net = getattr(torch.nn, kind)(x.shape[2], hidden, bias=params.get("bias_ih") is not None, **extra).to(
        x.dtype
    )
    net.load_state_dict({f"{role}_l0": p for role, p in params.items() if p is not None})
    out = x.new_zeros(steps + 1 + (kind == "LSTM"), batch, hidden)
    for n, length in enumerate(found.tolist()):
        own = x[:length, n].flip(0) if reverse else x[:length, n]
        state = [s[n : n + 1] for s in rest[: len(rest) - lengths]] if initial_state else None
        if kind != "LSTM" and state:
            state = state[0]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")
            y, last = net(own, state)
        out[:length, n, : y.shape[1]] = y.flip(0) if reverse else y
        for i, s in enumerate(last if kind == "LSTM" else [last]):
            out[steps + i, n, : s.shape[1]] = s[0]
    return out


@oracle
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


@oracle
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


@oracle
def rnn(*xs, **given):  # type: ignore[no-untyped-def]
    return recurrent("RNN", *xs, **given)


@oracle
def sequence_lengths(lengths, x, *, sorted, whole, longest):  # type: ignore[no-untyped-def]
    """What torch packs and pads, says how long the sequences are."""
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=sorted)
    y, found = torch.nn.utils.rnn.pad_packed_sequence(packed, total_length=longest)
    assert not whole or len(y) == len(x)
    return found
