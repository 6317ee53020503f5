"""How an app is opened to people outside the cluster: by HTTPS alone, and after a login."""

from pydantic import Field

from infra.schema.base import Model


class IngressSettings(Model):
    """How people reach an app from outside the cluster."""

    host: str = Field(description="The host name at which people reach it: `digits.example.org`.")
