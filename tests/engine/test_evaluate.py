"""The engine in place of the CLI's records what a program declares, and fails as the CLI's would."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s
import pulumi_random as random
import pytest
from pulumi import ResourceOptions
from pulumi.output import Unknown

from slipway.engine.evaluate import evaluate
from slipway.engine.monitor import Evaluation, EvaluationError
from slipway.engine.provider_outputs import unmark
from slipway.infra.emulator import Emulator, StoreFiles
from slipway.infra.review.stack import Partial, Secret


def evaluation(program: Callable[[], object], preview: bool = False, **config: Any) -> Evaluation:
    return evaluate(program, project="p", stack="s", config=config, emulators=[Emulated()], preview=preview)


class Emulated(Emulator):
    """A cloud that knows one output and reads the store."""

    def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG002
        return {"url": f"gs://{inputs['name']}"} if token == "gcp:storage/bucket:Bucket" else None

    def call(self, token: str, args: Mapping[str, Any], store: StoreFiles) -> Mapping[str, Any] | None:  # noqa: ARG002
        return {"content": store.read_text(args["name"])}


def test_resources_are_recorded_with_all_that_a_preview_needs() -> None:
    class Group(pulumi.ComponentResource):
        def __init__(self) -> None:
            super().__init__("slipway:test:Group", "group")
            self.bucket = gcp.storage.Bucket(
                "store", name="bucket", location="US", opts=pulumi.ResourceOptions(parent=self, protect=True)
            )

    def program() -> None:
        group = Group()
        provider = k8s.Provider("dev", kubeconfig=pulumi.Output.secret("a secret"))
        k8s.core.v1.ConfigMap(
            "settings",
            data={"url": group.bucket.url, "token": pulumi.Output.secret("another")},
            opts=pulumi.ResourceOptions(provider=provider, depends_on=[group], delete_before_replace=True),
        )
        pulumi.export("url", group.bucket.url)

    found = evaluation(program)
    by_name = {resource.name: resource for resource in found.resources.values()}
    bucket, settings, provider = by_name["store"], by_name["settings"], by_name["dev"]
    assert bucket.urn == "urn:pulumi:s::p::slipway:test:Group$gcp:storage/bucket:Bucket::store"
    assert (bucket.type, bucket.protect, bucket.parent) == (
        "gcp:storage/bucket:Bucket",
        True,
        by_name["group"].urn,
    )
    assert settings.needs == {bucket.urn, provider.urn}
    assert settings.provider == provider.urn
    assert settings.delete_before_replace
    assert settings.inputs["data"] == {"url": "gs://bucket", "token": "another"}
    assert "another" not in repr(settings.properties)
    assert "a secret" not in repr(provider.properties)
    assert settings.outputs["metadata"]["name"].startswith("settings-")
    assert found.outputs["url"].value == "gs://bucket"


def test_two_evaluations_are_alike_and_leave_nothing_behind() -> None:
    def program() -> None:
        provider = k8s.Provider("dev", kubeconfig="x")
        k8s.core.v1.Namespace("ns", opts=pulumi.ResourceOptions(provider=provider))

    first, second = evaluation(program), evaluation(program)
    assert first.resources == second.resources
    assert pulumi.Config("slipway").get("namespace") is None


def test_the_program_sees_its_configuration() -> None:
    def program() -> None:
        config = pulumi.Config("slipway")
        pulumi.export(
            "seen", [config.require_bool("protect"), config.require_object("clusters"), config.get("name")]
        )

    found = evaluation(program, **{"slipway:protect": True, "slipway:clusters": {"a": 1}, "slipway:name": "x"})
    assert found.outputs["seen"].value == [True, {"a": 1}, "x"]


def test_what_the_program_raises_comes_out_as_it_is() -> None:
    def program() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        evaluation(program)


def test_an_error_in_apply_is_one_error() -> None:
    def program() -> None:
        pulumi.export("x", pulumi.Output.from_input(1).apply(lambda _: {}["missing"]))

    with pytest.raises(EvaluationError, match="missing"):
        evaluation(program)


def test_two_resources_with_one_name_are_refused_by_their_lines() -> None:
    def program() -> None:
        pulumi.ComponentResource("slipway:test:Group", "group")
        pulumi.ComponentResource("slipway:test:Group", "group")

    line = program.__code__.co_firstlineno
    with pytest.raises(EvaluationError, match="Duplicate resource URN") as caught:
        evaluation(program)
    assert all(f"{__file__}:{line + number}" in str(caught.value) for number in (1, 2))


@pytest.mark.parametrize("preview", [True, False])
def test_outputs_that_a_provider_declares_secret_are_hidden(preview: bool) -> None:
    def program() -> None:
        password = random.RandomPassword("password", length=20)
        url = pulumi.Output.concat("postgres://", password.result)
        k8s.core.v1.ConfigMap("settings", data={"url": url})
        label = random.RandomPet("pet", prefix="web", opts=ResourceOptions(additional_secret_outputs=["prefix"]))
        pulumi.export("password", password.result)
        pulumi.export("login", {"user": "web", "url": url})
        pulumi.export("prefix", label.prefix)

    result = evaluation(program, preview)
    by_name = {resource.name: resource for resource in result.resources.values()}
    assert {name: output.shown for name, output in result.outputs.items()} == {
        "password": "[secret]",
        "login": "[secret]" if preview else {"user": "web", "url": "[secret]"},
        "prefix": "[secret]",
    }
    assert isinstance(by_name["settings"].properties["data"], Secret)
    assert isinstance(by_name["pet"].properties["prefix"], Secret)
    assert by_name["password"].outputs.get("result") == (None if preview else "[secret]")


def test_a_disabled_default_provider_is_refused() -> None:
    disabled = {"pulumi:disable-default-providers": ["kubernetes"]}
    with pytest.raises(EvaluationError, match="Default provider for 'kubernetes' disabled"):
        evaluation(lambda: k8s.core.v1.Namespace("ns"), **disabled)
    evaluation(lambda: gcp.storage.Bucket("store", name="bucket", location="US"), **disabled)


def reading() -> None:
    content = gcp.storage.get_bucket_object_content_output(bucket="bucket", name="missing.json").content
    pulumi.export("content", content.apply(lambda text: text.upper()))


def test_a_file_that_is_not_in_the_store_is_unknown_in_a_preview_and_an_error_otherwise() -> None:
    assert evaluation(reading, preview=True).outputs["content"].known is False
    with pytest.raises(EvaluationError, match=r"there is no missing\.json in the store"):
        evaluation(reading)


def inputs_of(found: Evaluation, name: str) -> Mapping[str, Any]:
    return next(resource.inputs for resource in found.resources.values() if resource.name == name)


def test_a_preview_knows_what_was_asked_for_and_not_what_a_cloud_computes() -> None:
    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="bucket", location="US")
        provider = k8s.Provider("dev", kubeconfig=bucket.url)
        namespace = k8s.core.v1.Namespace(
            "ns", metadata={"name": "fixed"}, opts=pulumi.ResourceOptions(provider=provider)
        )
        k8s.core.v1.ConfigMap(
            "settings",
            metadata={"name": "settings", "namespace": namespace.metadata["name"]},
            data={"bucket": bucket.name, "url": bucket.url, "uid": namespace.metadata["uid"], "id": namespace.id},
            opts=pulumi.ResourceOptions(provider=provider),
        )

    found = evaluation(program, preview=True)
    settings = inputs_of(found, "settings")
    assert settings["metadata"] == {"name": "settings", "namespace": "fixed"}
    assert settings["data"].pop("bucket") == "bucket"
    unknown = (*settings["data"].values(), inputs_of(found, "dev")["kubeconfig"])
    assert all(isinstance(each, Unknown) for each in unknown)
    assert {getattr(each, "name", "") for each in unknown} == {"store.url", "ns.metadata.uid", "ns.id"}
    assert inputs_of(evaluation(program), "dev")["kubeconfig"] == "gs://bucket"


def test_a_preview_knows_all_of_a_text_but_the_part_that_a_cloud_computes() -> None:
    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="bucket", location="US")
        provider = k8s.Provider("dev", kubeconfig=pulumi.Output.secret(bucket.url.apply("at {}".format)))
        document = pulumi.Output.json_dumps({"allow": "read", "on": bucket.url})
        k8s.core.v1.ConfigMap("settings", data={"rule": document}, opts=pulumi.ResourceOptions(provider=provider))
        pulumi.export("rule", document)

    found = evaluation(program, preview=True)
    rule = unmark(inputs_of(found, "settings")["data"]["rule"])
    assert isinstance(rule, Partial)
    assert json.loads(rule) == {"allow": "read", "on": "[store.url]"}
    assert not found.outputs["rule"].known
    # What is known of a secret can be compared, and is never shown.
    assert inputs_of(found, "dev")["kubeconfig"] == "at <<unknown:store.url>>"
    (provider,) = (resource for resource in found.resources.values() if resource.name == "dev")
    assert provider.properties["kubeconfig"] == Secret("", partial=True)


def test_a_number_that_a_cloud_computes_is_told_in_the_texts_that_are_made_of_it() -> None:
    class Cloud(Emulator):
        def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
            return {"projectNumber": 5}

    texts: list[Callable[[Any], Any]] = [
        lambda number: str(int(number)),
        str,
        lambda number: f"projects/{int(number)}/all",
        lambda number: f"after {int(number) + 1}",
        lambda number: json.dumps(["a", int(number)]),
    ]

    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="bucket", location="US")
        k8s.core.v1.ConfigMap(
            "settings",
            data={str(index): bucket.project_number.apply(text) for index, text in enumerate(texts)},
            opts=pulumi.ResourceOptions(provider=k8s.Provider("dev")),
        )
        pulumi.export("number", bucket.project_number)

    found = evaluate(program, project="p", stack="s", config={}, emulators=[Cloud()], preview=True)
    data = inputs_of(found, "settings")["data"]
    assert [getattr(data[each], "name", "") for each in "01"] == ["store.projectNumber"] * 2
    assert unmark(data["4"]) == '["a", [store.projectNumber]]'
    assert unmark(data["2"]) == "projects/[store.projectNumber]/all"
    assert unmark(data["3"]) == "after [store.projectNumber+1]"
    assert not found.outputs["number"].known
    # Another number of 16 digits is what it is.
    assert unmark("8675309000123456") == "8675309000123456"


def test_a_preview_does_not_know_what_a_cloud_adds_within_what_was_asked_for() -> None:
    class Cloud(Emulator):
        def outputs(self, token: str, name: str, inputs: Mapping[str, Any]) -> Mapping[str, Any]:  # noqa: ARG002
            return {"website": {**inputs["website"], "notFoundPage": "404.html"}, "location": "eu"}

    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="b", location="US", website={"main_page_suffix": "index.html"})
        pulumi.export("asked", bucket.website.main_page_suffix)
        pulumi.export("added", bucket.website.not_found_page)
        pulumi.export("corrected", bucket.location)

    found = evaluate(program, project="p", stack="s", config={}, emulators=[Cloud()], preview=True)
    assert {name: each.value for name, each in found.outputs.items() if each.known} == {"asked": "index.html"}


def test_a_preview_still_asks_a_providers_functions_unless_their_arguments_are_unknown() -> None:
    class Store(Emulated):
        def call(self, token: str, args: Mapping[str, Any], store: StoreFiles) -> Mapping[str, Any] | None:  # noqa: ARG002
            return {"content": f"of {args['name']}"}

    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="b", location="US")
        for name, path in (("known", "a.json"), ("unknown", bucket.url)):
            found = gcp.storage.get_bucket_object_content_output(bucket="b", name=path)
            pulumi.export(name, found.content)

    found = evaluate(program, project="p", stack="s", config={}, emulators=[Store()], preview=True)
    assert {name: each.known for name, each in found.outputs.items()} == {"known": True, "unknown": False}
    assert found.outputs["known"].value == "of a.json"


def test_a_secret_stays_one_in_a_preview_known_or_not() -> None:
    def program() -> None:
        bucket = gcp.storage.Bucket("store", name="b", location="US", labels=pulumi.Output.secret({"a": "hidden"}))
        provider = k8s.Provider("dev", kubeconfig="x")
        k8s.core.v1.ConfigMap("settings", data=bucket.labels, opts=pulumi.ResourceOptions(provider=provider))
        pulumi.export("known", bucket.labels)
        pulumi.export("unknown", pulumi.Output.secret(bucket.url))
        pulumi.export("open", bucket.url)

    found = evaluation(program, preview=True)
    settings = next(resource for resource in found.resources.values() if resource.name == "settings")
    assert (settings.inputs["data"], settings.properties["data"]) == ({"a": "hidden"}, Secret(""))
    assert {name: each.secret for name, each in found.outputs.items()} == {
        "known": True,
        "unknown": True,
        "open": False,
    }


def test_a_secret_within_an_output_hides_its_entry_and_no_other() -> None:
    def program() -> None:
        token = pulumi.Output.secret("hidden")
        pulumi.export("mnist", {"accuracy": 0.9, "tokens": {"notebook": token, "other": "shown"}})
        pulumi.export("whole", pulumi.Output.secret({"a": "hidden"}))

    found = evaluation(program).outputs
    assert found["mnist"].shown == {"accuracy": 0.9, "tokens": "[secret]"}
    assert found["mnist"].value["tokens"]["notebook"] == "hidden"
    assert found["whole"].shown == "[secret]"


def test_a_resource_that_is_looked_up_is_known_by_what_it_was_looked_up_with() -> None:
    def program() -> None:
        bucket = gcp.storage.Bucket.get("store", "an-id", name="b")
        for name, value in (("id", bucket.id), ("name", bucket.name), ("url", bucket.url)):
            pulumi.export(name, value)

    found = evaluation(program, preview=True)
    assert {name: each.value for name, each in found.outputs.items() if each.known} == {"id": "an-id", "name": "b"}
