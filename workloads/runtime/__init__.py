"""What the modules that run in pods share. Imports nothing but TensorFlow and the standard library."""
