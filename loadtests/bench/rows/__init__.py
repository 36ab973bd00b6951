"""The rows of the table, a module for each kind of measurement; every function takes the stage and gives rows.

Measuring and judging are apart: what touches processes ends with plain numbers, and a pure function makes the row.
"""
