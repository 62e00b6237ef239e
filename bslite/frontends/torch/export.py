"""`Walk`: from an exported graph to a ModelSpec, node by node."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bslite.errors import BsliteError, SpecError, UnsupportedError
from bslite.frontends.common.lazy import load_torch
from bslite.frontends.common.problems import report
from bslite.frontends.common.unsupported import Unsupported, Varies
from bslite.frontends.common.values import Value
from bslite.frontends.torch.builders import find, operation
from bslite.frontends.torch.checks import tensors
from bslite.frontends.torch.graph import (
    Graph,
    filled_with,
    has_tensors,
    is_empty,
    is_filled,
    is_getitem,
    normalization,
)
from bslite.frontends.torch.labels import labelled
from bslite.frontends.torch.names import Names, call_of
from bslite.frontends.torch.ops import MODULES, is_no_op
from bslite.frontends.torch.site import Site
from bslite.frontends.torch.sizes import claims, numbers, sized
from bslite.frontends.torch.store import Store
from bslite.frontends.torch.values import DTYPES, Const, Pairs, concrete, dims, dtype_name, kept_as
from bslite.ops import Shape
from bslite.spec import GraphBuilder, ModelSpec

if TYPE_CHECKING:
    import torch

    Node = torch.fx.Node


class Walk:
    """Visits a graph's nodes in order and appends their layers to a `Store`."""

    def __init__(self, graph: Graph, module: "torch.nn.Module", name: str) -> None:
        self.graph, self.module, self.sizes = graph, module, graph.sizes
        self.store = Store(GraphBuilder(name), dict(tensors(module)))
        self.names = Names(module, graph.layers())
        self.results: dict[Node, Any] = {}  # Value, Const, list of them, Python number, or MISSING
        self.problems: dict[str, list[str]] = {}  # operation and reason -> layers
        self.varied = False  # whether one of them would be none with a number for a free size

    def spec(self, example: Sequence[Shape]) -> ModelSpec:
        """The finished model. ``example``: shapes of the tensors among the user's inputs."""
        self._placeholders(example)
        for node in self.graph.nodes:
            if node.op not in ("placeholder", "output") and node in self.graph.live:
                self.results[node] = self._visit(node)
        outputs = self._outputs()
        if self.problems:
            raise UnsupportedError(report(self.store.builder.name, self.problems))
        spec = self.store.builder.build(*outputs, labels=self._labels())
        self._check_shapes(spec)
        held = {a.ctypes.data for a in spec.params.values()}
        owners = [t for t in self.store.state.values() if t.device.type == "cpu" and t.data_ptr() in held]
        return spec.replace(owners=tuple(owners))

    def _labels(self) -> list[str]:
        """Names of the results, by their places in what the forward returns."""
        shape, specs = self.graph.program.call_spec.out_spec, self.graph.program.graph_signature.output_specs
        made = [s.arg for s in specs if s.kind.name == "USER_OUTPUT"]
        result = load_torch().utils._pytree.tree_unflatten(range(len(made)), shape)
        return [name for name, i in labelled(result) if not hasattr(made[i], "value")]

    def _placeholders(self, example: Sequence[Shape]) -> None:
        """Inputs are declared, parameters and other known tensors looked up."""
        program, examples = self.graph.program, iter(example)
        specs = {s.arg.name: s for s in program.graph_signature.input_specs}
        for node in self.graph.nodes:
            if node.op != "placeholder":
                continue
            if node in self.graph.stored:
                key = specs[node.name].target
                self.results[node] = Const(self._stored(key), key)
            elif has_tensors(node):
                shape = dims(node.meta["val"])
                declared = [d if isinstance(d, int) else self._name(d) for d in shape]
                dtype = kept_as(node.meta["val"])
                self.results[node] = self.store.input(node.name, shape, declared, next(examples), dtype)
            else:
                self.results[node] = getattr(specs[node.name].arg, "value", None)

    def _name(self, size: Any) -> str:
        """What a free size of an input is called."""
        if self.sizes is not None:
            return self.sizes.names.get(size, str(size))
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

        # Such a symbol stands for what values say, not for the batch.
        return "N" if size.is_Symbol and not free_unbacked_symbols(size) else str(size)

    def _stored(self, key: str) -> "torch.Tensor":
        """The parameter, buffer or constant that the export calls ``key``."""
        program = self.graph.program
        tensor: torch.Tensor = (
            program.state_dict[key] if key in program.state_dict else program.constants[key]
        )
        return tensor

    def _visit(self, node: "Node") -> Any:
        if node in self.graph.hollow:  # a free size of it may be one: the join drops it
            made = node.meta["val"]
            return Const(load_torch().empty(concrete(dims(made), 1), dtype=made.dtype), node.name)
        args, kwargs = load_torch().fx.map_arg((node.args, node.kwargs), self.results.__getitem__)
        if node in self.graph.constant:
            return self._evaluate(node, args, kwargs)
        if not has_tensors(node):
            size = node.meta.get("val")
            return self._problem(node) if size is None and node.op == "call_function" else size
        if node in self.graph.whole:
            return self._whole(node)
        if is_getitem(node):
            return MISSING if args[0] is MISSING else args[0][args[1]]
        builder = find(node)
        if builder is None:
            return self._problem(node)
        if any(a is MISSING for a in flat((*args, *kwargs.values()))):
            return MISSING  # the operation it waits for is reported
        site = self._site(node)
        try:
            require_dtype(node)
            args, kwargs = paired(args), paired(kwargs)
            if is_empty(node):
                raise Unsupported(f"its result {list(dims(node.meta['val']))} is empty")
            bound = bind(builder, site, args, kwargs)
            return same_dtype(node, builder(*bound.args, **bound.kwargs))
        except Unsupported as e:
            return self._problem(node, str(e), varies=isinstance(e, Varies))

    def _site(self, node: "Node") -> Site:
        live, hollow = self.graph.live, self.graph.hollow
        return Site(self.store, self.names, node, [u for u in node.users if u in live and u not in hollow])

    def _evaluate(self, node: "Node", args: Any, kwargs: Any) -> Any:
        """Run an operation on constants."""
        made = node.meta["val"]
        if is_no_op(node) and made.dtype == args[0].data.dtype and made.stride() == args[0].data.stride():
            return args[0]
        torch = load_torch()
        args, kwargs = torch.utils._pytree.tree_map(
            lambda x: x.data if isinstance(x, Const) else x, (tuple(args), dict(kwargs))
        )
        if getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            args = (args[0].clone(), *args[1:])
        with torch.no_grad():
            result = compute(node, args, kwargs)
        key = self.names.part(node, node.name)
        return torch.utils._pytree.tree_map(
            lambda x: Const(x, key) if isinstance(x, torch.Tensor) else x, result
        )

    def _whole(self, node: "Node") -> Any:
        """One op for a whole module, emitted at the node of its result."""
        source = self.graph.whole[node]
        if source is None or self.results[source] is MISSING:
            return MISSING
        site = self._site(node)
        if group := normalization(node):
            clamp, norm = group[2].args, group[3].args
            return site.emit("normalize", self.results[source], axis=norm[2][0], eps=clamp[1])  # type: ignore[index]
        call = call_of(node)
        return MODULES[call.kind](site, self.module.get_submodule(call.path), self.results[source])

    def _outputs(self) -> list[str]:
        """Names of the output values."""
        by_name = {node.name: (node, result) for node, result in self.results.items()}
        names = []
        for spec in self.graph.program.graph_signature.output_specs:
            if spec.kind.name == "USER_INPUT_MUTATION":
                continue  # the caller's array is not written to
            if spec.kind.name != "USER_OUTPUT":
                self._whole_problem(f"changes {spec.target!r}")
            elif hasattr(spec.arg, "value"):  # a Python value, not a tensor
                if spec.arg.value is not None:
                    self._whole_problem(f"returns {spec.arg.value!r}")
            else:
                node, result = by_name.get(spec.arg.name, (None, None))
                dtype = dtype_name(node.meta["val"]) if node and has_tensors(node) else ""
                if isinstance(result, (Value, Const)) and dtype not in DTYPES:
                    self._whole_problem(f"returns {dtype}; bslite has {', '.join(DTYPES)}")
                elif isinstance(result, Pairs):
                    self._whole_problem(f"returns {result.dtype}")
                elif isinstance(result, (Value, Const)):
                    names.append(self.store.value(result).name)
                elif result is not MISSING:
                    self._whole_problem("returns a size")
        return names

    def _whole_problem(self, what: str) -> None:
        """Note a problem of the model as a whole."""
        self.problems.setdefault(f"a forward that {what}", []).append(FORWARD)

    def _problem(self, node: "Node", reason: str = "", *, varies: bool = False) -> object:
        """Note an operation that cannot be expressed, perhaps as a size ``varies``, and put a stand-in in
        the place of its result.
        """
        self.varied |= varies
        what = f"{node.target}: {reason}" if reason else str(node.target)
        self.problems.setdefault(what, []).append(call_of(node).path or FORWARD)
        return load_torch().utils._pytree.tree_map(self._stand_in, node.meta.get("val", MISSING))

    def _stand_in(self, traced: Any) -> Any:
        """A value like the traced tensor that no layer makes; MISSING where bslite has no such values."""
        if not hasattr(traced, "dtype") or kept_as(traced) not in DTYPES:
            return MISSING
        value = Value(f"stand-in {len(self.store.shapes)}", dims(traced), kept_as(traced))
        self.store.shapes[value.name], self.store.dtypes[value.name] = value.shape, value.dtype
        return value

    def _check_shapes(self, spec: ModelSpec) -> None:
        """Compare with the shapes torch traced, for several sizes: a wrong builder fails here, not later."""
        for sizes in self._probes:
            shapes = spec.infer_shapes([concrete(self.store.shapes[i.name], sizes) for i in spec.inputs])
            for layer, traced in self.store.shapes.items():
                want = concrete(traced, sizes)
                if shapes[layer] != want:
                    raise SpecError(
                        f"layer {layer!r}: torch makes {list(want)}, the op it became {list(shapes[layer])}"
                    )

    @functools.cached_property
    def _probes(self) -> list[Mapping[Any, int]]:
        """Some sizes for which the trace holds, the example's at first. Those that values decide fit together
        if there are such sizes.
        """
        claimed = self._claims
        if self.sizes is None:
            return [numbers(claimed, most) or sized(most) for most in (FEW, FEW + 1)]
        return [numbers(claimed, FEW, probe) or sized(FEW, probe) for probe in self.sizes.probes()]

    @functools.cached_property
    def _claims(self) -> Sequence[Any]:
        return claims(self.graph.program)

    def check_doubtful(self, spec: ModelSpec) -> None:
        """SpecError if the model takes sizes for which torch's trace does not hold."""
        assert self.sizes is not None
        for sizes in self.sizes.doubtful():
            if any(concrete((size,), sizes)[0] > most for size, most in self.store.bounds):
                continue  # such a run picks a position that is not there, which is an error
            try:
                spec.infer_shapes([concrete(self.store.shapes[i.name], sizes) for i in spec.inputs])
            except BsliteError:
                continue
            text = ", ".join(f"{self._name(s)} = {n}" for s, n in sizes.items())
            raise SpecError(f"the module computes something else for {text}")


def compute(node: "Node", args: Sequence[Any], kwargs: Any) -> Any:
    """The result of an operation on tensors that are known now."""
    torch = load_torch()
    if is_filled(node):  # whatever its operand
        made = node.meta["val"]
        return torch.full(dims(made), filled_with(node, args), dtype=made.dtype)
    if operation(node) in ("empty", "empty_like"):  # whatever lies there may be no number
        return torch.zeros_like(node.target(*args, **kwargs))  # type: ignore[operator]
    return node.target(*args, **kwargs)  # type: ignore[operator]


FEW = 4  # what a size is tried as that may be any
FORWARD = "the model's own forward"  # where an operation is in no submodule
MISSING = object()  # stands for the result of an operation that could not be converted


def flat(items: Sequence[Any]) -> list[Any]:
    """``items`` with the lists among them opened."""
    return [x for item in items for x in (item if isinstance(item, (list, tuple)) else (item,))]


_signature = functools.cache(inspect.signature)


def bind(builder: Any, site: Site, args: Any, kwargs: Any) -> inspect.BoundArguments:
    """The builder's arguments, or Unsupported if the operation is called in a form it does not know."""
    try:
        return _signature(builder).bind(site, *args, **kwargs)
    except TypeError as e:
        raise Unsupported(f"called in an unknown form ({e})") from None


def result_dtype(node: "Node") -> str:
    """dtype of the operation's (first) result."""
    value = node.meta["val"]
    return kept_as(value[0] if isinstance(value, (tuple, list)) else value)


def paired(arguments: Any) -> Any:
    """An operation's arguments with constants of complex numbers as `Pairs`."""
    torch = load_torch()

    def as_pairs(x: Any) -> Any:
        if isinstance(x, Const) and x.data.is_complex():
            data = x.data if x.data.ndim else x.data.to(torch.complex64)  # a number is of no dtype of its own
            return Pairs(Const(torch.view_as_real(data.resolve_conj()), x.key))
        return x

    return torch.utils._pytree.tree_map(as_pairs, arguments)


def require_dtype(node: "Node") -> None:
    """Raise Unsupported if bslite has no values of the dtype that the operation makes."""
    if result_dtype(node) not in (*DTYPES, Pairs.dtype):
        raise Unsupported(f"makes {result_dtype(node)}; bslite has {', '.join(DTYPES)}")


def same_dtype(node: "Node", result: Any) -> Any:
    """``result``, or Unsupported if it is of another dtype than torch's."""
    made = result[0] if isinstance(result, (tuple, list)) else result
    if isinstance(made, (Value, Const, Pairs)) and made.dtype != result_dtype(node):
        raise Unsupported(f"makes {result_dtype(node)}, the op it would become {made.dtype}")
    return result
