"""A fake of TensorFlow Serving: its REST API over real SavedModels, with predict alone.

It follows TensorFlow Serving 2.21, as its documentation (tensorflow.org/tfx/serving/api_rest and serving_config)
and its sources (github.com/tensorflow/serving) had it in November 2026. docs/serving.md says what it leaves out.
"""
