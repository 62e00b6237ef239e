"""What the instructions compute: a line each, of types and an expression of the operands a, b, c, d (PTX ISA
9.0). Approximate ones (``approx``) are exact here, which lies within what they promise.
"""

from itertools import product
from typing import NamedTuple

INTEGERS = ("s32", "u32", "s64", "u64")
FLOATS = ("f32", "f64")
ORDERS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARISONS = {"eq": "==", "ne": "!=", **ORDERS}


class Meaning(NamedTuple):
    """Types of the result and of the operands, and an expression."""

    to: str
    of: tuple[str, ...]
    expression: str


MEANINGS: dict[str, Meaning] = {}


def _is(names: str, to: str, of: str, expression: str) -> None:
    for name in names.split():
        MEANINGS[name] = Meaning(to, tuple(of.split()), expression)


for t in ("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "pred"):
    _is(f"mov.{t}", "u64", "u64", "a")
    _is(f"selp.{t}", "u64", "u64 u64 u64", "a if c != 0 else b")
    _is(f"and.{t}", "u64", "u64 u64", "a & b")
    _is(f"or.{t}", "u64", "u64 u64", "a | b")
    # A true predicate is 1 or, as a number in the code, -1.
    _is(f"xor.{t}", "u64", "u64 u64", "(a != 0) != (b != 0)" if t == "pred" else "a ^ b")
    _is(f"not.{t}", "u64", "u64", "a == 0" if t == "pred" else "~a")
for space in ("global", "shared"):
    _is(f"cvta.to.{space}.u64 cvta.{space}.u64", "u64", "u64", "a")
_is("cvt.u32.u64 cvt.s32.s64 cvt.u64.u64 cvt.s64.s64 cvt.u32.s64 cvt.s32.u64", "u64", "u64", "a")
_is("cvt.u64.u32 cvt.s64.u32", "u64", "u32", "a")
_is("cvt.s64.s32 cvt.u64.s32", "s64", "s32", "a")

# -- integers --------------------------------------------------------------------------------------

for t in INTEGERS:
    bits = t[1:]
    u = f"u{bits}"  # where signs make no difference
    _is(f"add.{t}", u, f"{u} {u}", "a + b")
    _is(f"sub.{t}", u, f"{u} {u}", "a - b")
    _is(f"mul.lo.{t}", u, f"{u} {u}", "a * b")
    _is(f"mad.lo.{t}", u, f"{u} {u} {u}", "a * b + c")
    _is(f"setp.eq.{t}", "u64", f"{u} {u}", "a == b")
    _is(f"setp.ne.{t}", "u64", f"{u} {u}", "a != b")
    _is(f"div.{t}", t, f"{t} {t}", f"divided_{t[0]}(a, b)")
    _is(f"rem.{t}", t, f"{t} {t}", f"a - b * divided_{t[0]}(a, b)")
    _is(f"min.{t}", t, f"{t} {t}", "min(a, b)")
    _is(f"max.{t}", t, f"{t} {t}", "max(a, b)")
    _is(f"shr.{t}", t, f"{t} u32", f"a >> min(b, type_u32({int(bits) - 1}))" if t[0] == "s"
        else f"a >> b if b < {bits} else type_{t}(0)")  # fmt: skip
    for name, sign in ORDERS.items():
        _is(f"setp.{name}.{t}", "u64", f"{t} {t}", f"a {sign} b")
for bits in ("32", "64"):
    _is(f"neg.s{bits}", f"s{bits}", f"s{bits}", "-a")
    _is(f"abs.s{bits}", f"s{bits}", f"s{bits}", "-a if a < 0 else a")
    _is(f"shl.b{bits}", f"u{bits}", f"u{bits} u32", f"a << b if b < {bits} else type_u{bits}(0)")
    _is(f"setp.eq.b{bits}", "u64", f"u{bits} u{bits}", "a == b")
    _is(f"setp.ne.b{bits}", "u64", f"u{bits} u{bits}", "a != b")
    _is(f"bfi.b{bits}", f"u{bits}", f"u{bits} u{bits} u32 u32", f"inserted(a, b, c, d, {bits})")
for t in "us":
    wide = f"type_{t}64"
    _is(f"mul.wide.{t}32", f"{t}64", f"{t}32 {t}32", f"{wide}(a) * {wide}(b)")
    _is(f"mad.wide.{t}32", f"{t}64", f"{t}32 {t}32 {t}64", f"{wide}(a) * {wide}(b) + c")
    _is(f"mul.hi.{t}32", f"{t}64", f"{t}32 {t}32", f"({wide}(a) * {wide}(b)) >> {wide}(32)")

_is("mul.hi.u64", "u64", "u64 u64", "upper(a, b)")
signed = "type_s64(upper(type_u64(a), type_u64(b))) - (b if a < 0 else 0) - (a if b < 0 else 0)"
_is("mul.hi.s64", "s64", "s64 s64", signed)

# -- floating point --------------------------------------------------------------------------------

for t in FLOATS:
    _is(f"add.{t} add.rn.{t}", t, f"{t} {t}", "a + b")
    _is(f"sub.{t} sub.rn.{t}", t, f"{t} {t}", "a - b")
    _is(f"mul.{t} mul.rn.{t}", t, f"{t} {t}", "a * b")
    _is(f"fma.rn.{t}", t, f"{t} {t} {t}", "fma(a, b, c)")
    _is(f"div.rn.{t} div.full.{t} div.approx.{t} div.approx.ftz.{t}", t, f"{t} {t}", "a / b")
    _is(f"neg.{t}", t, t, "-a")
    _is(f"abs.{t}", t, t, "abs(a)")
    _is(f"copysign.{t}", t, f"{t} {t}", "math.copysign(b, a)")
    root = "math.sqrt(a) if a >= 0 or a != a else a * type_nan"
    _is(f"sqrt.rn.{t} sqrt.approx.{t} sqrt.approx.ftz.{t}", t, t, root)
    _is(f"rcp.rn.{t} rcp.approx.ftz.{t} rcp.approx.{t}", t, t, f"type_{t}(1) / a")
    over_root = f"type_{t}(1) / math.sqrt(a) if a >= 0 else a * type_nan"
    _is(f"rsqrt.approx.{t} rsqrt.approx.ftz.{t}", t, t, over_root)
    _is(f"max.{t}", t, f"{t} {t}", "larger(a, b) if a == a and b == b else (b if a != a else a)")
    _is(f"min.{t}", t, f"{t} {t}", "-larger(-a, -b) if a == a and b == b else (b if a != a else a)")
    _is(f"max.NaN.{t}", t, f"{t} {t}", "larger(a, b)")
    _is(f"min.NaN.{t}", t, f"{t} {t}", "-larger(-a, -b)")
    for way, function in (("rni", "np.rint"), ("rmi", "np.floor"), ("rpi", "np.ceil"), ("rzi", "np.trunc")):
        _is(f"cvt.{way}.{t}.{t}", t, t, f"{function}(a)")
    for name, sign in COMPARISONS.items():
        _is(f"setp.{name}.{t}", "u64", f"{t} {t}", f"a {sign} b and a == a and b == b")
        _is(f"setp.{name}u.{t}", "u64", f"{t} {t}", f"a {sign} b or a != a or b != b")
    _is(f"setp.num.{t}", "u64", f"{t} {t}", "a == a and b == b")
    _is(f"setp.nan.{t}", "u64", f"{t} {t}", "a != a or b != b")
for way in ("rm", "rz", "rp"):
    _is(f"fma.{way}.f32", "f32", "f32 f32 f32", f"directed(a, b, c, {'mzp'.index(way[1])})")
    _is(f"add.{way}.f32", "f32", "f32 f32", f"directed(a, type_f32(1), b, {'mzp'.index(way[1])})")
_is("max.relu.s32", "s32", "s32 s32", "max(max(a, b), type_s32(0))")
_is("cvt.sat.f32.f32", "f32", "f32", "min(max(a, type_f32(0)), type_f32(1)) if a == a else type_f32(0)")
_is("ex2.approx.f32 ex2.approx.ftz.f32", "f32", "f32", "np.exp2(type_f64(a))")
_is("lg2.approx.f32 lg2.approx.ftz.f32", "f32", "f32", "np.log2(type_f64(a))")
_is("cvt.f64.f32", "f64", "f32", "a")
_is("cvt.rn.f32.f64", "f32", "f64", "a")
for t, i in product(FLOATS, INTEGERS):
    _is(f"cvt.rn.{t}.{i}", t, i, "a")
    low, high = (-(2 ** (int(i[1:]) - 1)), 2 ** (int(i[1:]) - 1)) if i[0] == "s" else (0, 2 ** int(i[1:]))
    for way, function in (("rni", "np.rint"), ("rzi", "np.trunc")):
        _is(f"cvt.{way}.{i}.{t}", i, t, f"to_{i}({function}(type_f64(a)), {low}.0, {high}.0)")

#: Instructions that compute the same have the same number.
_DISTINCT = list(dict.fromkeys(MEANINGS.values()))
OPCODES = {name: _DISTINCT.index(meaning) for name, meaning in MEANINGS.items()}
#: What most of a kernel's time goes to: these take all threads of a warp in one vector loop.
FREQUENT = {
    OPCODES[name] for name in (
        "mov.b64", "add.s64", "sub.s64", "mul.lo.s64", "shl.b64", "shr.u64", "selp.b64", "and.b64",
        "or.b64", "cvt.u64.u32", "cvt.s64.s32", "setp.lt.s64", "setp.ge.s64", "setp.gt.s64",
        "setp.eq.s64", "setp.ne.s64", "add.s32", "mul.lo.s32", "mad.lo.s32", "shl.b32",
        "setp.lt.s32", "setp.ge.u32", "setp.eq.s32", "mul.wide.u32", "mul.wide.s32", "fma.rn.f32",
        "add.f32", "mul.f32", "sub.f32", "max.NaN.f32", "add.f64", "mul.f64", "fma.rn.f64",
        "cvt.f64.f32",
    )
}  # fmt: skip
_CONTROL = (
    "nothing", "bra", "ret", "bar", "bar.or", "shfl.bfly", "mma", "pack", "unpack", "ld.global",
    "ld.global.coherent", "st.global", "st.global.coherent", "ld.shared", "ld.shared.coherent", "st.shared",
    "st.shared.coherent", "ld.const",
)  # fmt: skip
CONTROL = {name: len(OPCODES) + number for number, name in enumerate(_CONTROL)}
