"""The messages and calls of proto/, created at import from the descriptors that the installation compiled."""

from __future__ import annotations

import importlib.resources
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


class Method(NamedTuple):
    path: str
    request: Any
    response: Any
    client_streams: bool
    server_streams: bool


def _read() -> descriptor_pb2.FileDescriptorSet:
    file = importlib.resources.files("xlad") / "protos.binpb"
    if not file.is_file():
        raise ImportError("xlad has no protos.binpb: it is not installed; pip install ./python in a checkout of xlad")
    return descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())


_files = _read()
_pool = descriptor_pool.DescriptorPool()
for _file in _files.file:
    _pool.Add(_file)


def message(name: str) -> Any:
    """Returns the class of the message `name` of package xlad.v1, or of package xlad if it is not there."""
    try:
        found = _pool.FindMessageTypeByName(f"xlad.v1.{name}")
    except KeyError:
        found = _pool.FindMessageTypeByName(f"xlad.{name}")
    return message_factory.GetMessageClass(found)


def enum_name(enum: str, number: int) -> str:
    value = _pool.FindEnumTypeByName(f"xlad.v1.{enum}").values_by_number.get(number)
    return value.name if value is not None else str(number)


def _methods() -> dict[str, Method]:
    """Returns the calls by name: "GetJob" of the service Coordinator, "SessionWorker.PutArray" of others."""
    methods = {}
    for file in _files.file:
        for service in file.service:
            for m in service.method:
                request, response = (message(name.removeprefix(".xlad.v1.")) for name in (m.input_type, m.output_type))
                path = f"/{file.package}.{service.name}/{m.name}"
                name = m.name if service.name == "Coordinator" else f"{service.name}.{m.name}"
                methods[name] = Method(path, request, response, m.client_streaming, m.server_streaming)
    return methods


METHODS = _methods()
