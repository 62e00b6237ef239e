"""Design-space search for recurrent networks: a problem, a machine, a space of loop parameters, prices.

It lies below the planner, which takes the parameters of its loops on the CPU from here.
"""

from bslite.explore.problem import Recurrent
from bslite.explore.search import Estimate, Found, Part, search
from bslite.explore.space import Axis, Constraint, Point, Space

__all__ = ["Axis", "Constraint", "Estimate", "Found", "Part", "Point", "Recurrent", "Space", "search"]
