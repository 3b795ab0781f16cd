"""Where do the components lie in this model?

One small file a family says which tensor holds which component: `gpt2`, `llama` (Mistral, Qwen2
and Qwen3 too), `bert` (RoBERTa too) and `marian`. `modules` describes any `nn.Module` by the names
of its modules, and `register` with `table` another family of Hugging Face models, which `check`
holds against a fresh one.
"""

from __future__ import annotations

from untrained.components import Slot
from untrained.layouts.check import check
from untrained.layouts.find import layout_of, register
from untrained.layouts.layout import Fixed, Layout
from untrained.layouts.modules import modules
from untrained.layouts.table import table

__all__ = ["Fixed", "Layout", "Slot", "check", "layout_of", "modules", "register", "table"]
