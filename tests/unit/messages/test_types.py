"""The type stubs of the messages match the messages."""

import ast
from pathlib import Path

from logstore.messages import schema, types
from logstore.messages.compiler import classes
from logstore.messages.schema import definitions

STUB = Path(types.__file__).with_suffix(".pyi")


def fields_of(node):
    """Return the attributes that a class of the stub has, with the source of their types."""
    return {
        each.target.id: ast.unparse(each.annotation)
        for each in node.body
        if isinstance(each, ast.AnnAssign)
    }


def test_the_stub_has_every_message_structure_and_field():
    told = {}
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = [each for each in node.body if isinstance(each, ast.ClassDef)]
            told[node.name] = {each.name: fields_of(each) for each in (node, *inner)}
    assert told.keys() == definitions().keys()
    for name, structs in told.items():
        found = schema(name).structs
        assert structs.keys() == found.keys()
        for struct, fields in found.items():
            assert list(structs[struct]) == [each.attribute for each in fields]
            for each in fields:
                annotation = structs[struct][each.attribute]
                assert annotation.startswith("list[") == each.is_array
                assert not each.null or annotation.endswith(" | None")


def test_generated_data_matches_its_description():
    made = types.FetchResponse.PartitionData
    assert made.__qualname__ == "FetchResponse.PartitionData"
    assert made.__module__ == types.__name__
    assert types.FetchResponse is types.FetchResponse


def test_structs_of_a_message_are_its_attributes():
    for name in ("ProduceRequest", "FetchResponse", "ApiVersionsResponse"):
        kinds = classes(name)
        assert len(kinds) > 1
        for struct_name, kind in kinds.items():
            assert (kind.__name__, kind.struct_name) == (struct_name, struct_name)
            if struct_name != name:
                assert getattr(kinds[name], struct_name) is kind
