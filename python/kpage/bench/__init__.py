"""Benchmarks on one GPU: `python -m kpage.bench --help`.

KPage beside dense attention and the block-sparse kernels that can be imported, on the layouts that
the project names, each result checked against fp64 attention in the same run.
"""
