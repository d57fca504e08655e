"""The claims of five Transformer tutorials as executable checks, for any implementation.

`pytest conformance/ --impl SPEC` runs them; see `conformance.protocol` for what an implementation is.
"""
