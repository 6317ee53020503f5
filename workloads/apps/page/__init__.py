"""A web page where people try an image classifier that TensorFlow Serving serves."""
