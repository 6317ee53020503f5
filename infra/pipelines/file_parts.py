"""Sections of a ``pipeline.yaml`` that steps, services and apps have alike."""

from pydantic import Field

from infra.pipelines.file_words import Words
from infra.schema.base import Cpu, Int, Memory, Model, Size


class ServiceResources(Model):
    """What a service asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory and 4Gi of scratch space; a Valkey server gets 250m of CPU and 256Mi of memory.
    """

    cpu: Cpu | None = Field(default=None, description="CPU asked for, as a Kubernetes quantity.")
    memory: Memory | None = Field(default=None, description="Memory asked for, and its limit.")
    ephemeral_storage: Size | None = Field(default=None, description="Scratch space for temporary files.")


class StepResources(ServiceResources):
    """What a step asks for where the stack file does not say it. Where neither does, it gets one CPU, 4Gi of
    memory, 4Gi of scratch space and no GPU.
    """

    gpus: Int | None = Field(default=None, ge=0, description="GPUs, or shares of one.")


class RehearsalCommand(Model):
    """What a rehearsal runs where this machine lacks the program, or the packages of its image."""

    run: Words | None = Field(default=None, description="The command in place of `run`.")
    requirements: str | None = Field(default=None, description="A lock file with the packages that the image has.")


class ServiceProbe(Model):
    """How a service shows that it is ready."""

    path: str = Field(description="The path at which it answers HTTP with a status below 400: `/healthz`.")
