"""The contract of a kind of app: its example works, and nothing else asks of which kind an app is."""

import re
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from slipway.infra.pipelines.app_kinds import contract
from slipway.infra.pipelines.app_kinds.contract import AppInFile, AppInStack, AppKind, app_findings
from slipway.infra.pipelines.file.shape import APP_KINDS
from slipway.infra.places import PACKAGE
from tests.support.checkout import ROOT

IMPORTS = """
from typing import Literal
from pydantic import Field
from slipway.infra.pipelines.apps import AppDeclaration, AppSettings
from slipway.infra.pipelines.app_kinds.contract import AppInStack, AppKind
from slipway.infra.pipelines.contract import literal
from slipway.infra.schema.base import Cpu
"""


@pytest.fixture(scope="module")
def example() -> Any:
    """The class `HelloApp` of the module's docstring."""
    _, code = (contract.__doc__ or "").split("::\n", 1)
    names: dict[str, Any] = {"__name__": __name__}
    exec(IMPORTS + textwrap.dedent(code), names)
    return names["HelloApp"]


def app_in_file(apps: Mapping[str, AppKind]) -> AppInFile:
    return AppInFile(
        ("apps", "hello"), "hello", parameters=(), steps=["train"], variants=(), services=(), apps=apps
    )


def test_the_example_declares_an_app(example: Any) -> None:
    app = example.model_validate({"kind": "hello", "text": "Hi {name}"})
    settings = app.settings_model()(pool="cpu")
    assert settings.cpu == "50m"
    stack = AppInStack("hello", settings, [], ["hello"], None, lambda word: word.replace("{name}", "you"), str)
    declaration = app.declare(stack)
    assert (declaration.name, declaration.placed_by) == ("hello", settings)
    assert declaration.arguments == ["--port", "{port}", "--text", "Hi you"]
    assert [*app_findings(app, app_in_file({"hello": app}))] == []


def test_the_example_refuses_what_it_does_not_know(example: Any) -> None:
    with pytest.raises(ValidationError):
        example.model_validate({"kind": "hello", "texts": "Hi"})


def test_a_kind_without_a_declaration_is_none() -> None:
    class Silent(AppKind):
        """Declares nothing."""

    with pytest.raises(TypeError, match="declare"):
        Silent.model_validate({})


def test_each_kind_is_known_in_its_file_alone() -> None:
    names = "|".join(kind.__name__ for kind in APP_KINDS)
    asking = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        for name in re.findall(rf"\b(?:{names})\b", path.read_text(encoding="utf-8"))
    }
    homes = {(f"{kind.__module__.replace('.', '/')}.py", kind.__name__) for kind in APP_KINDS}
    assert asking - homes == {("slipway/infra/pipelines/file/shape.py", "ProgramApp")}
