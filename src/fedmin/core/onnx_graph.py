"""A model as a graph of ONNX, from raw columns to predictions; needs `fedmin[onnx]`.

Raw columns are prepared in double precision, as fedmin does it; linear models stay in it, networks
go on in single precision, as they were trained.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedmin.core.files import write_whole
from fedmin.core.layers import Activation, Affine, ConvolvePool, Flat, Image
from fedmin.core.preparation import Category, Number
from fedmin.core.raw_rows import MISSING

OPSET, ML_OPSET = 20, 3  # what onnxruntime 1.17 and later know
PLAIN = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus", "elu": "Elu",
    "selu": "Selu", "soft_sign": "Softsign", "mish": "Mish", "identity": "Identity",
}  # fmt: skip


def write_onnx(model: Any, path: Path) -> Path:
    """Write a model as ONNX."""
    try:
        import onnx
    except ImportError:
        raise ValueError("model.onnx needs onnx: pip install 'fedmin[onnx]'") from None
    graph = Graph(onnx)
    kind = np.dtype("float64" if model.linear else "float32")
    h = _prepared(graph, model)
    if kind == np.float32:
        h = graph.add("Cast", h, to=onnx.TensorProto.FLOAT)
    layers = getattr(model.problem, "layers", None)
    if layers is None:
        name = type(model.problem).__name__
        raise ValueError(f"{name} does not say its layers: ONNX is for fedmin's own problems")
    for layer in layers(np.asarray(model.x, kind)):
        h = _layer(graph, layer, h, kind)
    _outputs(graph, model, h, kind)
    made = onnx.helper.make_model(
        graph.made(f"fedmin {model.kind}"),
        opset_imports=[onnx.helper.make_opsetid("", OPSET),
                       onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        producer_name="fedmin", producer_version=model.version, ir_version=9,
    )  # fmt: skip
    onnx.checker.check_model(made, full_check=True)
    write_whole(path, made.SerializeToString())
    return path


class Graph:
    """Nodes, constants, inputs and outputs, as they are added."""

    def __init__(self, onnx: Any):
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def add(self, op: str, *inputs: str, domain: str = "", name: str = "", **options: Any) -> str:
        """A node; the name of what it gives."""
        out = name or f"t{len(self.nodes)}"
        made = self.onnx.helper.make_node(op, list(inputs), [out], domain=domain, **options)
        self.nodes.append(made)
        return out

    def constant(self, value: Any) -> str:
        """An array that does not change."""
        name = f"c{len(self.constants)}"
        array = np.array(value, order="C")
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def value(self, name: str, kind: Any, shape: list[Any]) -> Any:
        """The form of an input or an output."""
        kinds = {"float32": "FLOAT", "float64": "DOUBLE", "int64": "INT64", "str": "STRING"}
        of = getattr(self.onnx.TensorProto, kinds[kind])
        return self.onnx.helper.make_tensor_value_info(name, of, shape)

    def made(self, name: str) -> Any:
        """The graph itself."""
        return self.onnx.helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, self.constants
        )


def _prepared(graph: Graph, model: Any) -> str:
    """f64[n, features] from the inputs."""
    if model.preparation is None:
        graph.inputs.append(graph.value("rows", "float64", ["n", len(model.inputs)]))
        order = [model.inputs.index(name) for name in model.features]
        return graph.add("Gather", "rows", graph.constant(np.array(order, np.int64)), axis=1)
    parts = []
    for column in model.preparation.columns:
        kind = "float64" if isinstance(column, Number) else "str"
        graph.inputs.append(graph.value(column.name, kind, ["n", 1]))
        make: Any = _number if isinstance(column, Number) else _category
        parts.append(make(graph, column))
    whole = graph.add("Concat", *parts, axis=1)
    names = [name for column in model.preparation.columns for name in column.names]
    kept = [names.index(name) for name in model.features]
    return graph.add("Gather", whole, graph.constant(np.array(kept, np.int64)), axis=1)


def _number(graph: Graph, column: Number) -> str:
    empty = graph.add("IsNaN", column.name)
    fill = graph.constant(np.array([[np.nan if column.fill is None else column.fill]]))
    filled = graph.add("Where", empty, fill, column.name)
    shifted = graph.add("Sub", filled, graph.constant(np.array([[column.shift]])))
    scaled = graph.add("Div", shifted, graph.constant(np.array([[column.scale]])))
    if not column.indicator:
        return scaled
    return graph.add("Concat", scaled, _double(graph, empty), axis=1)


def _category(graph: Graph, column: Category) -> str:
    """Levels as numbers by a table of words; a word that the model would refuse becomes NaN."""
    last = len(column.levels) - 1
    place = {level: k for k, level in enumerate(column.levels)}
    missing = [word for word in MISSING if word not in place]
    fill = -1 if column.fill is None else place.get(column.fill, last)
    table = place | dict.fromkeys(missing, fill)
    at = _looked_up(graph, column.name, table, last if column.rare else -1)
    parts = []
    if last:
        levels = graph.constant(np.arange(1, last + 1, dtype=np.int64)[None])
        parts.append(_double(graph, graph.add("Equal", at, levels)))
    if column.indicator:
        empty = _looked_up(graph, column.name, dict.fromkeys(missing, 1), 0)
        parts.append(_double(graph, empty))
    found = graph.add("Concat", *parts, axis=1)
    unknown = graph.add("Equal", at, graph.constant(np.full((1, 1), -1, np.int64)))
    return graph.add("Where", unknown, graph.constant(np.full((1, 1), np.nan)), found)


def _looked_up(graph: Graph, name: str, table: dict[str, int], otherwise: int) -> str:
    return graph.add(
        "LabelEncoder", name, domain="ai.onnx.ml", keys_strings=list(table),
        values_int64s=list(table.values()), default_int64=otherwise,
    )  # fmt: skip


def _double(graph: Graph, name: str) -> str:
    return graph.add("Cast", name, to=graph.onnx.TensorProto.DOUBLE)


def _layer(graph: Graph, layer: Any, h: str, kind: np.dtype) -> str:
    if isinstance(layer, Affine):
        out = graph.add("MatMul", h, graph.constant(np.asarray(layer.weights, kind).T))
        bias = layer.bias
        return out if bias is None else graph.add("Add", out, graph.constant(np.array(bias, kind)))
    if isinstance(layer, Activation):
        return _activation(graph, layer.name, h, kind)
    if isinstance(layer, Image):
        shape = np.array([-1, layer.height, layer.width, layer.channels], np.int64)
        image = graph.add("Reshape", h, graph.constant(shape))
        return graph.add("Transpose", image, perm=[0, 3, 1, 2])
    if isinstance(layer, ConvolvePool):
        return _convolve_pool(graph, layer, h, kind)
    assert isinstance(layer, Flat)
    return graph.add("Flatten", graph.add("Transpose", h, perm=[0, 2, 3, 1]), axis=1)


def _convolve_pool(graph: Graph, layer: ConvolvePool, h: str, kind: np.dtype) -> str:
    k, p = layer.kernel, layer.padding
    weights = np.asarray(layer.weights, kind)
    kernel = weights.reshape(len(weights), k, k, -1).transpose(0, 3, 1, 2)
    bias = graph.constant(np.asarray(layer.bias, kind))
    out = graph.add("Conv", h, graph.constant(kernel), bias, kernel_shape=[k, k], pads=[p] * 4)
    return graph.add("MaxPool", out, kernel_shape=[2, 2], strides=[2, 2])


def _activation(graph: Graph, name: str, h: str, kind: np.dtype) -> str:
    if name in ("swish", "silu"):
        return graph.add("Mul", h, graph.add("Sigmoid", h))
    if name == "gelu":
        return graph.add("Gelu", h, approximate="tanh")  # as jax.nn.gelu
    if name == "leaky_relu":
        return graph.add("LeakyRelu", h, alpha=0.01)
    if name not in PLAIN:
        known = ", ".join(sorted([*PLAIN, "swish", "gelu", "leaky_relu"]))
        raise ValueError(f"the activation {name} has no form in ONNX here; there is {known}")
    return graph.add(PLAIN[name], h)


def _outputs(graph: Graph, model: Any, h: str, kind: np.dtype) -> None:
    of = str(kind)
    if model.classes is None:
        end = "Exp" if model.link == "log" else "Identity"
        flat = graph.add("Reshape", h, graph.constant(np.array([-1], np.int64)))
        graph.add(end, flat, name="prediction")
        graph.outputs.append(graph.value("prediction", of, ["n"]))
        return
    if model.link == "logit":
        h = graph.add("Concat", graph.add("Sub", h, h), h, axis=1)
    graph.add("Softmax", h, axis=1, name="probabilities")
    best = graph.add("ArgMax", h, axis=1, keepdims=0)
    words = isinstance(model.classes[0], str)
    names = np.array(model.classes, object if words else np.int64)
    graph.add("Gather", graph.constant(names), best, name="label")
    graph.outputs.append(graph.value("label", "str" if words else "int64", ["n"]))
    graph.outputs.append(graph.value("probabilities", of, ["n", len(model.classes)]))
