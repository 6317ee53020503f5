"""What a stack file says of metrics: what is measured of Jobs, and what reads the metrics of all that runs."""

from typing import Annotated

from pydantic import Field

from infra.platform import Resources
from infra.schema.base import ChartSettings, Duration, Int, Labels, Model, Size

MOST_PORT = 65535

PROMETHEUS_PODS = (
    Resources(cpu=260, memory=1088),
    Resources(cpu=50, memory=128),
    Resources(cpu=120, memory=768),
)
"""What the pods ask for that are installed beside the exporters of GPU nodes: Prometheus with its reloader, its
operator, Grafana with what reads its dashboards and sources."""


class IdleSettings(Model):
    """When a GPU that a Job holds counts as idle, and for how much of its time before people are told."""

    below: Int = Field(
        default=5, ge=0, le=100, description="A GPU that is busy for fewer percent of a sample counts as idle."
    )
    share: Int = Field(
        default=30,
        ge=1,
        le=100,
        description="Percent of the Job's time that its GPUs may be idle before that is said with what it cost.",
    )


class ExporterSettings(ChartSettings):
    """NVIDIA's dcgm-exporter on the nodes of GPU pools, on clusters whose cloud does not export what GPUs do."""

    install: bool = Field(
        default=True,
        description="Install it on clusters that do not export metrics of GPUs themselves. `false`: NVIDIA's GPU "
        "Operator, or somebody else, runs it already.",
    )


class PrometheusSettings(ChartSettings):
    """Prometheus with its operator and Grafana, on clusters whose cloud does not collect metrics itself."""

    install: bool = Field(
        default=True,
        description="Install them, from the chart kube-prometheus-stack. `false`: an operator that serves "
        "`monitoring.coreos.com/v1` is there already.",
    )
    namespace: str = Field(
        default="slipway-metrics",
        description="Namespace of Prometheus's own pods, which alone may read what is measured.",
    )
    pod_labels: Labels = Field(
        default_factory=lambda: {"app.kubernetes.io/name": "prometheus"},
        description="Labels of Prometheus's own pods, where it is there already.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Labels by which the Prometheus that is there already finds a PodMonitor.",
    )
    retention: Duration = Field(default="15d", description="How long Prometheus keeps what it read.")
    storage: Size = Field(
        default="20Gi",
        description="Size of the volume that it keeps it on. The oldest goes before the volume is full. A volume "
        "that is there keeps its size.",
    )


class MetricsSettings(Model):
    """Metrics of Jobs, apps, queues and GPUs. Without the section nothing is measured.

    Switched on or off, `usage` changes the pods of all steps: their Jobs start again, and find the results that
    are there.
    """

    usage: bool = Field(
        default=True,
        description="Measure the use of CPU, memory and GPUs of each step beside its program, and keep it in the "
        "store with its results.",
    )
    idle: IdleSettings = Field(default_factory=IdleSettings, description="When an idle GPU is worth a word.")
    collect: bool = Field(
        default=True,
        description="Have metrics read: by what the cloud reads them with, else by the Prometheus of "
        "`prometheus`. Who reads them is let in to their ports, and nobody else.",
    )
    interval: Duration = Field(default="30s", description="Time between two readings, 5 s to 2 min.")
    dashboards: bool = Field(
        default=True,
        description="Declare dashboards of what is read: in the cloud's service, else for Grafana as ConfigMaps.",
    )
    prometheus: PrometheusSettings = Field(
        default_factory=PrometheusSettings, description="What reads them where the cloud does not."
    )
    gpus: ExporterSettings = Field(
        default_factory=ExporterSettings, description="What exports the metrics of GPUs where the cloud does not."
    )
    port: Annotated[int, Field(ge=1024, le=MOST_PORT)] = Field(
        default=9410, description="Port at which the pods of a step answer Prometheus while they run."
    )

    @property
    def installs_prometheus(self) -> bool:
        """Whether Prometheus, with a volume, comes to clusters whose cloud does not collect metrics itself."""
        return self.collect and self.prometheus.install
