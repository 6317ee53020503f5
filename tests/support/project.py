"""A project of one stack and one small pipeline, as one that uses the package has it."""

PROJECT_FILE = """
name: slipway
runtime: {name: python}
stackConfigDir: stacks
config: {"pulumi:disable-default-providers": {value: [kubernetes]}}
"""

STACK = """
config:
  slipway:clusters:
    here:
      cloud: existing
      kubeconfig: ~/.kube/config
      pools: {cpu: {selector: {kubernetes.io/os: linux}, cpu: "4", memory: 8Gi, ephemeral_storage: 10Gi}}
  slipway:store: {kind: pvc}
  slipway:pipelines:
    lines: {steps: {count: {pool: cpu, cpu: "1", memory: 1Gi}}}
"""
"""Runs the pipeline `lines` with its step `count`."""
