"""What an engine makes of a checkpoint: which names it loads, drops or stops at, and which scales it ends up using.

Rules are data of vLLM 0.33.0 and SGLang 0.5.23, with file and lines of each.
"""
