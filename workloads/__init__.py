"""What runs inside the pods: plain TensorFlow steps, each started as `python -m workloads.<pipeline>.<step>`."""
