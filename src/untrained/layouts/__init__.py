"""Where do the components lie in this model?

One small file a family says which tensor holds which component: `gpt2` for GPT-2, and `modules`
for any `nn.Module`, by the names of its modules.
"""

from __future__ import annotations

from untrained.layouts.find import layout_of
from untrained.layouts.layout import Layout
from untrained.layouts.modules import modules

__all__ = ["Layout", "layout_of", "modules"]
