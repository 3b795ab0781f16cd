"""How is a good subnetwork found, and against what is it measured?"""

from __future__ import annotations

from untrained.search.edge_popup import edge_popup

__all__ = ["edge_popup"]
