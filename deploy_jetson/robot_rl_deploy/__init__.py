"""Policy bundles: what a trained policy needs to know about its robot, written, checked and run.

`contract` is the schema, `export` writes a bundle, `verify` checks one, `policy` runs one with NumPy and ONNX Runtime.
"""
