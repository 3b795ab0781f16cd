"""How are subset sums solved exactly, and many at a time?"""

from untrained.construct.subset_sum.result import SubsetSums
from untrained.construct.subset_sum.solve import subset_sum

__all__ = ["SubsetSums", "subset_sum"]
