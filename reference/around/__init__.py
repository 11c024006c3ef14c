"""What engines do around a recipe and no straight line of steps says: a state, a search, a rotation, a choice.

Each function makes the x that a recipe is run on, or what it is given beside x (``given`` of
``reference.quantize.quantize``). docs/around.md has an example of each.
"""
