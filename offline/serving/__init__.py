"""What stands in for TensorFlow Serving in a rehearsal: its REST and gRPC over real SavedModels.

It follows TensorFlow Serving 2.21, as its documentation (tensorflow.org/tfx/serving/api_rest and serving_config)
and its sources (github.com/tensorflow/serving) had it in November 2026. `offline.serving.__main__` says what it
leaves out.
"""
