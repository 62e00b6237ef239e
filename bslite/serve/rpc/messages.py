"""The protocol's gRPC messages: those that are answered here, of the package ``inference``.

https://github.com/kserve/open-inference-protocol (``open_inference_grpc.proto``), the same as in Triton's
``grpc_service.proto``. Their descriptors are made here and not by protoc, in a pool of their own: protobuf's
pool for all takes each name once, and a client in the same process, such as tritonclient, has them there.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "inference"
_TENSOR = "string name = 1; string datatype = 2; repeated int64 shape = 3"
_MODEL = "string name = 1; string version = 2"
#: Message -> its fields as a .proto file has them. A ``map`` is from string to InferParameter; a message with
#: a dot in its name is declared in another; of an InferParameter's fields one is there.
_FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live = 1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready = 1",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "bool ready = 1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{_MODEL}; repeated string extensions = 3",
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse": "string name = 1; repeated string versions = 2; string platform = 3;"
    "repeated ModelMetadataResponse.TensorMetadata inputs = 4;"
    "repeated ModelMetadataResponse.TensorMetadata outputs = 5",
    "ModelMetadataResponse.TensorMetadata": _TENSOR,
    "InferParameter": "bool bool_param = 1; int64 int64_param = 2; string string_param = 3;"
    "double double_param = 4; uint64 uint64_param = 5",
    "InferTensorContents": "repeated bool bool_contents = 1;"
    "repeated int32 int_contents = 2; repeated int64 int64_contents = 3;"
    "repeated uint32 uint_contents = 4; repeated uint64 uint64_contents = 5;"
    "repeated float fp32_contents = 6; repeated double fp64_contents = 7; repeated bytes bytes_contents = 8",
    "ModelInferRequest": "string model_name = 1; string model_version = 2; string id = 3; map parameters = 4;"
    "repeated ModelInferRequest.InferInputTensor inputs = 5;"
    "repeated ModelInferRequest.InferRequestedOutputTensor outputs = 6;"
    "repeated bytes raw_input_contents = 7",
    "ModelInferRequest.InferInputTensor": f"{_TENSOR}; map parameters = 4; InferTensorContents contents = 5",
    "ModelInferRequest.InferRequestedOutputTensor": "string name = 1; map parameters = 2",
    "ModelInferResponse": "string model_name = 1; string model_version = 2; string id = 3;"
    "repeated ModelInferResponse.InferOutputTensor outputs = 5; repeated bytes raw_output_contents = 6",
    "ModelInferResponse.InferOutputTensor": _TENSOR,
}
_SCALARS = ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")


def _made() -> dict[str, Any]:
    """The classes of the messages."""
    file = FileDescriptorProto(name="bslite/inference.proto", package=PACKAGE, syntax="proto3")
    messages: dict[str, DescriptorProto] = {}
    for name, fields in _FIELDS.items():
        outer, _, inner = name.rpartition(".")
        siblings = messages[outer].nested_type if outer else file.message_type
        message = messages[name] = siblings.add(name=inner)
        for declared in filter(None, fields.split(";")):
            _declare(message, name, declared)
    for field in messages["InferParameter"].field:
        field.oneof_index = 0
    messages["InferParameter"].oneof_decl.add(name="parameter_choice")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


def _declare(message: DescriptorProto, within: str, declared: str) -> None:
    """Add the field ``declared`` to ``message``, whose name is ``within``."""
    *label, kind, name, _, number = declared.split()
    if kind == "map":  # on the wire a list of entries, as protoc declares it
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        _declare(entry, "", "string key = 1")
        _declare(entry, "", "InferParameter value = 2")
        label, kind = ["repeated"], f"{within}.{entry.name}"
    field = message.field.add(name=name, number=int(number))
    field.label = FieldDescriptorProto.LABEL_REPEATED if label else FieldDescriptorProto.LABEL_OPTIONAL
    if kind in _SCALARS:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"


#: Name -> class.
MESSAGES = _made()
