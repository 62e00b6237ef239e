"""Weaves runs of planes into pixels within registers, and takes pixels apart."""

from llvmlite import ir

from bslite.kernels.cpu.vector.simd import I32, LANES


def woven(builder, planes):
    """A register of each plane as pixels: first the first cells of all planes, then the second cells, ...

    Neighbouring planes are woven first, as many as the smallest prime factor of their number, then pixels of
    these: a register of the result takes one shuffle less than the factors add up to.
    """
    groups, run = [[plane] for plane in planes], 1
    for factor in _factors(len(planes)):
        length = len(groups[0]) * LANES
        cells = [
            k * length + cell * run + c
            for cell in range(length // run)
            for k in range(factor)
            for c in range(run)
        ]
        parts = [groups[g : g + factor] for g in range(0, len(groups), factor)]
        groups = [_gathered(builder, [r for group in part for r in group], cells) for part in parts]
        run *= factor
    return groups[0]


def unwoven(builder, pixels):
    """The planes of `woven`, from its result."""
    groups, run = [pixels], len(pixels)
    for factor in reversed(_factors(len(pixels))):
        run //= factor
        length = len(groups[0]) * LANES // factor
        cells = [
            [(cell * factor + k) * run + c for cell in range(length // run) for c in range(run)]
            for k in range(factor)
        ]
        groups = [_gathered(builder, group, of_part) for group in groups for of_part in cells]
    return [plane for (plane,) in groups]


def _factors(number):
    """Its prime factors, the smallest first."""
    found, factor = [], 2
    while number > 1:
        if number % factor:
            factor += 1
        else:
            found.append(factor)
            number //= factor
    return found


def _gathered(builder, registers, cells):
    """Registers of the ``cells`` of a run of registers."""
    return [_taken(builder, registers, cells[at : at + LANES]) for at in range(0, len(cells), LANES)]


def _taken(builder, registers, cells):
    """The register of LANES ``cells`` of a run of registers. A shuffle takes two, so what several hold is
    merged one by one.
    """
    places = [divmod(cell, LANES) for cell in cells]
    first, *others = dict.fromkeys(r for r, _ in places)
    found = registers[first]
    lanes = [lane if r == first else 0 for r, lane in places]
    if not others:
        return _shuffled(builder, found, ir.Constant(found.type, ir.Undefined), lanes)
    for other in others:
        lanes = [LANES + lane if r == other else at for (r, lane), at in zip(places, lanes, strict=True)]
        found = _shuffled(builder, found, registers[other], lanes)
        lanes = list(range(LANES))
    return found


def _shuffled(builder, a, b, lanes):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, LANES), lanes))
