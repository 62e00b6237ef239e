"""Loops of recurrent layers over time by torch, forwards as differentiable equations; backwards by autograd,
of the same equations made linear around what is kept.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

Tensor = torch.Tensor
Places = Iterator[tuple[int, Tensor, Tensor]]


def places(steps, batch, rest, lengths, reverse) -> Places:  # type: ignore[no-untyped-def]
    """The steps: their number, the sequences that are not over, and the times of those."""
    found = rest[-1] if lengths else torch.full((batch,), steps)
    for s in range(steps):
        live = torch.nonzero(s < found)[:, 0]
        yield s, live, found[live] - 1 - s if reverse else torch.full((len(live),), s)


def forwards(cell: Callable[..., tuple[list[Tensor], list[Tensor]]], states: int):  # type: ignore[no-untyped-def]
    """The op of a cell, which makes the new state and the gates."""

    def loop(x, w, b, *rest, reverse, initial_state, lengths, keeps=False, **how):  # type: ignore[no-untyped-def]
        steps, batch, hidden = x.shape[0], x.shape[1], w.shape[1]
        state = list(rest[:states]) if initial_state else [x.new_zeros(batch, hidden)] * states
        made = {}
        for s, live, time in places(steps, batch, rest, lengths, reverse):
            after, gates = cell(x[time, live], w, b, *(old[live] for old in state), **how)
            row = torch.cat([*gates, *after[::-1]], 1) if keeps else after[0]
            if not s:
                made = x.new_zeros(steps, batch, row.shape[1])
            made = made.index_put((time, live), row)
            state = [old.index_put((live,), new) for old, new in zip(state, after, strict=True)]
        if not keeps:
            return torch.cat([made, torch.stack(state)])
        last = torch.cat(state[::-1], 1)
        return torch.cat([made, F.pad(last, (made.shape[2] - last.shape[1], 0))[None]])

    return loop


def lstm_cell(x, w, b, h, c):  # type: ignore[no-untyped-def]
    i, f, g, o = (x + F.linear(h, w, b)).chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    c = f * c + i * g
    return [o * torch.tanh(c), c], [i, f, g, o]


def gru_cell(x, w, b, h, *, reset_after):  # type: ignore[no-untyped-def]
    xr, xz, xn = x.chunk(3, 1)
    (wr, wz, wn), (br, bz, bn) = w.chunk(3), b.chunk(3)
    r, z = torch.sigmoid(xr + F.linear(h, wr, br)), torch.sigmoid(xz + F.linear(h, wz, bz))
    seen = F.linear(h if reset_after else r * h, wn, bn)
    n = torch.tanh(xn + (r * seen if reset_after else seen))
    return [(1 - z) * n + z * h], [r, z, n, *([seen] if reset_after else [])]


def rnn_cell(x, w, b, h, *, activation):  # type: ignore[no-untyped-def]
    return [getattr(torch, activation)(x + F.linear(h, w, b))], []


def backwards(slopes: Callable[..., list[Tensor]], states: int, sums: Callable[..., int]):  # type: ignore[no-untyped-def]
    """The op backwards of a cell: ``slopes`` makes the change of its state from that of its sums."""

    def loop(kept, w, grad, *rest, reverse, initial_state, lengths, **how):  # type: ignore[no-untyped-def]
        steps, batch, hidden = kept.shape[0] - 1, kept.shape[1], w.shape[1]
        state = list(rest[:states]) if initial_state else [kept.new_zeros(batch, hidden)] * states
        with torch.enable_grad():
            moved = kept.new_zeros(steps, batch, sums(**how) * hidden).requires_grad_()
            starts = [torch.zeros_like(s).requires_grad_() for s in state]
            change = list(starts)
            made = kept.new_zeros(steps, batch, hidden)
            for _, live, time in places(steps, batch, rest, lengths, reverse):
                now = kept[time, live].chunk(kept.shape[2] // hidden, 1)
                old = [s[live] for s in state]
                after = slopes(moved[time, live], w, now, old, [s[live] for s in change], **how)
                made = made.index_put((time, live), after[0])
                change = [c.index_put((live,), new) for c, new in zip(change, after, strict=True)]
                state = [s.index_put((live,), new) for s, new in zip(state, now[::-1], strict=False)]
            value = torch.cat([made, torch.stack(change)])
            found = torch.autograd.grad(value, [moved, *starts], grad)
        if not initial_state:
            return found[0]
        last = torch.cat(found[1:], 1)
        return torch.cat([found[0], F.pad(last, (0, found[0].shape[2] - last.shape[1]))[None]])

    return loop


def lstm_slopes(moved, w, now, old, change):  # type: ignore[no-untyped-def]
    i, f, g, o, c, _ = now
    si, sf, sg, so = (moved + change[0] @ w.T).chunk(4, 1)
    dc = f * (1 - f) * sf * old[1] + f * change[1] + i * (1 - i) * si * g + i * (1 - g * g) * sg
    seen = torch.tanh(c)
    return [o * (1 - o) * so * seen + o * (1 - seen * seen) * dc, dc]


def gru_slopes(moved, w, now, old, change, *, reset_after):  # type: ignore[no-untyped-def]
    r, z, n, *more = now[:-1]
    (h,), (wr, wz, wn), (dh,) = old, w.chunk(3), change
    mr, mz, mn, *mh = moved.chunk(4 if reset_after else 3, 1)
    dr, dz = r * (1 - r) * (mr + dh @ wr.T), z * (1 - z) * (mz + dh @ wz.T)
    by_h = dr * more[0] + r * (mh[0] + dh @ wn.T) if reset_after else (dr * h + r * dh) @ wn.T
    sn = mn + by_h
    return [dz * (h - n) + (1 - z) * (1 - n * n) * sn + z * dh]


def rnn_slopes(moved, w, now, old, change, *, activation):  # type: ignore[no-untyped-def]
    total = moved + change[0] @ w.T
    return [(1 - now[0] ** 2) * total if activation == "tanh" else torch.where(now[0] > 0, total, 0)]


LOOPS = {
    "lstm_steps": forwards(lstm_cell, 2), "gru_steps": forwards(gru_cell, 1),
    "rnn_steps": forwards(rnn_cell, 1),
    "lstm_deltas": backwards(lstm_slopes, 2, lambda: 4),
    "gru_deltas": backwards(gru_slopes, 1, lambda reset_after: 3 + reset_after),
    "rnn_deltas": backwards(rnn_slopes, 1, lambda activation: 1),
}  # fmt: skip
