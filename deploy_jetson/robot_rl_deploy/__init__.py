"""Policy bundles: a trained policy and the facts of its robot that it needs, written, checked and run.

`contract` is the schema, `export` writes a bundle, `verify` checks one, `policy` runs one with NumPy and ONNX Runtime.
"""
