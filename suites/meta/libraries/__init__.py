"""Quantizers of installed libraries, called as their users call them; a module for each library.

Each module has ``PACKAGE``, the distribution's name, ``SOURCES``, the formats of x, and ``calls()``: recipe -> a function of a torch matrix
[rows, columns], a format and what is given (torch, float32). It answers numpy arrays by the names of a recipe's outputs:
"codes" as codes, or "elements" as the float32 values that codes stand for; "scale", "global_scale" and "zero_point" as
float32 values, or a scale of 8 bits as codes. Only ``calls()`` imports torch and the library.
"""
