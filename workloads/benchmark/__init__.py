"""Throughput of accelerators: ResNet-50 trained for some steps, and a chart across all runs in the store."""
