"""What a server may solve, given sums: quasi-Newton forms, surrogates, small convex programs.

Pure functions of arrays that several methods share, and the rules by which a server moves a
method's number (`tuning.py`) or undoes its steps (`guard.py`); nothing here sees a row.
May import: core. To add a form of curvature, copy `LBFGS` in `quasi_newton/forms.py`
and give it a line in `CURVATURES`.
"""
