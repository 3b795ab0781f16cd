"""The three papers, and random transformers, as recipes."""

from transformers import GPT2Config, GPT2LMHeadModel

import untrained as ut

config = GPT2Config(vocab_size=256, n_positions=32, n_layer=4, n_embd=64, n_head=2)
for name, text in ut.PRESETS.items():
    applied = ut.apply(GPT2LMHeadModel(config), text, seed=0)
    print(f"{name}\n{applied}\n")

# Recipes combine; the right side wins. Names may be layers, and parts of components.
rules = ut.recipe("frozen_qk") | "mlp[0:2] = masked(keep=0.3); mlp.down[3] = frozen"
print(ut.apply(GPT2LMHeadModel(config), rules, seed=0))
