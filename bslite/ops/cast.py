"""Change of dtype."""

from collections.abc import Mapping, Sequence

from bslite.ops import attrs as a
from bslite.ops.core import BYTES, DTYPES, Attr, Attrs, Case, Kind, Op, Shape
from bslite.ops.values import Applied, Gradients, Value


class Cast(Op):
    """Each element as another dtype: to integers towards zero, to bool whether it is not zero.

    A number that the integer type cannot hold, NaN and infinities among them, is an error.
    """

    name = "cast"
    kind = Kind.POINTWISE
    attrs = (Attr("to", a.choice(*DTYPES), doc=f"one of {', '.join(DTYPES)}"),)
    may_fail = True
    torch_name = "to"
    onnx_name = "Cast"

    def dtype(self, ins: Sequence[str], params: Mapping[str, str], attrs: Attrs) -> str:
        return str(attrs["to"])

    def vjp(self, at: Applied, grad: Value) -> Gradients:
        return {0: grad} if at.inputs[0].dtype == "float32" else {}

    def cases(self) -> Sequence[Case]:
        image: Shape = (2, 19, 5, 3)
        plain = [t for t in DTYPES if t not in BYTES]
        return [
            *(
                Case(f"{have} to {to}, rank {len(shape)}", [shape], attrs={"to": to}, dtypes=[have])
                for have in plain
                for to in plain
                for shape in ([(), image] if have != to else [image])
                if shape or to == "float32"
            ),
            *(
                Case(f"{have} to {to}", [image], attrs={"to": to}, dtypes=[have], integers=(0, 128))
                for have in DTYPES
                for to in DTYPES
                if have != to and (have in BYTES or (to in BYTES and have != "float32"))
            ),
            Case("least bytes", [image], attrs={"to": "int8"}, dtypes=["int32"], integers=(-128, 0)),
            Case("largest bytes", [image], attrs={"to": "uint8"}, dtypes=["int64"], integers=(120, 256)),
        ]
