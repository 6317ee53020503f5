"""The CUDA libraries that TensorFlow needs on a GPU and its image lacks."""
